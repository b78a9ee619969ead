#include "runtime/transport/ucx_loop.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <boost/asio/error.hpp>
#include <chrono>

namespace perdure::runtime::transport {
namespace {

// After an abort UCX gets this long to give requests back; then they are ended anyway.
constexpr std::chrono::milliseconds kAbortGrace{50};

}  // namespace

UcxLoop::UcxLoop(const UcxOptions& options)
    : options_(options), endpoints_(options.ranks), ucx_event_(io_), wake_event_(io_) {
  operations_.resize(options.tickets);
  free_.reserve(options.tickets);
  commands_.reserve(options.tickets);
  taken_.reserve(options.tickets);
  for (uint32_t i = options.tickets; i-- > 0;) {
    operations_[i].loop = this;
    free_.push_back(i);
  }
}

UcxLoop::~UcxLoop() { stop(); }

base::Status UcxLoop::start(std::unique_ptr<UcxPort> port) {
  port_ = std::move(port);
  int event_fd = -1;
  RETURN_IF_ERROR(ucx_status(ucp_worker_get_efd(worker(), &event_fd), "UCX event fd"));
  const int own = ::dup(event_fd);  // the descriptor closes its copy; UCX keeps its own
  const int wake = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (own < 0 || wake < 0) return base::resource_exhausted("no descriptor left for the UCX loop");
  ucx_event_.assign(own);
  wake_event_.assign(wake);
  thread_ = std::thread([this] { run(); });
  return base::Status::ok();
}

void UcxLoop::wake() {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the loop is awake anyway.
  [[maybe_unused]] const ssize_t written = ::write(wake_event_.native_handle(), &one, sizeof one);
}

void UcxLoop::watch(boost::asio::posix::stream_descriptor& descriptor) {
  descriptor.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                        [this, &descriptor](const boost::system::error_code& error) {
                          if (error == boost::asio::error::operation_aborted) return;
                          if (&descriptor == &wake_event_) {
                            uint64_t count = 0;
                            [[maybe_unused]] const ssize_t n =
                                ::read(wake_event_.native_handle(), &count, sizeof count);
                          }
                          pump();
                          // After an abort nothing drives UCX any more, so its descriptor may stay
                          // readable.
                          const bool deaf = ended_ && &descriptor == &ucx_event_;
                          if (!io_.stopped() && !deaf) watch(descriptor);
                        });
}

void UcxLoop::run() {
  watch(wake_event_);
  watch(ucx_event_);
  pump();
  io_.run();
  close_endpoints();
}

void UcxLoop::pump() {
  do {
    take_commands();
    if (!ended_) {
      while (ucp_worker_progress(worker()) != 0) {
      }
      handle_failed_peers();
    }
    finish_aborted();
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      io_.stop();
      return;
    }
  } while (!ended_ && ucp_worker_arm(worker()) == UCS_ERR_BUSY);
}

void UcxLoop::take_commands() {
  bool connect = false;
  {
    const std::lock_guard lock(mutex_);
    taken_.swap(commands_);
    connect = connect_asked_ && !connect_done_;
  }
  if (connect) {
    base::Status result = ended_ ? base::cancelled("the fabric has ended") : base::Status::ok();
    for (uint32_t peer = 0; peer < options_.ranks && result.is_ok(); ++peer) {
      if (peer != options_.rank.value() && !to_connect_[peer].empty())
        result = make_endpoint(peer, to_connect_[peer]);
    }
    const std::lock_guard lock(mutex_);
    connect_done_ = true;
    connect_result_ = result;
    changed_.notify_all();
  }
  for (const uint32_t index : taken_) submit(operations_[index]);
  taken_.clear();
}

