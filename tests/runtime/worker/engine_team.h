#pragma once
// Real ThreadedEngines over ranks as threads, and a coordinator in a few lines that takes them
// through epochs.

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/gate.h"
#include "base/mutex.h"
#include "base/posix_clock.h"
#include "runtime/collective/local_fabric.h"
#include "runtime/worker/threaded_engine.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::worker {

// The fabrics of all epochs. A fabric that is closed is gone for the others.
class LocalMeshes final : public FabricMaker {
 public:
  base::Result<std::unique_ptr<collective::MeshFabric>> make(const FabricRequest& request) override;
  void get_ready(const FabricRequest&) override { ++ready_calls; }
  std::atomic<int> ready_calls{0};

 private:
  base::Mutex mutex_;
  std::map<base::Epoch, std::shared_ptr<collective::LocalSwitch>> hubs_ GUARDED_BY(mutex_);
};

struct Member final : EngineListener {
  void on_step(const protocol::StepReport& report) override { steps.push_back(report); }
  void on_evaluation(const protocol::EvaluationReport& report) override {
    evaluations.push_back(report);
  }
  void on_stopped(base::Status why, base::Step committed) override {
    stopped = std::move(why);
    stopped_at = committed;
  }
  void on_finished(const protocol::Finished& report) override { finished = report; }

  std::vector<protocol::StepReport> steps;
  std::vector<protocol::EvaluationReport> evaluations;
  std::optional<base::Status> stopped;
  base::Step stopped_at;
  std::optional<protocol::Finished> finished;
  std::unique_ptr<FabricMaker> fabrics;  // null: the team's meshes
  NoSnapshots none;
  std::unique_ptr<ThreadedEngine> engine;
};

class EngineTeam {
 public:
  // Without a maker of makers, ranks talk as threads.
  using MakeFabrics = std::function<std::unique_ptr<FabricMaker>()>;
  EngineTeam(const std::string& toml, uint32_t count, MakeFabrics make_fabrics = {});
  ~EngineTeam();

  Member& at(uint32_t worker) { return *members_[worker]; }
  LocalMeshes& meshes() { return meshes_; }
  base::Epoch epoch() const { return epoch_; }
  const parallel::ModelSpec& model() const { return model_; }
  void lose(uint32_t worker);  // and start a fresh one in its place
  // Of processes that are started from now on.
  void set_snapshots(std::function<SnapshotKeeper&(uint32_t worker)> of) {
    snapshots_ = std::move(of);
  }

  void run_until(const std::function<bool()>& done) {
    while (!done()) io_.run_one();
  }
  template <typename T>
  T wait(base::Task<T> task) {
    std::optional<T> result;
    CHECK(base::spawn(io_.get_executor(), gate_, base::store_result(std::move(task), result))
              .is_ok());
    run_until([&] { return result.has_value(); });
    return std::move(*result);
  }
  // One task for each worker, at the same time.
  template <typename T>
  std::vector<T> wait_all(const std::vector<uint32_t>& workers,
                          const std::function<base::Task<T>(ThreadedEngine&, base::Rank)>& make) {
    std::vector<std::optional<T>> results(workers.size());
    for (uint32_t r = 0; r < workers.size(); ++r) {
      auto task = make(*at(workers[r]).engine, base::Rank(r));
      CHECK(base::spawn(io_.get_executor(), gate_, base::store_result(std::move(task), results[r]))
                .is_ok());
    }
    std::vector<T> values;
    for (auto& result : results) {
      run_until([&] { return result.has_value(); });
      values.push_back(std::move(*result));
    }
    return values;
  }

  // Fences all of them, and brings those without the newest vote up to it.
  std::vector<recovery::StateReport> settle(const std::vector<uint32_t>& workers);
  recovery::EpochPlan plan(uint32_t pipelines, uint32_t stages,
                           const std::vector<uint32_t>& workers,
                           const std::vector<recovery::StateReport>& held);
  // Prepare and Load of all; checks the gate.
  std::vector<base::Result<protocol::Loaded>> load(const recovery::EpochPlan& plan,
                                                   const std::vector<uint32_t>& workers);
  // The whole change, to Go.
  void change(uint32_t pipelines, uint32_t stages, const std::vector<uint32_t>& workers);

 private:
  const protocol::JobText text_;
  const MakeFabrics make_fabrics_;
  std::function<SnapshotKeeper&(uint32_t)> snapshots_;
  job::JobConfig job_;
  parallel::ModelSpec model_;
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      io_.get_executor()};
  base::PosixClock clock_;
  base::Gate gate_;
  LocalMeshes meshes_;
  base::Epoch epoch_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace perdure::runtime::worker
