#pragma once
// What every process of a job does first, and how its main runs a component to its end.

#include <boost/asio/signal_set.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/fault_point.h"
#include "base/gate.h"
#include "base/posix_clock.h"
#include "base/status.h"
#include "base/task.h"
#include "runtime/faults/fault_client.h"

namespace perdure::apps {

// Log levels from PERDURE_LOG, warnings by default. kInvalidArgument.
base::Status set_up_logs();

// The secret of the job: PERDURE_JOB_SECRET, else the file of the run folder ("" for none).
base::Result<std::string> find_secret(const std::string& run_folder);

// Random bytes of the operating system, in hex.
std::string random_hex(size_t bytes);
uint64_t random_seed();

// Faults for testing, when the environment names the launcher's socket. Kept until the end of main.
class FaultSetup {
 public:
  // A launcher that does not answer is no error: there is nothing to be struck by.
  FaultSetup(runtime::faults::ProcessRole role, uint32_t number);

 private:
  base::PosixClock clock_;
  std::unique_ptr<runtime::faults::FaultClient> client_;
  std::optional<base::ScopedFaultHandler> handler_;
};

// Calls `action` at each SIGINT and SIGTERM, until it is destroyed or cancelled.
class SignalWatch {
 public:
  SignalWatch(boost::asio::io_context& io, std::initializer_list<int> signals,
              std::function<void()> action);
  void cancel() { signals_.cancel(); }

 private:
  void wait();

  boost::asio::signal_set signals_;
  std::function<void()> action_;
};

// Runs the loop until `task` has ended; then `at_end` makes the loop run out of work.
template <typename T>
T run_to_end(boost::asio::io_context& io, base::Task<T> task, std::function<void()> at_end) {
  base::Gate gate;
  std::optional<T> result;
  const auto body = [](base::Task<T> inner, std::optional<T>& out,
                       std::function<void()> end) -> base::Task<void> {
    out.emplace(co_await std::move(inner));
    end();
  };
  CHECK(base::spawn(io.get_executor(), gate, body(std::move(task), result, std::move(at_end)))
            .is_ok());
  io.run();
  CHECK(result.has_value());
  return std::move(*result);
}

}  // namespace perdure::apps