void UcxLoop::submit(Operation& operation) {
  {
    const std::lock_guard lock(mutex_);
    if (!aborted_.is_ok()) {
      operation.result = aborted_;
      operation.state = Operation::State::kDone;
      changed_.notify_all();
      return;
    }
  }
  const Endpoint& endpoint = endpoints_[operation.peer];
  if (endpoint.failed || endpoint.handle == nullptr) {
    complete(operation, base::unavailable("rank " + std::to_string(operation.peer) + " is gone"));
    return;
  }
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.user_data = &operation;
  ucs_status_ptr_t request = nullptr;
  if (operation.kind == OperationKind::kSend) {
    param.cb.send = on_send;
    request = ucp_tag_send_nbx(endpoint.handle, operation.data, operation.size_bytes, operation.tag,
                               &param);
  } else {
    param.cb.recv = on_receive;
    request = ucp_tag_recv_nbx(worker(), operation.data, operation.size_bytes, operation.tag,
                               ~uint64_t{0}, &param);
  }
  if (UCS_PTR_IS_ERR(request)) {
    complete(operation,
             ucx_status(UCS_PTR_STATUS(request), "rank " + std::to_string(operation.peer)));
  } else if (request != nullptr) {
    // The callback may have run already (and cleared nothing yet): keep the handle only while
    // posted.
    const std::lock_guard lock(mutex_);
    if (operation.state == Operation::State::kPosted) operation.request = request;
  }
}

void UcxLoop::complete(Operation& operation, base::Status result) {
  const std::lock_guard lock(mutex_);
  if (operation.state != Operation::State::kPosted) return;  // ended by an abort before
  operation.request = nullptr;
  // What is cancelled at the end was not cancelled for a lost peer.
  operation.result = ended_ ? end_reason() : std::move(result);
  operation.state = Operation::State::kDone;
  changed_.notify_all();
}

base::Status UcxLoop::end_reason() const {
  return aborted_.is_ok() ? base::cancelled("the fabric was closed") : aborted_;
}

void UcxLoop::on_send(void* request, ucs_status_t status, void* user) {
  auto& operation = *static_cast<Operation*>(user);
  base::Status result;
  if (status != UCS_OK)
    result = ucx_status(status, "sending to rank " + std::to_string(operation.peer));
  operation.loop->complete(operation, std::move(result));
  ucp_request_free(request);
}

void UcxLoop::on_receive(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                         void* user) {
  auto& operation = *static_cast<Operation*>(user);
  const std::string who = "receiving from rank " + std::to_string(operation.peer);
  base::Status result;
  if (status == UCS_ERR_CANCELED) {
    result = base::unavailable("rank " + std::to_string(operation.peer) + " is gone");
  } else if (status != UCS_OK) {
    result = ucx_status(status, who);
  } else if (info->length != operation.size_bytes) {
    result = base::data_loss(who + ": " + std::to_string(info->length) + " bytes where " +
                             std::to_string(operation.size_bytes) + " were expected");
  }
  operation.loop->complete(operation, std::move(result));
  ucp_request_free(request);
}

void UcxLoop::on_error(void* user, ucp_ep_h endpoint, ucs_status_t status) {
  auto& loop = *static_cast<UcxLoop*>(user);
  for (Endpoint& e : loop.endpoints_) {
    if (e.handle != endpoint) continue;
    e.failed = true;
    e.why = status;
  }
}

// UCX ends sends to a dead peer and receives that it had matched; the others are ended here.
void UcxLoop::handle_failed_peers() {
  for (uint32_t peer = 0; peer < endpoints_.size(); ++peer) {
    Endpoint& endpoint = endpoints_[peer];
    if (!endpoint.failed || endpoint.handled) continue;
    endpoint.handled = true;
    for (Operation& operation : operations_) {
      if (operation.kind == OperationKind::kReceive && operation.peer == peer &&
          operation.request != nullptr) {
        ucp_request_cancel(worker(), operation.request);
      }
    }
  }
}

void UcxLoop::finish_aborted() {
  {
    const std::lock_guard lock(mutex_);
    if ((aborted_.is_ok() && !stopping_) || ended_) return;
  }
  ended_ = true;
  for (Operation& operation : operations_) {
    if (operation.request != nullptr && operation.kind == OperationKind::kReceive) {
      ucp_request_cancel(worker(), operation.request);
    }
  }
  close_endpoints();
  // Closed endpoints do not close their connections: only without the worker do peers learn at once
  // that this rank has left. And nothing can touch the operations' memory any more.
  port_->worker.reset();
  const std::lock_guard lock(mutex_);
  for (Operation& operation : operations_) {
    if (operation.state != Operation::State::kPosted) continue;
    operation.request = nullptr;
    operation.result = end_reason();
    operation.state = Operation::State::kDone;
  }
  changed_.notify_all();
}

