#include "base/condition.h"

#include <algorithm>

namespace perdure::base {

// Lists a waiter, and takes it off the list also when its coroutine is destroyed.
class Condition::Entry {
 public:
  explicit Entry(Condition& condition) : condition_(condition) {
    condition_.waiting_.push_back(this);
  }
  ~Entry() {
    auto& waiting = condition_.waiting_;
    const auto at = std::find(waiting.begin(), waiting.end(), this);
    if (at != waiting.end()) waiting.erase(at);
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  Waiter<Status> waiter;

 private:
  Condition& condition_;
};

Condition::~Condition() { CHECK(waiting_.empty()) << "a coroutine waits on a destroyed condition"; }

Task<Status> Condition::wait(Clock& clock, Nanos deadline) {
  Entry entry(*this);
  co_return co_await wait_until(entry.waiter, clock, deadline, "notification");
}

Task<Status> Condition::wait() {
  Entry entry(*this);
  co_return co_await entry.waiter.wait();
}

void Condition::notify_one() {
  if (waiting_.empty()) return;
  Entry* entry = waiting_.front();
  waiting_.pop_front();
  entry->waiter.complete(Status::ok());
}

void Condition::notify_all() {
  while (!waiting_.empty()) notify_one();
}

Task<Status> wait_until(Waiter<Status>& waiter, Clock& clock, Nanos deadline, const char* what) {
  const Timer timer(clock, deadline, [&waiter, what] {
    waiter.complete(deadline_exceeded(std::string("no ") + what + " before the deadline"));
  });
  co_return co_await waiter.wait();
}

}  // namespace perdure::base
