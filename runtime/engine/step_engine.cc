#include "runtime/engine/step_engine.h"

#include <algorithm>
#include <cmath>

#include "base/hash.h"
#include "runtime/collective/collectives.h"

namespace perdure::runtime::engine {
namespace {

using collective::Channel;
using kernels::DType;
using kernels::Tensor;
using parallel::Action;
using parallel::Instruction;

ModelStateOptions state_options(const EngineOptions& o) {
  return {.model = &o.model,
          .layout = &o.layout,
          .rank = o.rank,
          .compute = o.batch.compute,
          .numerics = o.numerics,
          .seed = o.seed};
}

bool splits_backward(const parallel::StageSchedule& stage) {
  return std::any_of(stage.instructions.begin(), stage.instructions.end(),
                     [](const Instruction& i) { return i.action == Action::kBackwardWeight; });
}

StageMemoryOptions memory_options(const EngineOptions& o) {
  const parallel::PipelinePlace& pipeline = o.layout.pipeline(o.rank);
  const parallel::StageSchedule& stage = o.schedule.stages[o.rank.value()];
  return {.model = &o.model,
          .place = o.layout.stage(o.rank),
          .batch = o.batch,
          .slots = std::max(1u, stage.stash_slots),
          .micro_batches_max = std::max(1u, pipeline.micro_batch_end - pipeline.micro_batch_begin),
          .splits_backward = splits_backward(stage)};
}

size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

class StepEngineImpl : public StepEngine {
 public:
  StepEngineImpl(EngineOptions options, kernels::Device& device, std::unique_ptr<kernels::Stream> stream,
                 std::unique_ptr<kernels::DeviceBuffer> buffer, collective::Fabric& fabric)
      : o_(std::move(options)),
        ops_(device.ops()),
        stream_(std::move(stream)),
        buffer_(std::move(buffer)),
        carver_(*buffer_),
        fabric_(fabric),
        topology_(parallel::make_topology(o_.model, o_.layout)),
        state_(state_options(o_), carver_),
        memory_(memory_options(o_), carver_),
        router_(o_.model, o_.layout.stage(o_.rank), o_.numerics, state_, carver_),
        norms_(carver_.vector(DType::kF64, static_cast<int64_t>(o_.model.tensors.size()))),
        executor_({.layers = {.ops = ops_,
                              .stream = *stream_,
                              .model = o_.model,
                              .state = state_,
                              .router = router_,
                              .scratch = memory_.scratch(),
                              .batch = o_.batch},
                   .memory = memory_,
                   .router = router_,
                   .place = o_.layout.stage(o_.rank),
                   .topology = topology_.at(o_.rank),
                   .fabric = fabric_,
                   .timeout = o_.timeout}),
        vote_(o_.model.tensors.size()) {
    for (uint32_t r = 0; r < o_.layout.ranks(); ++r) everyone_.push_back(base::Rank(r));
    const bool last = topology_.at(o_.rank).is_last();
    has_loss_ = last;
    reduce_scratch_.resize(std::max(collective::all_reduce_scratch_bytes(), vote_.bytes().size()));
    for (HeldTensor& t : state_.tensors()) {
      if (o_.layout.speaker(o_.model, t.id) == o_.rank) spoken_.push_back(&t);
    }
    tensor_digests_.resize(o_.model.tensors.size() + 3);
    if (!memory_.scratch().rope_table.is_absent()) {
      ops_.rope_table(*stream_, static_cast<float>(o_.model.config.rope_theta), memory_.scratch().rope_table);
    }
    state_.initialise(ops_, *stream_);
  }

  base::Result<StepResult> run_step(BatchSource& source, float learning_rate) override {
    for (uint32_t attempt = 1; attempt <= kAttemptsMax; ++attempt) {
      RETURN_IF_ERROR(run_attempt(source));
      RETURN_IF_ERROR(vote_.check_digests());
      if (vote_.micro_batches() != o_.layout.micro_batches) {
        return base::internal("step " + std::to_string(step_.value()) + ": " +
                              std::to_string(vote_.micro_batches()) + " micro-batches voted, " +
                              std::to_string(o_.layout.micro_batches) + " make a step");
      }
      const double squared = vote_.squared_norm();
      const bool finite = !vote_.not_finite() && std::isfinite(squared);
      if (finite && (vote_.overflow() || vote_.uncalibrated())) {
        state_.recalibrate();
        continue;
      }
      return commit(squared, finite ? Applied::kYes : Applied::kNo, attempt, learning_rate);
    }
    return base::data_loss("step " + std::to_string(step_.value()) + ": gradients did not fit in " +
                           std::to_string(kAttemptsMax) + " attempts, though each saw the one before");
  }

