#include "runtime/worker/trainer.h"

#include "base/posix_process.h"
#include "runtime/engine/batch_source.h"
#include "runtime/job/lr_schedule.h"
#include "runtime/worker/skip_limit.h"

namespace perdure::runtime::worker {
namespace {

// Steps of an epoch until everything that is made once has been made: the first builds kernels (and
// that of the job calibrates), the second is the first of its kind.
constexpr uint64_t kWarmupSteps = 2;

// Code, libraries and their start-up memory, measured with an empty job (32 MiB), and the ring of
// reports (8 MiB).
constexpr int64_t kRuntimeBaselineBytes = int64_t{40} << 20;

enum class Part : uint8_t { kTraining, kEvaluation };

class DataBatches : public engine::BatchSource {
 public:
  DataBatches(const data::DataSource& source, Part part) : source_(source), part_(part) {}
  void fill(uint64_t first_sample, int64_t samples, std::span<int32_t> tokens,
            std::span<int32_t> targets) override {
    const data::DataSource::Batch batch{.tokens = tokens, .targets = targets};
    const auto count = static_cast<uint64_t>(samples);
    if (part_ == Part::kTraining) {
      source_.fill(first_sample, count, batch);
    } else {
      source_.fill_evaluation(first_sample, count, batch);
    }
  }

 private:
  const data::DataSource& source_;
  const Part part_;
};

engine::Numerics numerics_of(const job::NumericsConfig& config) {
  return {.mode = config.mode == job::NumericsMode::kExact ? engine::SumMode::kExact
                                                           : engine::SumMode::kFast,
          .width_bits = config.width,
          .block_elements = config.block,
          .grain = config.grain};
}

engine::EngineOptions engine_options(const TrainerOptions& o) {
  const job::OptimizerConfig& optimizer = o.job.optimizer;
  return {.model = o.plan.model,
          .layout = o.plan.layout,
          .schedule = o.plan.schedule,
          .rank = o.rank,
          .batch = o.plan.batch,
          .numerics = numerics_of(o.job.numerics),
          .optimizer = {.beta1 = static_cast<float>(optimizer.beta1),
                        .beta2 = static_cast<float>(optimizer.beta2),
                        .epsilon = static_cast<float>(optimizer.epsilon),
                        .weight_decay = static_cast<float>(optimizer.weight_decay),
                        .clip_norm = optimizer.clip_norm},
          .seed = o.job.run.seed,
          .epoch = o.epoch,
          .timeout = std::chrono::seconds(o.job.run.step_timeout_s),
          .leave = o.leave};
}

class TrainerImpl : public Trainer {
 public:
  TrainerImpl(TrainerOptions options, const TrainerParts& parts,
              std::unique_ptr<engine::StepEngine> engine)
      : o_(std::move(options)),
        engine_(std::move(engine)),
        tensors_(parts.memory.tensors),
        snapshots_(parts.snapshots),
        clock_(parts.clock),
        schedule_(job::make_lr_schedule(o_.job)),
        training_(parts.data, Part::kTraining),
        evaluation_(parts.data, Part::kEvaluation),
        skip_limit_(engine_->skipped_in_a_row()) {}

  base::Result<TrainEnd> run(TrainListener& listener) override {
    const base::Nanos begin = clock_.now();
    const double snapshot_seconds_before = snapshots_.cost().seconds;
    uint64_t faults_at_warmup = 0;
    uint64_t steps_here = 0;
    if (is_evaluation_due(steps())) RETURN_IF_ERROR(run_evaluation(listener));
    while (steps() < o_.job.run.steps) {
      ASSIGN_OR_RETURN(const engine::StepResult result, run_step(listener));
      if (++steps_here == kWarmupSteps) faults_at_warmup = base::process_usage().page_faults;
      if (result.hold) return TrainEnd::kHeld;
      if (is_evaluation_due(steps())) RETURN_IF_ERROR(run_evaluation(listener));
    }
    finished_.compute_seconds = base::to_seconds(clock_.now() - begin);
    const SnapshotKeeper::Cost cost = snapshots_.cost();
    finished_.snapshots_taken = cost.taken;
    finished_.snapshots_skipped = cost.skipped;
    finished_.snapshot_seconds = cost.seconds - snapshot_seconds_before;
    finished_.snapshot_bytes = cost.bytes;
    if (steps_here > kWarmupSteps) {
      finished_.faults_after_warmup = base::process_usage().page_faults - faults_at_warmup;
    }
    ASSIGN_OR_RETURN(const engine::JobDigests digests, engine_->digests());
    finished_.step = engine_->step();
    finished_.state_digest = digests.state;
    finished_.params_digest = digests.params;
    finished_.peak_bytes = base::process_usage().resident_peak_bytes;
    return TrainEnd::kFinished;
  }

