#include "runtime/worker/epoch_engine.h"

#include <algorithm>

#include "base/fault_point.h"
#include "base/log.h"
#include "parallel/rank_partners.h"
#include "parallel/schedule_check.h"
#include "parallel/schedule_makers.h"
#include "recovery/epoch_plan.h"
#include "runtime/job/job_data.h"
#include "runtime/worker/committed_state.h"
#include "runtime/worker/epoch_phases.h"
#include "runtime/worker/state_transfer.h"

namespace perdure::runtime::worker {
namespace {

constexpr collective::Timeout kConnectTimeout{30000};

}  // namespace

base::Status FabricSlot::install(std::unique_ptr<collective::MeshFabric> fabric) {
  {
    base::MutexLock lock(mutex_);
    CHECK(fabric_ == nullptr);
    if (aborted_.is_ok()) {
      fabric_ = std::move(fabric);
      return base::Status::ok();
    }
  }
  fabric->close();
  base::MutexLock lock(mutex_);
  return aborted_;
}

collective::MeshFabric* FabricSlot::get() {
  base::MutexLock lock(mutex_);
  return fabric_.get();
}

void FabricSlot::abort(const base::Status& why) {
  base::MutexLock lock(mutex_);
  if (!aborted_.is_ok()) return;
  aborted_ = why;
  if (fabric_ != nullptr) fabric_->abort(why);
}

void FabricSlot::clear() {
  std::unique_ptr<collective::MeshFabric> fabric;
  {
    base::MutexLock lock(mutex_);
    fabric = std::move(fabric_);
    aborted_ = base::Status::ok();
  }
  if (fabric != nullptr) fabric->close();
}

EpochEngine::~EpochEngine() {
  fabric_.clear();
  trainer_.reset();
}

base::Result<std::string> EpochEngine::open(const protocol::JobText& text) {
  if (device_ != nullptr) return base::failed_precondition("the engine is open");
  RETURN_IF_ERROR(job::load_job(text.toml, text.source, text.overrides, &job_));
  services_.fabrics.get_ready(fabric_request());
  ASSIGN_OR_RETURN(job_plan_, job::make_job_plan(job_));
  ASSIGN_OR_RETURN(data_, job::open_job_data(job_));
  ASSIGN_OR_RETURN(device_,
                   services_.make_device(job_.run.device, {.threads = job_.layout.threads}));
  memory_ = std::make_unique<engine::RankMemory>(store_options(job_, job_plan_), *device_);
  services_.snapshots.follow(job_.checkpoint);
  return device_->description();
}

FabricRequest EpochEngine::fabric_request() const {
  return {.transport = job_.run.transport, .network_device = job_.run.network_device};
}

void EpochEngine::abort(const base::Status& why) {
  leave_.store(true, std::memory_order_relaxed);
  fabric_.abort(why);
}

QuietState EpochEngine::leave() {
  FAULT_POINT(kEpochFence);
  fabric_.clear();
  leave_.store(false, std::memory_order_relaxed);
  return quiet_state();
}

QuietState EpochEngine::quiet_state() const {
  QuietState quiet;
  if (memory_ == nullptr || !memory_->tensors.has_state()) return quiet;
  const engine::TensorStore& store = memory_->tensors;
  recovery::StateReport& report = quiet.report;
  report.has_state = 1;
  report.committed = committed_of(store.committed());
  for (const engine::TensorDigest& t : store.digests()) {
    report.tensors.push_back({t.tensor, t.digest});
  }
  if (trainer_ != nullptr) report.pending = trainer_->pending();
  if (store.vote().attempt != 0) {
    report.vote = {store.vote().epoch, store.vote().attempt};
    quiet.vote = {store.committed().step, report.vote, store.vote().words};
  }
  return quiet;
}

base::Status EpochEngine::apply_vote(const recovery::VoteValue& vote, TrainListener& listener) {
  if (trainer_ == nullptr) return base::failed_precondition("nothing is pending: no epoch");
  return trainer_->apply_vote(vote, listener);
}

std::vector<std::string> EpochEngine::restore(const recovery::CommittedState& target,
                                              const std::vector<recovery::TensorDigest>& tensors) {
  if (memory_ == nullptr) return {"the engine is not open"};
  FAULT_POINT(kEpochRestore);
  trainer_.reset();  // a pending step is of no use any more
  engine::TensorStore& store = memory_->tensors;
  store.resume_at(scalars_of(target));
  std::vector<base::TensorId> ids;
  for (const recovery::TensorDigest& wanted : tensors) ids.push_back(wanted.tensor);
  store.drop_staged();
  const base::Status staged = store.stage(ids);
  if (!staged.is_ok()) return {staged.to_string()};
  std::vector<std::string> bad;
  for (const recovery::TensorDigest& wanted : tensors) {
    if (leave_.load(std::memory_order_relaxed)) break;
    base::Status status = services_.snapshots.read(target, store.staged(wanted.tensor));
    if (status.is_ok()) status = store.adopt(wanted.tensor, wanted.digest);
    if (status.is_ok()) continue;
    bad.push_back(job_plan_.model.tensor(wanted.tensor).name + " of step " +
                  std::to_string(target.step.value()) + ": " + status.to_string());
    services_.snapshots.refuse(target, wanted.tensor);
  }
  store.drop_staged();
  return bad;
}

base::Result<TrainerOptions> EpochEngine::check(const recovery::EpochPlan& plan,
                                                base::Rank rank) const {
  if (memory_ == nullptr) return base::failed_precondition("the engine is not open");
  if (plan.epoch <= plan_.epoch) {
    return base::aborted("epoch " + std::to_string(plan.epoch.value()) + " after epoch " +
                         std::to_string(plan_.epoch.value()));
  }
  RETURN_IF_ERROR(recovery::check_shape(job_plan_.model, plan));
  if (rank.value() >= plan.layout.ranks() ||
      plan.layout.micro_batches != job_plan_.layout.micro_batches) {
    return base::invalid_argument("the plan of epoch " + std::to_string(plan.epoch.value()) +
                                  " is not of this job");
  }
  for (const parallel::PipelinePlace& pipeline : plan.layout.pipelines) {
    if (pipeline.micro_batch_begin % job_.numerics.grain != 0) {
      return base::invalid_argument("a pipeline begins within a grain, at micro-batch " +
                                    std::to_string(pipeline.micro_batch_begin));
    }
  }
  if (plan.source == recovery::StateSource::kSeed && plan.resume.step != base::Step(0)) {
    return base::invalid_argument("weights from the seed belong to step 0, not to step " +
                                  std::to_string(plan.resume.step.value()));
  }
  TrainerOptions options{.rank = rank, .epoch = plan.epoch, .job = job_, .plan = job_plan_};
  options.plan.layout = plan.layout;
  options.plan.schedule = parallel::make_schedule_1f1b(job_plan_.model, plan.layout);
  options.leave = &leave_;
  RETURN_IF_ERROR(parallel::check_schedule(job_plan_.model, plan.layout, options.plan.schedule));
  return options;
}

base::Result<protocol::Prepared> EpochEngine::prepare(const recovery::EpochPlan& plan,
                                                      base::Rank rank) {
  base::fault_time.epoch.store(plan.epoch.value(), std::memory_order_relaxed);
  RETURN_IF_ERROR(FAULT_STATUS(kEpochPrepare));
  ASSIGN_OR_RETURN(prepared_, check(plan, rank));
  if (fabric_.get() != nullptr) return base::failed_precondition("the old epoch was not left");
  plan_ = plan;
  trainer_.reset();
  FabricRequest request = fabric_request();
  request.rank = rank;
  request.ranks = plan.layout.ranks();
  request.epoch = plan.epoch;
  ASSIGN_OR_RETURN(auto fabric, services_.fabrics.make(request));
  protocol::Prepared prepared{
      .address = fabric->address(),
      .planned_bytes = static_cast<uint64_t>(planned_memory(*prepared_, *device_).total())};
  RETURN_IF_ERROR(fabric_.install(std::move(fabric)));
  return prepared;
}

base::Result<protocol::Loaded> EpochEngine::load(
    const std::vector<protocol::RankAddress>& addresses) {
  const base::Nanos begin = services_.clock.now();
  collective::MeshFabric* const fabric = fabric_.get();
  if (!prepared_.has_value() || fabric == nullptr) {
    return base::failed_precondition("load without prepare");
  }
  const base::Rank rank = prepared_->rank;
  protocol::Loaded loaded;
  base::Status status = connect(addresses);
  if (status.is_ok()) {
    auto received = fetch_state();
    status = received.status();
    if (received.is_ok()) loaded.bytes_received = received.value();
  }
  if (status.is_ok()) {
    auto trainer =
        Trainer::create(*std::exchange(prepared_, std::nullopt), {.data = *data_,
                                                                  .memory = *memory_,
                                                                  .fabric = *fabric,
                                                                  .snapshots = services_.snapshots,
                                                                  .clock = services_.clock});
    status = trainer.status();
    if (trainer.is_ok()) trainer_ = std::move(trainer).value();
  }
  if (status.is_ok()) status = FAULT_STATUS(kEpochGate);
  if (!status.is_ok()) {
    fabric_.abort(status);  // the others must not wait for this rank
    return status;
  }
  engine::TensorStore& store = memory_->tensors;
  loaded.committed = committed_of(store.committed());
  for (const base::TensorId id : plan_.layout.tensors(job_plan_.model, rank)) {
    loaded.tensors.push_back({id, store.held(id).digest});
  }
  loaded.seconds = base::to_seconds(services_.clock.now() - begin);
  return loaded;
}

// With its partners only: a link to every rank of a large job costs more than all else.
base::Status EpochEngine::connect(const std::vector<protocol::RankAddress>& addresses) {
  std::vector<std::vector<std::byte>> by_rank(plan_.layout.ranks());
  const auto partners = parallel::rank_partners(job_plan_.model, plan_.layout, plan_.moves);
  for (const base::Rank partner : partners[prepared_->rank.value()]) {
    const auto found = std::find_if(addresses.begin(), addresses.end(),
                                    [partner](const auto& a) { return a.rank == partner; });
    if (found == addresses.end() || found->address.empty()) {
      return base::invalid_argument("no address of rank " + std::to_string(partner.value()));
    }
    by_rank[partner.value()] = found->address;
  }
  return fabric_.get()->connect(by_rank, kConnectTimeout);
}

// What this rank lacks, from the others or from the seed.
base::Result<uint64_t> EpochEngine::fetch_state() {
  engine::TensorStore& store = memory_->tensors;
  store.resume_at(scalars_of(plan_.resume));
  ASSIGN_OR_RETURN(const uint64_t received,
                   transfer_state({.moves = plan_.moves,
                                   .timeout = std::chrono::seconds(job_.run.step_timeout_s)},
                                  store, *fabric_.get()));
  if (plan_.source == recovery::StateSource::kSeed) {
    const auto needed = plan_.layout.tensors(job_plan_.model, prepared_->rank);
    RETURN_IF_ERROR(store.add_from_seed(needed, &leave_));
  }
  return received;
}

base::Result<TrainEnd> EpochEngine::run(TrainListener& listener) {
  if (trainer_ == nullptr) return base::failed_precondition("nothing is loaded");
  FAULT_POINT(kEpochGo);
  if (fabric_.get() == nullptr) return base::aborted("the epoch was left");
  services_.fabrics.get_ready(fabric_request());
  services_.snapshots.save(memory_->tensors, SnapshotKeeper::Why::kNewLayout);
  auto end = trainer_->run(listener);
  if (!end.is_ok()) fabric_.abort(end.status());
  return end;
}

}  // namespace perdure::runtime::worker
