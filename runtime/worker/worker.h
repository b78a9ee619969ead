#pragma once
// Worker: one process, one rank, one device. Joins the job at its coordinator, builds its part of
// the model, trains, reports, leaves when told.
//
//   component thread (control)            engine thread
//   Hello … Assignment … Ready … Start
//            ── starts ─────────────────► Trainer::run
//   reports ◄── posted ──────────────────
//   Finished … Goodbye
//
// When the coordinator is lost or the control channel breaks, the fabric is aborted, so the engine
// thread leaves its step in bounded time.

#include <functional>
#include <memory>
#include <string>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/gate.h"
#include "base/network.h"
#include "base/posix_process.h"
#include "kernels/device.h"
#include "runtime/collective/fabric.h"
#include "runtime/rpc/job_messages.h"
#include "runtime/rpc/message_channel.h"
#include "runtime/worker/trainer.h"

namespace perdure::runtime::worker {

struct FabricRequest {
  base::Rank rank;
  uint32_t ranks = 1;
  base::Epoch epoch;
  job::Transport transport;
};

// The real implementations, picked by the main. All outlive the worker.
struct WorkerServices {
  base::Network& network;
  base::Clock& clock;
  base::Executor executor;
  std::function<base::Result<std::unique_ptr<kernels::Device>>(std::string_view,
                                                               const kernels::DeviceOptions&)>
      make_device;
  std::function<base::Result<std::unique_ptr<collective::MeshFabric>>(const FabricRequest&)>
      make_fabric;
};

struct WorkerOptions {
  base::Address coordinator;
  base::WorkerId worker;
  std::string job_token;
  uint64_t pid = 0;
};

class Worker {
 public:
  Worker(const WorkerOptions& options, const WorkerServices& services);

  // The whole life. Ok after Goodbye; else why it ended, which the coordinator was told if it could
  // be reached.
  base::Task<base::Status> run();

 private:
  struct Outgoing {
    rpc::MessageType type;
    rpc::Payload payload;
  };
  class Reporter;

  base::Task<base::Status> join();
  base::Task<base::Status> prepare();
  base::Task<base::Status> train();
  base::Task<void> send_loop();
  base::Task<void> watch_coordinator();
  base::Task<base::Result<rpc::Frame>> expect(rpc::MessageType type, base::Nanos deadline);
  template <typename Message>
  base::Task<base::Status> send(const Message& message);
  void engine_thread();
  void engine_done(base::Status status);

  const WorkerOptions options_;
  const WorkerServices services_;
  base::Gate gate_;
  std::unique_ptr<rpc::MessageChannel> channel_;
  rpc::Assignment assignment_;
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<collective::MeshFabric> fabric_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<base::NamedThread> thread_;
  base::TaskQueue<Outgoing> outgoing_;
  base::Condition engine_changed_;
  bool engine_running_ = false;
  base::Status engine_status_;
  bool left_ = false;       // the control channel has ended
  bool dismissed_ = false;  // by a goodbye
};

}  // namespace perdure::runtime::worker
