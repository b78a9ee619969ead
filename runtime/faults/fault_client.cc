#include "runtime/faults/fault_client.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "runtime/faults/fault_signals.h"
#include "runtime/faults/unix_ask.h"

namespace perdure::runtime::faults {
namespace {

constexpr int64_t kDelayMsMax = 600'000;

}  // namespace

base::Result<std::unique_ptr<FaultClient>> FaultClient::connect(const FaultClientOptions& options,
                                                                const base::Clock& clock) {
  const ProcessInfo self{.role = options.role,
                         .number = options.number,
                         .pid = static_cast<int>(::getpid()),
                         .group = static_cast<int>(::getpgrp())};
  std::unique_ptr<FaultClient> client(new FaultClient(options, clock, self));
  handle_fault_signals();
  FaultQuestion hello;
  hello.hit.who = self;
  ASSIGN_OR_RETURN(const std::string answer, ask_unix(options.socket, encode(hello)));
  ASSIGN_OR_RETURN(client->specs_, decode_list(answer));
  return client;
}

// Points are asked for only when the server may have something for this process.
bool FaultClient::is_armed(std::string_view name, uint64_t step, uint64_t epoch) const {
  return std::any_of(specs_.begin(), specs_.end(), [&](const FaultSpec& spec) {
    if (!spec.is_reached(name, step, epoch)) return false;
    const bool only_itself = spec.moment == FaultMoment::kStep &&
                             spec.target.kind == TargetKind::kWorker &&
                             spec.deed != FaultDeed::kStart;
    return !only_itself ||
           (self_.role == ProcessRole::kWorker && spec.target.number == self_.number);
  });
}

base::Status FaultClient::at_fault_point(std::string_view name, base::MutableByteSpan) {
  const uint64_t step = base::fault_time.step.load(std::memory_order_relaxed);
  const uint64_t epoch = base::fault_time.epoch.load(std::memory_order_relaxed);
  if (name == "step.begin") step_began_ns_ = clock_.now().count();
  if (is_armed(name, step, epoch)) ask(name, step, epoch);
  if (name == "step.reduce") delay();
  return base::Status::ok();
}

void FaultClient::ask(std::string_view name, uint64_t step, uint64_t epoch) {
  FaultQuestion question{.is_hit = true, .hit = {}};
  question.hit = {.who = self_, .point = std::string(name), .step = step, .epoch = epoch};
  const base::Result<std::string> line = ask_unix(options_.socket, encode(question));
  const base::Result<FaultReply> reply =
      line.is_ok() ? decode_reply(*line) : base::Result<FaultReply>(line.status());
  if (!reply.is_ok()) {
    LOG_WARNING("faults", "no answer at a fault point", KV("point", name),
                KV("why", reply.status()));
    return;
  }
  switch (reply.value().answer) {
    case FaultAnswer::kGoOn:
      break;
    case FaultAnswer::kExit:
      ::_exit(0);
    case FaultAnswer::kSlow:
      factor_ = reply.value().factor;
      break;
    case FaultAnswer::kDrop:
      shut_down_connections();
      break;
  }
}

// The step has computed: makes it last `factor_` times as long.
void FaultClient::delay() {
  const double factor = factor_.load(std::memory_order_relaxed);
  if (factor <= 1.0) return;
  const double computed_ms = base::to_ms(clock_.now() - base::Nanos(step_began_ns_.load()));
  const auto wait_ms = static_cast<int64_t>((factor - 1.0) * computed_ms);
  ::poll(nullptr, 0, static_cast<int>(std::clamp<int64_t>(wait_ms, 0, kDelayMsMax)));
}

}  // namespace perdure::runtime::faults
