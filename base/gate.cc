#include "base/gate.h"

namespace perdure::base {

Gate::~Gate() { CHECK_EQ(inside_count_, 0u) << "tasks are inside a destroyed gate"; }

Result<Gate::Pass> Gate::enter() {
  if (is_closed_) return cancelled("the gate is closed");
  ++inside_count_;
  return Pass(this);
}

Task<void> Gate::close() {
  is_closed_ = true;
  while (inside_count_ > 0) CHECK((co_await empty_.wait()).is_ok());
}

void Gate::leave() {
  CHECK_GT(inside_count_, 0u);
  if (--inside_count_ == 0) empty_.notify_all();
}

}  // namespace perdure::base