  base::Result<double> evaluate(BatchSource& source, uint32_t batches) override;
  base::Result<JobDigests> digests() override;
  EngineSnapshot save() const override;
  base::Status load(const EngineSnapshot& snapshot) override;

  base::Step step() const override { return step_; }
  uint64_t samples_consumed() const override { return samples_consumed_; }
  size_t allocated_bytes() const override { return buffer_->size_bytes(); }

 private:
  uint64_t samples_per_step() const {
    return uint64_t{o_.layout.micro_batches} * static_cast<uint64_t>(o_.batch.micro_batch);
  }
  double tokens_per_micro_batch() const {
    return static_cast<double>(o_.batch.micro_batch * o_.model.config.context);
  }
  uint32_t tag_step() const { return static_cast<uint32_t>(step_.value()); }

  // Compute, reduce and vote. Changes nothing that is committed.
  base::Status run_attempt(BatchSource& source) {
    const parallel::PipelinePlace& pipeline = o_.layout.pipeline(o_.rank);
    state_.begin_attempt(ops_, *stream_);
    router_.reset(ops_, *stream_);
    executor_.begin({.source = &source,
                     .first_sample = samples_consumed_,
                     .step = tag_step(),
                     .micro_batch_begin = pipeline.micro_batch_begin});
    for (const Instruction& i : o_.schedule.stages[o_.rank.value()].instructions) {
      if (i.action == Action::kReduce) {
        RETURN_IF_ERROR(reduce(i.index));
      } else if (i.action == Action::kVote) {
        RETURN_IF_ERROR(executor_.finish());
        RETURN_IF_ERROR(vote());
      } else if (i.action != Action::kApply) {
        RETURN_IF_ERROR(executor_.run(i));
      }
    }
    return base::Status::ok();
  }

  base::Status reduce(uint32_t index) {
    const Bucket& bucket = state_.buckets()[index];
    if (bucket.holders.size() <= 1) return base::Status::ok();
    RETURN_IF_ERROR(stream_->synchronize());
    const bool exact = o_.numerics.mode == SumMode::kExact;
    collective::AllReduceArgs args{.members = bucket.holders,
                                   .data = bucket.accumulators,
                                   .scratch = reduce_scratch_,
                                   .step = tag_step(),
                                   .index = topology_.at(o_.rank).buckets[index],
                                   .timeout = o_.timeout};
    if (!exact) {
      args.op = collective::ReduceOp::kSumF32;
      return collective::all_reduce_ring(fabric_, args);
    }
    args.op = o_.numerics.width_bits == 32 ? collective::ReduceOp::kSumI32 : collective::ReduceOp::kSumI64;
    RETURN_IF_ERROR(collective::all_reduce_ring(fabric_, args));
    args.op = collective::ReduceOp::kMaxF32;
    args.data = bucket.maxima;
    args.channel = Channel::kReduceMax;
    return collective::all_reduce_ring(fabric_, args);
  }

  base::Status vote() {
    vote_.clear();
    for (HeldTensor* t : spoken_) ops_.gradient_squared_norm(*stream_, t->sink, norm_slot(t->id));
    RETURN_IF_ERROR(stream_->synchronize());
    if (has_loss_) {
      const parallel::PipelinePlace& pipeline = o_.layout.pipeline(o_.rank);
      for (uint32_t i = 0; i < pipeline.micro_batch_end - pipeline.micro_batch_begin; ++i) {
        vote_.add_loss(*memory_.loss(i).as<double>());
      }
    }
    for (HeldTensor* t : spoken_) vote_.set_squared_norm(t->id, *norm_slot(t->id).as<double>());
    for (const HeldTensor& t : state_.tensors()) vote_.set_digest(t.id, t.digest);
    vote_.raise_flags(state_.flags());
    if (state_.calibration() == Calibration::kPending) vote_.raise_uncalibrated();
    return exchange_vote();
  }

  base::Status exchange_vote() {
    return collective::all_reduce_small(fabric_, {.members = everyone_,
                                                  .op = collective::ReduceOp::kSumThenMax,
                                                  .data = vote_.bytes(),
                                                  .scratch = reduce_scratch_,
                                                  .channel = Channel::kVote,
                                                  .step = tag_step(),
                                                  .timeout = o_.timeout});
  }

  Tensor norm_slot(base::TensorId id) const {
    return Tensor::vector(norms_.as<double>() + id.value(), DType::kF64, 1);
  }

