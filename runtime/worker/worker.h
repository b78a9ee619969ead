#pragma once
// Worker: the control side of one worker process. It takes orders from the coordinator (through its
// agent), has its engine carry them out, and tells what came of it.
//
//   receive loop ──► orders ──► order loop ──► EngineDriver (its own thread)
//        │ Fence: aborts what the engine does, at once        │
//   send loop ◄──── outgoing ◄────────────── answers, reports ┘
//
// Orders are done one after another. A Fence makes all orders of older epochs void: those that wait
// are dropped, and the one that runs is aborted and its answer not sent. An order whose budget
// (rpc::Stamp) is over before its turn comes is dropped, too: its phase has ended.
//
// Threads: the component's.

#include <memory>
#include <optional>
#include <string>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/gate.h"
#include "base/network.h"
#include "base/random.h"
#include "runtime/membership/lease_keeper.h"
#include "runtime/rpc/handshake.h"
#include "runtime/worker/engine_driver.h"

namespace perdure::runtime::worker {

struct WorkerOptions {
  base::Address agent;
  base::WorkerId worker;
  base::Incarnation incarnation;
  std::string secret;  // of the job
  uint64_t pid = 0;
  uint64_t nonce_seed = 0;
};

// The real implementations, picked by the main. All outlive the worker.
struct WorkerServices {
  base::Network& network;
  base::Clock& clock;
  base::Executor executor;
  EngineDriver& engine;
};

class Worker : private EngineListener {
 public:
  Worker(const WorkerOptions& options, const WorkerServices& services);

  // The whole life. Ok when it was dismissed, else why it ended.
  base::Task<base::Status> run();

 private:
  struct Order {
    rpc::Frame frame;
    base::Nanos deadline;
  };

  base::Task<base::Status> join();
  base::Task<void> receive_loop();
  base::Task<void> order_loop();
  base::Task<void> send_loop();
  base::Task<void> beat_loop();
  base::Task<void> carry_out(rpc::Frame order);
  base::Task<void> fence(const rpc::Frame& order);
  base::Task<void> apply_vote(const rpc::Frame& order);
  base::Task<void> restore(const rpc::Frame& order);
  base::Task<void> prepare(const rpc::Frame& order);
  base::Task<void> load(const rpc::Frame& order);
  void give_vote();
  base::Task<void> tell_state(protocol::StateTold told);
  void go(const rpc::Frame& order);
  void take(rpc::Frame frame);
  void tell_steps_after(base::Step reported);
  void leave(base::Status why);
  template <typename Message>
  void tell(const Message& message);
  void tell_stopped(const base::Status& why);
  rpc::Stamp stamp() const {
    return {.epoch = epoch_, .incarnation = options_.incarnation, .budget_ms = 0};
  }

  void on_step(const protocol::StepReport& report) override;
  void on_evaluation(const protocol::EvaluationReport& report) override;
  void on_stopped(base::Status why, base::Step committed) override;
  void on_finished(const protocol::Finished& finished) override;

  const WorkerOptions options_;
  const WorkerServices services_;
  base::SeededRandom nonces_;
  base::Gate gate_;
  std::unique_ptr<rpc::MessageChannel> channel_;
  std::optional<membership::LeaseKeeper> lease_;
  base::Nanos beat_every_{0};
  std::string device_;
  base::TaskQueue<Order> orders_;
  base::TaskQueue<rpc::Frame> outgoing_;
  base::Condition left_;
  std::optional<base::Status> end_;  // why run() returns
  base::Epoch epoch_;                // the newest that it was told of
  std::optional<base::Rank> rank_;   // in epoch_, once prepared
  base::Step committed_;
  std::optional<base::Nanos> left_at_;  // when the engine left the steps of the last epoch
  base::Epoch offers_asked_in_;         // what could be brought back is told with every state of it
  base::Step reported_;                 // what the coordinator knew at the last fence
  std::optional<protocol::Finished> finished_;  // in epoch_
};

}  // namespace perdure::runtime::worker
