#pragma once
// JobCoordinator: the control side of one job. It lets the workers in, tells each its rank and
// everybody's address, passes on what they report and ends the job when all have finished. It is
// not on the step path: between Start and Finished a worker needs nothing from it.
//
// Threads: the component's. `run` returns when the job is over; close the listener's network after
// it.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/condition.h"
#include "base/gate.h"
#include "base/network.h"
#include "runtime/rpc/job_messages.h"
#include "runtime/rpc/message_channel.h"

namespace perdure::runtime::coordinator {

// What happens in a job, in order. Called on the component's thread; must not block for long.
class JobObserver {
 public:
  virtual ~JobObserver() = default;
  virtual void on_ready(base::Rank rank, const rpc::Ready& ready) = 0;
  virtual void on_start() = 0;
  virtual void on_step(const rpc::StepReport& report) = 0;
  virtual void on_evaluation(const rpc::EvaluationReport& report) = 0;
  virtual void on_finished(base::Rank rank, const rpc::Finished& finished) = 0;
};

// How a worker's process came to its end. One that exits by itself has mostly been hit by another's
// death.
enum class WorkerEnd : uint8_t { kExited, kKilled };

struct CoordinatorOptions {
  uint32_t ranks = 1;
  std::string job_token;
  std::string job_toml;
  std::string job_source;
  std::vector<std::string> overrides;
  base::Nanos join_timeout = std::chrono::seconds(60);  // until every worker is ready
};

class JobCoordinator {
 public:
  JobCoordinator(const CoordinatorOptions& options, std::unique_ptr<base::Listener> listener,
                 base::Clock& clock, const base::Executor& executor, JobObserver& observer);

  // Ok when every rank finished. Otherwise why the job failed: the most telling of what was
  // reported within a moment of the first sign, since one death makes many errors.
  base::Task<base::Status> run();

  // The process of a worker ended, as its agent says. After Finished that is no failure.
  void worker_ended(base::WorkerId worker, WorkerEnd end, const std::string& how);
  // Ends the job from outside (a signal). `why` is then how it ended, whatever workers say of it.
  void stop(base::Status why);

 private:
  struct Member {
    std::unique_ptr<rpc::MessageChannel> channel;
    bool taken = false;  // by a worker that is here or is just let in
    bool ready = false;
    bool finished = false;
    rpc::Ready ready_message;
  };

  base::Task<void> accept_loop();
  base::Task<void> serve(std::unique_ptr<base::Channel> channel);
  base::Task<base::Status> admit(rpc::MessageChannel& channel, base::Rank& rank);
  base::Task<base::Status> follow(base::Rank rank);
  bool is_in_order(const Member& member, rpc::MessageType type) const;
  base::Status handle(base::Rank rank, const rpc::Frame& frame);
  base::Task<void> broadcast_start();
  base::Task<void> say_goodbye();
  base::Task<void> watch_join();
  template <typename Message>
  base::Task<base::Status> send(rpc::MessageChannel& channel, const Message& message);
  void fail(base::Status why);
  bool all(bool Member::*flag) const;

  const CoordinatorOptions options_;
  std::unique_ptr<base::Listener> listener_;
  base::Clock& clock_;
  const base::Executor executor_;
  JobObserver& observer_;
  base::Gate gate_;
  base::Condition changed_;
  std::vector<Member> members_;                 // by rank; rank r is worker r
  std::vector<rpc::MessageChannel*> arriving_;  // not yet let in; each in the frame of its serve()
  base::Status failure_;                        // ok while none
  bool started_ = false;
  bool stopped_ = false;  // failure_ is what stop() was given
  bool over_ = false;     // nobody is let in any more
};

}  // namespace perdure::runtime::coordinator