  base::Result<StepResult> commit(double squared_norm, Applied applied, uint32_t attempts, float learning_rate) {
    StepResult result;
    const double micro_batches = o_.layout.micro_batches;
    result.loss = vote_.loss_sum() / (micro_batches * tokens_per_micro_batch());
    result.grad_norm = std::sqrt(squared_norm) / micro_batches;
    result.attempts = attempts;
    result.applied = applied;
    result.digest_before = state_digest();
    if (applied == Applied::kYes) {
      ++applied_steps_;
      const double clip = o_.optimizer.clip_norm;
      const double factor = clip > 0.0 && result.grad_norm > clip ? clip / result.grad_norm : 1.0;
      apply(factor / micro_batches, learning_rate);
    }
    state_.commit(applied);
    step_ = step_.next();
    samples_consumed_ += samples_per_step();
    result.step = step_;
    return result;
  }

  void apply(double multiplier, float learning_rate) {
    const double steps = static_cast<double>(applied_steps_);
    kernels::AdamwArgs args;
    args.gradient_multiplier = multiplier;
    args.lr = learning_rate;
    args.beta1 = o_.optimizer.beta1;
    args.beta2 = o_.optimizer.beta2;
    args.epsilon = o_.optimizer.epsilon;
    args.correction1 = static_cast<float>(1.0 - std::pow(static_cast<double>(args.beta1), steps));
    args.correction2 = static_cast<float>(1.0 - std::pow(static_cast<double>(args.beta2), steps));
    for (HeldTensor& t : state_.tensors()) {
      args.param = t.param;
      args.m = t.m;
      args.v = t.v;
      args.param_low = t.low;
      args.gradient = t.sink;
      args.decay = t.spec->decay == parallel::Decay::kYes ? o_.optimizer.weight_decay : 0.0f;
      args.digests = t.chunk_digests;
      ops_.adamw(*stream_, args);
    }
  }

  // Of the state before the step whose vote has just been read.
  uint64_t state_digest() {
    tensor_digests_[0] = step_.value();
    tensor_digests_[1] = samples_consumed_;
    tensor_digests_[2] = applied_steps_;
    for (uint32_t t = 0; t < o_.model.tensors.size(); ++t) {
      tensor_digests_[3 + t] = vote_.digest(base::TensorId(t));
    }
    return base::hash64(std::as_bytes(std::span(tensor_digests_)));
  }

  base::Status run_evaluation(BatchSource& source, uint32_t batches);

  const EngineOptions o_;
  kernels::Ops& ops_;
  std::unique_ptr<kernels::Stream> stream_;
  std::unique_ptr<kernels::DeviceBuffer> buffer_;
  MemoryCarver carver_;
  collective::Fabric& fabric_;
  const parallel::JobTopology topology_;
  ModelState state_;
  StageMemory memory_;
  GradRouter router_;
  Tensor norms_;  // f64 [tensors of the model]
  StageExecutor executor_;
  Vote vote_;
  std::vector<base::Rank> everyone_;
  std::vector<std::byte> reduce_scratch_;
  std::vector<HeldTensor*> spoken_;       // for which this rank speaks in the vote
  std::vector<uint64_t> tensor_digests_;
  bool has_loss_ = false;

