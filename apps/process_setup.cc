#include "apps/process_setup.h"

#include <sys/random.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "base/posix_files.h"
#include "runtime/faults/fault_wire.h"
#include "runtime/launcher/process_starter.h"
#include "runtime/launcher/run_folder.h"

namespace perdure::apps {

base::Status set_up_logs() {
  const char* levels = std::getenv("PERDURE_LOG");
  const base::Status set = base::set_log_levels(levels == nullptr ? "warning" : levels);
  return set.is_ok() ? set : set.annotate("PERDURE_LOG");
}

base::Result<std::string> find_secret(const std::string& run_folder) {
  const char* secret = std::getenv(runtime::launcher::kSecretVariable);
  if (secret != nullptr && secret[0] != '\0') return std::string(secret);
  if (run_folder.empty()) {
    return base::invalid_argument(std::string("the job's secret must be in ") +
                                  runtime::launcher::kSecretVariable);
  }
  base::PosixFiles files;
  return runtime::launcher::read_secret(runtime::launcher::RunFolder(run_folder), files);
}

namespace {

void fill_random(void* bytes, size_t count) {
  CHECK_EQ(::getrandom(bytes, count, 0), static_cast<ssize_t>(count));
}

}  // namespace

std::string random_hex(size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) {
    unsigned char byte = 0;
    fill_random(&byte, 1);
    char two[3];
    std::snprintf(two, sizeof two, "%02x", byte);
    text += two;
  }
  return text;
}

uint64_t random_seed() {
  uint64_t seed = 0;
  fill_random(&seed, sizeof seed);
  return seed;
}

FaultSetup::FaultSetup(runtime::faults::ProcessRole role, uint32_t number) {
  const char* socket = std::getenv(runtime::faults::kFaultSocketVariable);
  if (socket == nullptr || socket[0] == '\0') return;
  auto client = runtime::faults::FaultClient::connect(
      {.socket = socket, .role = role, .number = number}, clock_);
  if (!client.is_ok()) {
    LOG_WARNING("faults", "no fault server", KV("why", client.status()));
    return;
  }
  client_ = std::move(client).value();
  handler_.emplace(*client_);
}

SignalWatch::SignalWatch(boost::asio::io_context& io, std::initializer_list<int> signals,
                         std::function<void()> action)
    : signals_(io), action_(std::move(action)) {
  for (const int signal : signals) signals_.add(signal);
  wait();
}

void SignalWatch::wait() {
  signals_.async_wait([this](const boost::system::error_code& error, int) {
    if (error) return;
    action_();
    wait();
  });
}

}  // namespace perdure::apps
