#include "base/stop_token.h"

#include <algorithm>
#include <utility>

namespace perdure::base {

StopSource::~StopSource() { CHECK(first_ == nullptr) << "a stop callback outlives its source"; }

void StopSource::request_stop() {
  if (requested_.exchange(true, std::memory_order_acq_rel)) return;
  while (first_ != nullptr) {
    // Taken off first: the callback may destroy its own StopCallback.
    UniqueFunction<void()> callback = std::move(first_->callback_);
    first_->unlink();
    callback();
  }
}

StopToken StopSource::token() {
  StopToken token;
  token.source_ = this;
  return token;
}

StopToken StopToken::with_deadline(Nanos deadline) const {
  StopToken token = *this;
  token.deadline_ = std::min(deadline_, deadline);
  return token;
}

Status StopToken::check(const Clock& clock) const {
  if (stop_requested()) return cancelled("stop requested");
  if (deadline_ != kNoDeadline && clock.now() >= deadline_) {
    return deadline_exceeded("the deadline has passed");
  }
  return Status::ok();
}

StopCallback::StopCallback(const StopToken& token, UniqueFunction<void()> callback)
    : callback_(std::move(callback)) {
  if (token.source_ == nullptr) return;
  if (token.source_->stop_requested()) {
    callback_();
    return;
  }
  source_ = token.source_;
  previous_ = source_->last_;
  (previous_ != nullptr ? previous_->next_ : source_->first_) = this;
  source_->last_ = this;
}

StopCallback::~StopCallback() { unlink(); }

void StopCallback::unlink() {
  if (source_ == nullptr) return;
  (previous_ != nullptr ? previous_->next_ : source_->first_) = next_;
  (next_ != nullptr ? next_->previous_ : source_->last_) = previous_;
  source_ = nullptr;
}

}  // namespace perdure::base
