#pragma once
// PosixClock: the clocks of this machine.

#include <cstdint>
#include <map>
#include <memory>

#include "base/clock.h"
#include "base/task.h"

namespace perdure::base {

// One per component: callbacks run on the executor's thread. The clock outlives the running of its
// io_context.
class PosixClock final : public Clock {
 public:
  // Without an executor it tells the time only; call_at is then a bug.
  PosixClock();
  explicit PosixClock(Executor executor);
  ~PosixClock() override;

  Nanos now() const override;
  int64_t unix_ms() const override;
  TimerId call_at(Nanos when, UniqueFunction<void()> callback) override;
  void cancel(TimerId id) override;

 private:
  struct Pending;
  void fire(uint64_t id);

  Executor executor_;
  uint64_t id_last_ = 0;
  std::map<uint64_t, std::unique_ptr<Pending>> pending_;
};

}  // namespace perdure::base
