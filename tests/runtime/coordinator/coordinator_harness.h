#pragma once
// The real JobCoordinator on a simulated host, and workers that a test plays by hand, one message
// after the other. Virtual time passes while a call waits.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/gate.h"
#include "chaos/sim_world.h"
#include "runtime/coordinator/job_coordinator.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::coordinator {

// What the observer was told, a line each: "ready 0 fake-0", "start", "step 1", "evaluation 1",
// "finished 0".
class Journal : public JobObserver {
 public:
  void on_ready(base::Rank rank, const rpc::Ready& ready) override;
  void on_start() override { lines.push_back("start"); }
  void on_step(const rpc::StepReport& report) override;
  void on_evaluation(const rpc::EvaluationReport& report) override;
  void on_finished(base::Rank rank, const rpc::Finished& finished) override;

  std::vector<std::string> lines;
};

class CoordinatorProcess : public chaos::SimProcess {
 public:
  CoordinatorProcess(chaos::SimHost& host, const CoordinatorOptions& options,
                     JobObserver& observer);
  ~CoordinatorProcess() override;

  JobCoordinator& coordinator() { return *coordinator_; }
  const std::optional<base::Status>& outcome() const { return outcome_; }

 private:
  std::unique_ptr<JobCoordinator> coordinator_;
  base::Gate gate_;
  std::optional<base::Status> outcome_;
};

rpc::Hello hello_of(uint32_t worker);
rpc::Ready ready_of(uint32_t worker);

// The worker's end of a connection to the coordinator. All calls run the world until they are done.
class Peer {
 public:
  Peer(chaos::SimWorld& world, chaos::SimHost& host) : world_(world), host_(host) {}

  base::Status connect();
  template <typename Message>
  base::Status send(const Message& message) {
    return send_frame(static_cast<uint16_t>(Message::kType), message.encode());
  }
  base::Status send_frame(uint16_t type, const rpc::Payload& payload) {
    return send_bytes(rpc::encode_frame(type, payload));
  }
  base::Status send_bytes(const std::vector<std::byte>& bytes);
  // The next message, which must be of this kind.
  template <typename Message>
  base::Result<Message> expect() {
    ASSIGN_OR_RETURN(const rpc::Frame frame, receive());
    if (frame.type != static_cast<uint16_t>(Message::kType))
      return base::internal("a message of type " + std::to_string(frame.type));
    return Message::decode(frame.payload);
  }
  base::Result<rpc::Frame> receive();
  void close() { messages_->close(); }

 private:
  chaos::SimWorld& world_;
  chaos::SimHost& host_;
  base::Channel* channel_ = nullptr;  // of messages_
  std::unique_ptr<rpc::MessageChannel> messages_;
};

// Hosts "coordinator", "n0", "n1", "n2" (workers) and "stranger".
class CoordinatorTest : public ::testing::Test {
 protected:
  explicit CoordinatorTest(uint64_t seed = testing::test_seed()) : world_({.seed = seed}) {}

  void start_coordinator(uint32_t ranks);
  // Connects worker w from host n<w>, up to its assignment.
  void join(uint32_t worker);
  // The same, up to Ready.
  void join_and_be_ready(uint32_t worker);
  // All workers, up to Start.
  void start_job(uint32_t ranks);
  // All workers finish and are told to leave; the job is ok.
  void finish_job();
  // Runs the world until the job is over.
  base::Status outcome();
  bool is_over() const { return process_->outcome().has_value(); }
  // Calls `action` on the coordinator's host, in its turn.
  void on_coordinator(std::function<void(JobCoordinator&)> action);
  void pass(base::Nanos duration) { world_.run_until(world_.now() + duration); }
  std::unique_ptr<Peer> make_peer(const std::string& host) {
    return std::make_unique<Peer>(world_, world_.host(host));
  }

  Journal journal_;
  chaos::SimWorld world_;
  CoordinatorProcess* process_ = nullptr;       // of the world
  std::vector<std::unique_ptr<Peer>> workers_;  // by worker number
};

}  // namespace perdure::runtime::coordinator
