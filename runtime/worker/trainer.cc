#include "runtime/worker/trainer.h"

#include "base/posix_process.h"
#include "runtime/engine/batch_source.h"
#include "runtime/job/job_data.h"
#include "runtime/job/lr_schedule.h"
#include "runtime/worker/skip_limit.h"

namespace perdure::runtime::worker {
namespace {

// Steps until everything that is made once has been made: the first step calibrates and builds
// kernels, the second is the first of its kind.
constexpr uint64_t kWarmupSteps = 2;

// Code, libraries and their start-up memory; measured with an empty job.
constexpr int64_t kRuntimeBaselineBytes = int64_t{32} << 20;

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
          .timeout = std::chrono::seconds(o.job.run.step_timeout_s)};
}

class TrainerImpl : public Trainer {
 public:
  TrainerImpl(TrainerOptions options, data::DataSource source,
              std::unique_ptr<engine::StepEngine> engine, base::Clock& clock)
      : o_(std::move(options)),
        source_(std::move(source)),
        engine_(std::move(engine)),
        clock_(clock),
        training_(source_, Part::kTraining),
        evaluation_(source_, Part::kEvaluation) {}

  base::Status run(TrainListener& listener) override {
    const job::LrSchedule schedule = job::make_lr_schedule(o_.job);
    const base::Nanos begin = clock_.now();
    for (uint64_t index = engine_->step().value(); index < o_.job.run.steps; ++index) {
      RETURN_IF_ERROR(run_step(job::learning_rate(schedule, index), listener));
      if (is_evaluation_due(index + 1)) RETURN_IF_ERROR(run_evaluation(listener));
    }
    finished_.compute_seconds = base::to_seconds(clock_.now() - begin);
    if (engine_->step().value() > kWarmupSteps) {
      finished_.faults_after_warmup = base::process_usage().page_faults - faults_at_warmup_;
    }
    ASSIGN_OR_RETURN(const engine::JobDigests digests, engine_->digests());
    finished_.step = engine_->step();
    finished_.state_digest = digests.state;
    finished_.params_digest = digests.params;
    finished_.peak_bytes = base::process_usage().resident_peak_bytes;
    return base::Status::ok();
  }

  rpc::Finished finished() const override { return finished_; }

 private:
  bool is_evaluation_due(uint64_t steps_done) const {
    const uint64_t every = o_.job.run.eval_every;
    return every > 0 && (steps_done % every == 0 || steps_done == o_.job.run.steps);
  }

  base::Status run_step(float learning_rate, TrainListener& listener) {
    const base::Nanos begin = clock_.now();
    ASSIGN_OR_RETURN(const engine::StepResult result, engine_->run_step(training_, learning_rate));
    if (result.step.value() == kWarmupSteps) faults_at_warmup_ = base::process_usage().page_faults;
    if (o_.rank == base::Rank(0)) {
      listener.on_step(
          {.step = result.step,
           .loss = result.loss,
           .grad_norm = result.grad_norm,
           .learning_rate = static_cast<double>(learning_rate),
           .attempts = result.attempts,
           .applied = static_cast<uint8_t>(result.applied == engine::Applied::kYes ? 1 : 0),
           .digest_before = result.digest_before,
           .step_ms = base::to_ms(clock_.now() - begin)});
    }
    return skip_limit_.note(result.step, result.applied);
  }

  base::Status run_evaluation(TrainListener& listener) {
    ASSIGN_OR_RETURN(const double loss, engine_->evaluate(evaluation_, o_.job.run.eval_batches));
    if (o_.rank == base::Rank(0)) listener.on_evaluation({.step = engine_->step(), .loss = loss});
    return base::Status::ok();
  }

  const TrainerOptions o_;
  const data::DataSource source_;
  const std::unique_ptr<engine::StepEngine> engine_;
  base::Clock& clock_;
  DataBatches training_;
  DataBatches evaluation_;
  rpc::Finished finished_;
  uint64_t faults_at_warmup_ = 0;
  SkipLimit skip_limit_;
};

}  // namespace

parallel::WorkerMemory planned_memory(const TrainerOptions& o, const kernels::Device& device) {
  const engine::EngineOptions options = engine_options(o);
  const engine::Numerics& n = options.numerics;
  const bool exact = n.mode == engine::SumMode::kExact;
  parallel::NumericsMemory memory;
  memory.accumulator_bytes_per_element = n.accumulator_bytes();
  memory.block_elements = exact ? n.block_elements : 0;
  memory.grain_bytes_per_element = exact && n.grain > 1 ? 4 : 0;
  memory.workspace_bytes = static_cast<int64_t>(device.default_workspace_bytes() +
                                                engine::engine_scratch_bytes(options));
  memory.runtime_baseline_bytes = kRuntimeBaselineBytes;
  return parallel::plan_worker_memory(o.plan.model, o.plan.layout, o.plan.schedule, o.rank,
                                      o.plan.batch, memory);
}

base::Result<std::unique_ptr<Trainer>> Trainer::create(TrainerOptions options,
                                                       kernels::Device& device,
                                                       collective::Fabric& fabric,
                                                       base::Clock& clock) {
  ASSIGN_OR_RETURN(data::DataSource source, job::open_job_data(options.job));
  ASSIGN_OR_RETURN(auto engine,
                   engine::StepEngine::create(engine_options(options), device, fabric));
  return std::unique_ptr<Trainer>(std::make_unique<TrainerImpl>(
      std::move(options), std::move(source), std::move(engine), clock));
}

}  // namespace perdure::runtime::worker
