#include "base/waiter.h"

#include <boost/asio/query.hpp>

#include "base/check.h"

namespace perdure::base {

// The list of one io_context, which owns it and calls shutdown() when it is destroyed.
class PendingWaits final : public boost::asio::execution_context::service {
 public:
  using key_type = PendingWaits;
  inline static boost::asio::execution_context::id id;

  explicit PendingWaits(boost::asio::execution_context& context)
      : boost::asio::execution_context::service(context) {}

  void insert(PendingWait& wait) {
    wait.previous_ = &head_;
    wait.next_ = head_.next_;
    if (wait.next_ != nullptr) wait.next_->previous_ = &wait;
    head_.next_ = &wait;
  }

 private:
  struct Head final : PendingWait {
    void drop() override {}
  };

  void shutdown() noexcept override {
    while (PendingWait* wait = head_.next_) {
      wait->unlink();
      wait->drop();
    }
  }

  Head head_;
};

void PendingWait::link(const Executor& executor) {
  CHECK(previous_ == nullptr) << "two coroutines wait on one waiter";
  auto& context = boost::asio::query(executor, boost::asio::execution::context);
  boost::asio::use_service<PendingWaits>(context).insert(*this);
}

void PendingWait::unlink() {
  if (previous_ == nullptr) return;
  previous_->next_ = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
  previous_ = nullptr;
  next_ = nullptr;
}

}  // namespace perdure::base