void UcxLoop::close_endpoints() {
  std::vector<void*> closing;
  for (Endpoint& endpoint : endpoints_) {
    if (endpoint.handle == nullptr) continue;
    ucp_request_param_t param{};
    if (options_.transport == UcxTransport::kTcp) {
      param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    }
    const ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint.handle, &param);
    endpoint.handle = nullptr;
    if (UCS_PTR_IS_PTR(request)) closing.push_back(request);
  }
  const auto end = std::chrono::steady_clock::now() + kAbortGrace;
  for (void* request : closing) {
    while (ucp_request_check_status(request) == UCS_INPROGRESS &&
           std::chrono::steady_clock::now() < end) {
      ucp_worker_progress(worker());
    }
    ucp_request_free(request);
  }
}

base::Status UcxLoop::make_endpoint(uint32_t peer, const std::vector<std::byte>& address) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  if (options_.transport == UcxTransport::kTcp) {
    params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = on_error;
    params.err_handler.arg = this;
  }
  const std::string what = "connecting to rank " + std::to_string(peer);
  return ucx_status(ucp_ep_create(worker(), &params, &endpoints_[peer].handle), what);
}

base::Status UcxLoop::make_endpoints(std::span<const std::vector<std::byte>> addresses,
                                     collective::Timeout timeout) {
  CHECK_EQ(addresses.size(), options_.ranks);
  to_connect_.assign(addresses.begin(), addresses.end());
  std::unique_lock lock(mutex_);
  CHECK(!connect_asked_) << "connect is called once";
  connect_asked_ = true;
  wake();
  if (!changed_.wait_for(lock, timeout, [this] { return connect_done_; })) {
    return base::deadline_exceeded("connecting to the other ranks");
  }
  RETURN_IF_ERROR(aborted_);  // also when there was nobody to connect to
  return connect_result_;
}

collective::Ticket UcxLoop::post(OperationKind kind, base::Rank peer, uint64_t tag, std::byte* data,
                                 size_t size_bytes) {
  CHECK_LT(peer.value(), options_.ranks);
  CHECK_NE(peer, options_.rank) << "a message to oneself";
  CHECK_GT(size_bytes, 0u);
  const std::lock_guard lock(mutex_);
  CHECK(!free_.empty()) << "all " << operations_.size() << " tickets are open";
  const uint32_t index = free_.back();
  free_.pop_back();
  Operation& operation = operations_[index];
  operation.kind = kind;
  operation.peer = peer.value();
  operation.tag = tag;
  operation.data = data;
  operation.size_bytes = size_bytes;
  operation.result = base::Status::ok();
  ++operation.generation;
  operation.state = Operation::State::kPosted;
  if (!aborted_.is_ok() || stopping_) {
    operation.state = Operation::State::kDone;
    operation.result = end_reason();
  } else {
    const bool idle = commands_.empty();
    commands_.push_back(index);
    if (idle) wake();
  }
  return {index, operation.generation};
}

base::Status UcxLoop::wait(collective::Ticket ticket, collective::Timeout timeout) {
  std::unique_lock lock(mutex_);
  CHECK_LT(ticket.slot, operations_.size());
  Operation& operation = operations_[ticket.slot];
  CHECK(operation.generation == ticket.generation && operation.state != Operation::State::kFree)
      << "waited twice for one ticket";
  const auto done = [&] { return operation.state == Operation::State::kDone; };
  if (!changed_.wait_for(lock, timeout, done)) {
    if (aborted_.is_ok()) {
      aborted_ =
          base::deadline_exceeded("no message from or to rank " + std::to_string(operation.peer) +
                                  " within " + std::to_string(timeout.count()) + " ms");
    }
    wake();
    changed_.wait(lock, done);  // bounded: finish_aborted ends every operation
  }
  base::Status result = std::move(operation.result);
  operation.state = Operation::State::kFree;
  free_.push_back(ticket.slot);
  return result;
}

void UcxLoop::abort(base::Status why) {
  CHECK(!why.is_ok());
  const std::lock_guard lock(mutex_);
  if (!aborted_.is_ok()) return;
  aborted_ = std::move(why);
  wake();
}

void UcxLoop::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake();
  }
  thread_.join();
}

}  // namespace perdure::runtime::transport
