#include "runtime/engine/step_engine_impl.h"

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

}  // namespace

StepEngineImpl::StepEngineImpl(EngineOptions options, kernels::Device& device,
                               std::unique_ptr<kernels::Stream> stream,
                               std::unique_ptr<kernels::DeviceBuffer> buffer,
                               collective::Fabric& fabric)
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
  reduce_scratch_.resize(std::max(collective::all_reduce_scratch_bytes(), vote_.bytes().size()));
  for (HeldTensor& t : state_.tensors()) {
    if (o_.layout.speaker(o_.model, t.id) == o_.rank) spoken_.push_back(&t);
  }
  tensor_digests_.resize(o_.model.tensors.size() + 3);
  if (!memory_.scratch().rope_table.is_absent()) {
    ops_.rope_table(*stream_, static_cast<float>(o_.model.config.rope_theta),
                    memory_.scratch().rope_table);
  }
  state_.initialise(ops_, *stream_);
}

base::Result<StepResult> StepEngineImpl::run_step(BatchSource& source, float learning_rate) {
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
                         std::to_string(kAttemptsMax) +
                         " attempts, though each saw the one before");
}

base::Status StepEngineImpl::run_attempt(BatchSource& source) {
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

base::Status StepEngineImpl::reduce(uint32_t index) {
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
  args.op =
      o_.numerics.width_bits == 32 ? collective::ReduceOp::kSumI32 : collective::ReduceOp::kSumI64;
  RETURN_IF_ERROR(collective::all_reduce_ring(fabric_, args));
  args.op = collective::ReduceOp::kMaxF32;
  args.data = bucket.maxima;
  args.channel = Channel::kReduceMax;
  return collective::all_reduce_ring(fabric_, args);
}

base::Status StepEngineImpl::vote() {
  vote_.clear();
  for (HeldTensor* t : spoken_) ops_.gradient_squared_norm(*stream_, t->sink, norm_slot(t->id));
  RETURN_IF_ERROR(stream_->synchronize());
  if (executor_.is_last()) {
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

base::Status StepEngineImpl::exchange_vote() {
  return collective::all_reduce_small(fabric_, {.members = everyone_,
                                                .op = collective::ReduceOp::kSumThenMax,
                                                .data = vote_.bytes(),
                                                .scratch = reduce_scratch_,
                                                .channel = Channel::kVote,
                                                .step = tag_step(),
                                                .timeout = o_.timeout});
}

base::Result<StepResult> StepEngineImpl::commit(double squared_norm, Applied applied,
                                                uint32_t attempts, float learning_rate) {
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
  RETURN_IF_ERROR(stream_->synchronize());  // the digests of the new state are read below
  state_.commit(applied);
  step_ = step_.next();
  samples_consumed_ += samples_per_step();
  result.step = step_;
  return result;
}

void StepEngineImpl::apply(double multiplier, float learning_rate) {
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

uint64_t StepEngineImpl::state_digest() {
  tensor_digests_[0] = step_.value();
  tensor_digests_[1] = samples_consumed_;
  tensor_digests_[2] = applied_steps_;
  for (uint32_t t = 0; t < o_.model.tensors.size(); ++t) {
    tensor_digests_[3 + t] = vote_.digest(base::TensorId(t));
  }
  return base::hash64(std::as_bytes(std::span(tensor_digests_)));
}

size_t engine_bytes(const EngineOptions& options) {
  return ModelState::bytes(state_options(options)) + StageMemory::bytes(memory_options(options)) +
         GradRouter::bytes(options.model, options.layout.stage(options.rank), options.numerics) +
         padded(options.model.tensors.size() * sizeof(double));
}

size_t engine_scratch_bytes(const EngineOptions& options) {
  return StageMemory::scratch_bytes(memory_options(options));
}

base::Result<std::unique_ptr<StepEngine>> StepEngine::create(EngineOptions options,
                                                             kernels::Device& device,
                                                             collective::Fabric& fabric) {
  CHECK_EQ(fabric.rank(), options.rank);
  CHECK_EQ(fabric.ranks(), options.layout.ranks());
  RETURN_IF_ERROR(parallel::check_layout(options.model, options.layout));
  ASSIGN_OR_RETURN(auto stream, device.make_stream());
  ASSIGN_OR_RETURN(auto buffer, device.allocate(engine_bytes(options)));
  return std::unique_ptr<StepEngine>(std::make_unique<StepEngineImpl>(
      std::move(options), device, std::move(stream), std::move(buffer), fabric));
}

}  // namespace perdure::runtime::engine