  base::Status apply_vote(const recovery::VoteValue& vote, TrainListener& listener) override {
    if (vote.id.epoch != o_.epoch || vote.step != engine_->step().next()) {
      return base::failed_precondition(
          "a vote of epoch " + std::to_string(vote.id.epoch.value()) + " for step " +
          std::to_string(vote.step.value()) + ", here epoch " + std::to_string(o_.epoch.value()) +
          " tried step " + std::to_string(engine_->step().value() + 1));
    }
    const float rate = job::learning_rate(schedule_, steps());
    ASSIGN_OR_RETURN(const engine::StepResult result,
                     engine_->apply_vote(vote.id.attempt, vote.words, rate));
    report(result, rate, 0.0, listener);
    return base::Status::ok();
  }

  recovery::VoteId pending() const override {
    const uint32_t attempt = engine_->pending_attempt();
    return attempt == 0 ? recovery::VoteId{} : recovery::VoteId{o_.epoch, attempt};
  }

  void request_hold() override { engine_->request_hold(); }
  const protocol::Finished& finished() const override { return finished_; }

 private:
  uint64_t steps() const { return engine_->step().value(); }
  bool is_evaluation_due(uint64_t steps_done) const {
    const uint64_t every = o_.job.run.eval_every;
    return every > 0 && steps_done > 0 &&
           (steps_done % every == 0 || steps_done == o_.job.run.steps);
  }

  base::Result<engine::StepResult> run_step(TrainListener& listener) {
    const base::Nanos begin = clock_.now();
    const float rate = job::learning_rate(schedule_, steps());
    ASSIGN_OR_RETURN(const engine::StepResult result, engine_->run_step(training_, rate));
    report(result, rate, base::to_ms(clock_.now() - begin), listener);
    snapshots_.save(tensors_, SnapshotKeeper::Why::kStep);
    RETURN_IF_ERROR(skip_limit_.note(result.step, result.applied));
    return result;
  }

  void report(const engine::StepResult& result, float rate, double step_ms,
              TrainListener& listener) const {
    listener.on_step(
        {.step = result.step,
         .loss = result.loss,
         .grad_norm = result.grad_norm,
         .learning_rate = static_cast<double>(rate),
         .attempts = result.attempts,
         .applied = static_cast<uint8_t>(result.applied == engine::Applied::kYes ? 1 : 0),
         .digest_before = result.digest_before,
         .step_ms = step_ms,
         .epoch = o_.epoch,
         .first_sample = result.first_sample,
         .sample_count = result.sample_count,
         .sample_sum = result.sample_sum});
  }

  base::Status run_evaluation(TrainListener& listener) {
    ASSIGN_OR_RETURN(const double loss, engine_->evaluate(evaluation_, o_.job.run.eval_batches));
    listener.on_evaluation({.step = engine_->step(), .loss = loss});
    return base::Status::ok();
  }

  const TrainerOptions o_;
  const std::unique_ptr<engine::StepEngine> engine_;
  engine::TensorStore& tensors_;
  SnapshotKeeper& snapshots_;
  base::Clock& clock_;
  const job::LrSchedule schedule_;
  DataBatches training_;
  DataBatches evaluation_;
  protocol::Finished finished_;
  SkipLimit skip_limit_;
};

}  // namespace

engine::StoreOptions store_options(const job::JobConfig& job, const job::JobPlan& plan) {
  return {.model = plan.model,
          .compute = plan.batch.compute,
          .numerics = numerics_of(job.numerics),
          .seed = job.run.seed};
}

parallel::WorkerMemory planned_memory(const TrainerOptions& o, const kernels::Device& device) {
  const engine::EngineOptions options = engine_options(o);
  const engine::Numerics& n = options.numerics;
  const bool exact = n.mode == engine::SumMode::kExact;
  parallel::NumericsMemory memory;
  memory.accumulator_bytes_per_element = n.accumulator_bytes();
  memory.block_elements = exact ? n.block_elements : 0;
  memory.grain_bytes_per_element = exact && n.grain > 1 ? 4 : 0;
  memory.snapshot_copies = o.job.checkpoint.memory_every > 0 ? kSnapshotCopies : 0;
  memory.workspace_bytes = static_cast<int64_t>(device.default_workspace_bytes() +
                                                engine::engine_scratch_bytes(options));
  memory.runtime_baseline_bytes = kRuntimeBaselineBytes;
  return parallel::plan_worker_memory(o.plan.model, o.plan.layout, o.plan.schedule, o.rank,
                                      o.plan.batch, memory);
}

base::Result<std::unique_ptr<Trainer>> Trainer::create(TrainerOptions options,
                                                       const TrainerParts& parts) {
  ASSIGN_OR_RETURN(auto engine,
                   engine::StepEngine::create(engine_options(options), parts.memory, parts.fabric));
  return std::unique_ptr<Trainer>(
      std::make_unique<TrainerImpl>(std::move(options), parts, std::move(engine)));
}

}  // namespace perdure::runtime::worker
