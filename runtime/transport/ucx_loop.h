#pragma once
// The part of UcxFabric that lives on the comm thread: owns the port, endpoints and the Asio loop.
// Internal to runtime/transport.

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/transport/ucx_fabric.h"
#include "runtime/transport/ucx_handle.h"

namespace perdure::runtime::transport {

enum class OperationKind : uint8_t { kSend, kReceive };

// One post. Lives in a fixed table; guarded by UcxLoop::mutex_ but for the fields marked comm.
struct Operation {
  enum class State : uint8_t { kFree, kPosted, kDone };
  State state = State::kFree;
  uint32_t generation = 0;
  base::Status result;
  OperationKind kind = OperationKind::kSend;
  uint32_t peer = 0;
  uint64_t tag = 0;
  std::byte* data = nullptr;  // a send only reads it
  size_t size_bytes = 0;
  void* request = nullptr;  // comm: UCX's handle while in flight
  class UcxLoop* loop = nullptr;
};

class UcxLoop {
 public:
  explicit UcxLoop(const UcxOptions& options);
  ~UcxLoop();

  base::Status start(std::unique_ptr<UcxPort> port);
  std::vector<std::byte> address() const { return port_->address; }
  base::Status make_endpoints(std::span<const std::vector<std::byte>> addresses,
                              collective::Timeout timeout);

  collective::Ticket post(OperationKind kind, base::Rank peer, uint64_t tag, std::byte* data,
                          size_t size_bytes);
  base::Status wait(collective::Ticket ticket, collective::Timeout timeout);
  void abort(base::Status why);
  void stop();  // idempotent; joins the comm thread

 private:
  struct Endpoint {
    ucp_ep_h handle = nullptr;
    bool failed = false;   // seen by the error callback
    bool handled = false;  // its receives were cancelled
    ucs_status_t why = UCS_OK;
  };

  ucp_worker_h worker() const { return port_->worker.get(); }
  void run();   // body of the comm thread
  void pump();  // do all that can be done, then sleep on the event fds
  void take_commands();
  void submit(Operation& operation);
  void handle_failed_peers();
  void finish_aborted();
  void close_endpoints();
  void watch(boost::asio::posix::stream_descriptor& descriptor);
  void complete(Operation& operation, base::Status result);
  base::Status end_reason() const;  // under mutex_: of an abort, else of close
  void wake();
  base::Status make_endpoint(uint32_t peer, const std::vector<std::byte>& address);

  static void on_send(void* request, ucs_status_t status, void* user);
  static void on_receive(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                         void* user);
  static void on_error(void* user, ucp_ep_h endpoint, ucs_status_t status);

  const UcxOptions options_;
  std::unique_ptr<UcxPort> port_;
  std::vector<Endpoint> endpoints_;                 // comm
  std::vector<std::vector<std::byte>> to_connect_;  // handed to comm by make_endpoints
  bool ended_ = false;                              // comm: aborted or stopped; UCX rests for ever
  boost::asio::io_context io_;
  boost::asio::posix::stream_descriptor ucx_event_;
  boost::asio::posix::stream_descriptor wake_event_;
  std::thread thread_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Operation> operations_;
  std::vector<uint32_t> free_;
  std::vector<uint32_t> commands_;  // operations to submit, in order
  std::vector<uint32_t> taken_;     // comm: the batch being submitted
  base::Status aborted_;            // ok while nobody aborted
  bool stopping_ = false;
  bool connect_asked_ = false;
  bool connect_done_ = false;
  base::Status connect_result_;
};

}  // namespace perdure::runtime::transport