  base::Step step_;
  uint64_t samples_consumed_ = 0;
  uint64_t applied_steps_ = 0;
};

// Forward only, micro-batch i on pipeline i % pipelines, one slot: what is sent is waited for before the next.
base::Status StepEngineImpl::run_evaluation(BatchSource& source, uint32_t batches) {
  const auto pipelines = static_cast<uint32_t>(o_.layout.pipelines.size());
  const uint32_t mine = o_.layout.place(o_.rank).pipeline.value();
  const parallel::RankTopology& topology = topology_.at(o_.rank);
  constexpr uint32_t kEvaluationTags = 1u << 19;
  for (uint32_t i = mine; i < batches; i += pipelines) {
    executor_.begin({.source = &source,
                     .step = tag_step(),
                     .tag_offset = kEvaluationTags,
                     .micro_batch_begin = i});
    Instruction instruction{.micro_batch = base::MicroBatch(i)};
    const auto run = [&](Action action) {
      instruction.action = action;
      return executor_.run(instruction);
    };
    if (!topology.is_first()) RETURN_IF_ERROR(run(Action::kReceiveActivation));
    RETURN_IF_ERROR(run(Action::kForward));
    if (!topology.is_last()) {
      RETURN_IF_ERROR(run(Action::kSendActivation));
    } else {
      executor_.loss_only(instruction);
      RETURN_IF_ERROR(stream_->synchronize());
      vote_.add_loss(*memory_.loss(0).as<double>());
    }
  }
  return executor_.finish();
}

base::Result<double> StepEngineImpl::evaluate(BatchSource& source, uint32_t batches) {
  CHECK_GT(batches, 0u);
  vote_.clear();
  RETURN_IF_ERROR(run_evaluation(source, batches));
  RETURN_IF_ERROR(exchange_vote());
  return vote_.loss_sum() / (batches * tokens_per_micro_batch());
}

base::Result<JobDigests> StepEngineImpl::digests() {
  JobDigests result;
  vote_.clear();
  for (const HeldTensor& t : state_.tensors()) vote_.set_digest(t.id, state_.params_digest(t));
  RETURN_IF_ERROR(exchange_vote());
  RETURN_IF_ERROR(vote_.check_digests());
  std::vector<uint64_t> params;
  for (uint32_t t = 0; t < o_.model.tensors.size(); ++t) params.push_back(vote_.digest(base::TensorId(t)));
  result.params = base::hash64(std::as_bytes(std::span(params)));
  vote_.clear();
  for (const HeldTensor& t : state_.tensors()) vote_.set_digest(t.id, t.digest);
  RETURN_IF_ERROR(exchange_vote());
  RETURN_IF_ERROR(vote_.check_digests());
  result.state = state_digest();
  return result;
}

EngineSnapshot StepEngineImpl::save() const {
  EngineSnapshot snapshot{.step = step_,
                          .samples_consumed = samples_consumed_,
                          .applied_steps = applied_steps_,
                          .calibrated = state_.calibration() == Calibration::kDone};
  for (const HeldTensor& t : state_.tensors()) {
    TensorSnapshot& copy = snapshot.tensors[t.spec->name];
    const auto count = static_cast<size_t>(t.sink.elements);
    copy.param.assign(t.param.as<float>(), t.param.as<float>() + count);
    copy.m.assign(t.m.as<float>(), t.m.as<float>() + count);
    copy.v.assign(t.v.as<float>(), t.v.as<float>() + count);
    copy.exponents.assign(t.scale.exponents.begin(), t.scale.exponents.end());
    copy.tracked.assign(t.scale.tracked.begin(), t.scale.tracked.end());
  }
  return snapshot;
}

base::Status StepEngineImpl::load(const EngineSnapshot& snapshot) {
  for (const HeldTensor& t : state_.tensors()) {  // all of it is checked before any of it is used
    const auto found = snapshot.tensors.find(t.spec->name);
    if (found == snapshot.tensors.end()) return base::invalid_argument("snapshot lacks " + t.spec->name);
    const TensorSnapshot& copy = found->second;
    const auto count = static_cast<size_t>(t.sink.elements);
    if (copy.param.size() != count || copy.m.size() != count || copy.v.size() != count ||
        copy.exponents.size() != t.scale.exponents.size() || copy.tracked.size() != t.scale.tracked.size()) {
      return base::invalid_argument("snapshot of " + t.spec->name + " is of another model or other numerics");
    }
  }
  for (HeldTensor& t : state_.tensors()) {
    const TensorSnapshot& copy = snapshot.tensors.at(t.spec->name);
    std::copy(copy.param.begin(), copy.param.end(), t.param.as<float>());
    std::copy(copy.m.begin(), copy.m.end(), t.m.as<float>());
    std::copy(copy.v.begin(), copy.v.end(), t.v.as<float>());
    std::copy(copy.exponents.begin(), copy.exponents.end(), t.scale.exponents.begin());
    std::copy(copy.tracked.begin(), copy.tracked.end(), t.scale.tracked.begin());
  }
  step_ = snapshot.step;
  samples_consumed_ = snapshot.samples_consumed;
  applied_steps_ = snapshot.applied_steps;
  state_.set_calibration(snapshot.calibrated ? Calibration::kDone : Calibration::kPending);
  state_.refresh(ops_, *stream_);
  return stream_->synchronize();
}

}  // namespace

size_t engine_bytes(const EngineOptions& options) {
  return ModelState::bytes(state_options(options)) + StageMemory::bytes(memory_options(options)) +
         GradRouter::bytes(options.model, options.layout.stage(options.rank), options.numerics) +
         padded(options.model.tensors.size() * sizeof(double));
}

size_t engine_scratch_bytes(const EngineOptions& options) {
  return StageMemory::scratch_bytes(memory_options(options));
}

base::Result<std::unique_ptr<StepEngine>> StepEngine::create(EngineOptions options, kernels::Device& device,
                                                             collective::Fabric& fabric) {
  CHECK_EQ(fabric.rank(), options.rank);
  CHECK_EQ(fabric.ranks(), options.layout.ranks());
  RETURN_IF_ERROR(parallel::check_layout(options.model, options.layout));
  ASSIGN_OR_RETURN(auto stream, device.make_stream());
  ASSIGN_OR_RETURN(auto buffer, device.allocate(engine_bytes(options)));
  return std::unique_ptr<StepEngine>(std::make_unique<StepEngineImpl>(std::move(options), device, std::move(stream),
                                                                      std::move(buffer), fabric));
}

}  // namespace perdure::runtime::engine
