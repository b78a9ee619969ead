#include "runtime/worker/threaded_engine.h"

#include "base/fault_point.h"
#include "base/waiter.h"

namespace perdure::runtime::worker {

// Called on the engine thread; hands the reports to the component.
class ThreadedEngine::Reporter final : public TrainListener {
 public:
  explicit Reporter(ThreadedEngine& driver) : driver_(driver) {}
  void on_step(const protocol::StepReport& report) override {
    driver_.tell([report](ThreadedEngine& driver) { driver.add_report(report); });
  }
  void on_evaluation(const protocol::EvaluationReport& report) override {
    driver_.tell([report](ThreadedEngine& driver) { driver.listener_->on_evaluation(report); });
  }

 private:
  ThreadedEngine& driver_;
};

ThreadedEngine::ThreadedEngine(const EngineServices& services, base::Executor executor)
    : executor_(std::move(executor)), link_(std::make_shared<Link>(Link{this})), core_(services) {}

ThreadedEngine::~ThreadedEngine() {
  core_.abort(base::cancelled("the engine is closed"));
  thread_.join();
  link_->driver = nullptr;
}

// The waiter is shared with what is posted: the coroutine may be destroyed while it waits.
template <typename T>
base::Task<T> ThreadedEngine::call(base::UniqueFunction<T()> work) {
  auto waiter = std::make_shared<base::Waiter<T>>();
  const bool is_posted = thread_.post([this, waiter, work = std::move(work)]() mutable {
    auto result = std::make_unique<T>(work());
    base::post(executor_,
               [waiter, result = std::move(result)] { waiter->complete(std::move(*result)); });
  });
  if (!is_posted) {
    if constexpr (std::is_constructible_v<T, base::Status>) {
      co_return T(base::cancelled("the engine is closed"));
    } else {
      co_return T();
    }
  }
  co_return co_await waiter->wait();
}

void ThreadedEngine::tell(base::UniqueFunction<void(ThreadedEngine&)> what) {
  base::post(executor_, [link = link_, what = std::move(what)]() mutable {
    if (link->driver != nullptr) what(*link->driver);
  });
}

base::Task<base::Result<std::string>> ThreadedEngine::open(protocol::JobText job) {
  CHECK(listener_ != nullptr) << "nobody listens";
  CO_ASSIGN_OR_RETURN(const base::MutableByteSpan memory,
                      core_.report_memory(ReportRing::bytes_for(kReportsMax)));
  if (memory.empty()) {
    CO_ASSIGN_OR_RETURN(reports_, ReportRing::make());
  } else {
    reports_ = ReportRing::attach(memory);
  }
  base::UniqueFunction<base::Result<std::string>()> work = [this, job] { return core_.open(job); };
  co_return co_await call(std::move(work));
}

base::Task<recovery::StateReport> ThreadedEngine::fence(base::Epoch epoch) {
  phase_ = Phase::kIdle;
  ++leaves_;
  base::fault_time.epoch.store(epoch.value(), std::memory_order_relaxed);
  core_.abort(base::aborted("fenced for epoch " + std::to_string(epoch.value())));
  base::UniqueFunction<QuietState()> work = [this] { return core_.leave(); };
  quiet_ = co_await call(std::move(work));
  co_return quiet_.report;
}

base::Result<recovery::VoteValue> ThreadedEngine::vote() const {
  if (quiet_.vote.id.epoch == base::Epoch(0)) {
    return base::not_found("no vote of step " +
                           std::to_string(quiet_.report.committed.step.value()) + " is here");
  }
  return quiet_.vote;
}

base::Task<base::Status> ThreadedEngine::apply_vote(recovery::VoteValue vote) {
  if (phase_ != Phase::kIdle) co_return base::failed_precondition("the engine is in an epoch");
  struct Answer {
    base::Status status;
    QuietState quiet;
  };
  base::UniqueFunction<std::unique_ptr<Answer>()> work = [this, vote] {
    Reporter reporter(*this);
    auto answer = std::make_unique<Answer>();
    answer->status = core_.apply_vote(vote, reporter);
    answer->quiet = core_.quiet_state();
    return answer;
  };
  const std::unique_ptr<Answer> answer = co_await call(std::move(work));
  if (answer == nullptr) co_return base::cancelled("the engine is closed");
  quiet_ = std::move(answer->quiet);
  co_return answer->status;
}

base::Task<std::vector<recovery::StateOffer>> ThreadedEngine::offers() {
  base::UniqueFunction<std::vector<recovery::StateOffer>()> work = [this] {
    return core_.offers();
  };
  co_return co_await call(std::move(work));
}

base::Task<EngineDriver::Restored> ThreadedEngine::restore(
    recovery::CommittedState target, std::vector<recovery::TensorDigest> tensors) {
  if (phase_ != Phase::kIdle) co_return Restored{quiet_.report, {"the engine is in an epoch"}};
  struct Answer {
    std::vector<std::string> bad;
    QuietState quiet;
  };
  base::UniqueFunction<std::unique_ptr<Answer>()> work = [this, target,
                                                          tensors = std::move(tensors)] {
    auto bad = core_.restore(target, tensors);
    return std::make_unique<Answer>(Answer{std::move(bad), core_.quiet_state()});
  };
  const std::unique_ptr<Answer> answer = co_await call(std::move(work));
  if (answer == nullptr) co_return Restored{quiet_.report, {"the engine is closed"}};
  quiet_ = std::move(answer->quiet);
  reports_->truncate(quiet_.report.committed.step);
  co_return Restored{quiet_.report, std::move(answer->bad)};
}

base::Task<base::Result<protocol::Prepared>> ThreadedEngine::prepare(recovery::EpochPlan plan,
                                                                     base::Rank rank) {
  if (phase_ != Phase::kIdle) co_return base::failed_precondition("the engine is in an epoch");
  base::UniqueFunction<base::Result<protocol::Prepared>()> work =
      [this, plan = std::move(plan), rank] { return core_.prepare(plan, rank); };
  co_return co_await call(std::move(work));
}

base::Task<base::Result<protocol::Loaded>> ThreadedEngine::load(
    std::vector<protocol::RankAddress> addresses) {
  if (phase_ != Phase::kIdle) co_return base::failed_precondition("the engine is in an epoch");
  struct Answer {
    base::Result<protocol::Loaded> loaded;
    QuietState quiet;
  };
  base::UniqueFunction<std::unique_ptr<Answer>()> work = [this, addresses = std::move(addresses)] {
    auto loaded = core_.load(addresses);
    return std::make_unique<Answer>(Answer{std::move(loaded), core_.quiet_state()});
  };
  const uint64_t leaves = leaves_;
  const std::unique_ptr<Answer> answer = co_await call(std::move(work));
  if (answer == nullptr) co_return base::cancelled("the engine is closed");
  quiet_ = std::move(answer->quiet);
  if (leaves != leaves_) co_return base::aborted("the epoch was left while it was being loaded");
  if (answer->loaded.is_ok()) {
    phase_ = Phase::kLoaded;
    reports_->truncate(quiet_.report.committed.step);
  }
  co_return std::move(answer->loaded);
}

base::Status ThreadedEngine::go() {
  if (phase_ != Phase::kLoaded) return base::failed_precondition("nothing is loaded");
  phase_ = Phase::kRunning;
  if (!thread_.post([this] { train(); })) return base::cancelled("the engine is closed");
  return base::Status::ok();
}

void ThreadedEngine::train() {
  Reporter reporter(*this);
  auto end = core_.run(reporter);
  auto quiet = std::make_unique<QuietState>(core_.quiet_state());
  if (end.is_ok() && end.value() == TrainEnd::kFinished) {
    auto finished = std::make_unique<protocol::Finished>(core_.finished());
    tell([quiet = std::move(quiet), finished = std::move(finished)](ThreadedEngine& driver) {
      if (driver.phase_ != Phase::kRunning) return;
      driver.phase_ = Phase::kIdle;
      driver.quiet_ = std::move(*quiet);
      driver.listener_->on_finished(*finished);
    });
    return;
  }
  tell([quiet = std::move(quiet), why = end.status()](ThreadedEngine& driver) mutable {
    driver.stopped(std::move(why), std::move(*quiet));
  });
}

// Not when a fence or an abort has ended the run: whoever asked for it knows.
void ThreadedEngine::stopped(base::Status why, QuietState quiet) {
  if (phase_ != Phase::kRunning) return;
  phase_ = Phase::kIdle;
  quiet_ = std::move(quiet);
  listener_->on_stopped(std::move(why), quiet_.report.committed.step);
}

void ThreadedEngine::add_report(const protocol::StepReport& report) {
  reports_->add(report);
  listener_->on_step(report);
}

void ThreadedEngine::hold() {
  if (phase_ != Phase::kIdle) core_.request_hold();
}

void ThreadedEngine::abort(const base::Status& why) {
  phase_ = Phase::kIdle;
  ++leaves_;
  core_.abort(why);
}

std::vector<protocol::StepReport> ThreadedEngine::reports(base::Step after) const {
  return reports_.has_value() ? reports_->after(after) : std::vector<protocol::StepReport>();
}

base::Task<void> ThreadedEngine::close() {
  if (std::exchange(is_closed_, true)) co_return;
  phase_ = Phase::kIdle;
  core_.abort(base::cancelled("the engine is closed"));
  base::UniqueFunction<bool()> work = [] { return true; };
  co_await call(std::move(work));  // not blocking this thread while the engine leaves its step
  thread_.join();
}

}  // namespace perdure::runtime::worker
