#include "runtime/engine/step_engine_impl.h"

#include <algorithm>

#include "base/fault_point.h"
#include "runtime/collective/collectives.h"
#include "runtime/engine/step_phases.h"

namespace perdure::runtime::engine {
namespace {

using collective::Channel;
using kernels::DType;
using kernels::Tensor;
using parallel::Action;
using parallel::Instruction;

ModelStateOptions state_options(const EngineOptions& o) {
  return {.model = &o.model, .layout = &o.layout, .rank = o.rank, .numerics = o.numerics};
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

size_t step_bytes(const EngineOptions& options) {
  return ModelState::bytes(state_options(options)) + StageMemory::bytes(memory_options(options)) +
         GradRouter::bytes(options.model, options.layout.stage(options.rank), options.numerics) +
         padded(options.model.tensors.size() * sizeof(double));
}

}  // namespace

StepEngineImpl::StepEngineImpl(EngineOptions options, std::unique_ptr<RankMemory> own,
                               RankMemory& rank_memory, std::unique_ptr<kernels::Stream> stream,
                               kernels::DeviceBuffer& buffer, collective::Fabric& fabric)
    : o_(std::move(options)),
      own_memory_(std::move(own)),
      rank_memory_(rank_memory),
      store_(rank_memory.tensors),
      ops_(rank_memory.tensors.device().ops()),
      stream_(std::move(stream)),
      carver_(buffer),
      fabric_(fabric),
      topology_(parallel::make_topology(o_.model, o_.layout)),
      state_(state_options(o_), store_, carver_),
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
}

base::Result<StepResult> StepEngineImpl::run_step(BatchSource& source, float learning_rate) {
  base::fault_time.step.store(step().value() + 1, std::memory_order_relaxed);
  pending_ = 0;
  base::Status status = FAULT_STATUS(kStepBegin);
  if (!status.is_ok()) return give_up(std::move(status));
  state_.begin_step();
  for (attempt_ = 1; attempt_ <= kAttemptsMax; ++attempt_) {
    status = run_attempt(source);
    if (!status.is_ok()) return give_up(std::move(status));
    pending_ = 0;  // the result is there
    const base::Result<Verdict> verdict = judge();
    if (!verdict.is_ok()) return give_up(verdict.status());
    if (verdict.value() != Verdict::kAgain) {
      return commit(verdict.value(), attempt_, learning_rate);
    }
    state_.recalibrate();
  }
  return give_up(base::data_loss("step " + std::to_string(step().value()) +
                                 ": gradients did not fit in " + std::to_string(kAttemptsMax) +
                                 " attempts, though each saw the one before"));
}

base::Status StepEngineImpl::give_up(base::Status why) {
  fabric_.abort(why);
  static_cast<void>(executor_.finish());  // its errors are those of the abort
  return why;
}

base::Status StepEngineImpl::check_left() const {
  const bool is_left = o_.leave != nullptr && o_.leave->load(std::memory_order_relaxed);
  return is_left ? base::aborted("the engine was told to leave") : base::Status::ok();
}

base::Status StepEngineImpl::run_attempt(BatchSource& source) {
  const parallel::PipelinePlace& pipeline = o_.layout.pipeline(o_.rank);
  is_computed_ = is_reducing_ = false;
  state_.begin_attempt(ops_, *stream_);
  router_.reset(ops_, *stream_);
  executor_.begin({.source = &source,
                   .first_sample = samples_consumed(),
                   .step = tag_step(),
                   .micro_batch_begin = pipeline.micro_batch_begin});
  for (const Instruction& i : o_.schedule.stages[o_.rank.value()].instructions) {
    RETURN_IF_ERROR(check_left());
    RETURN_IF_ERROR(run_instruction(i));
  }
  return base::Status::ok();
}

base::Status StepEngineImpl::run_instruction(const Instruction& i) {
  switch (i.action) {
    case Action::kApply:
      return base::Status::ok();  // the vote decides
    case Action::kReduce:
      if (!std::exchange(is_reducing_, true)) RETURN_IF_ERROR(FAULT_STATUS(kStepReduce));
      return reduce(i.index);
    case Action::kVote:
      RETURN_IF_ERROR(executor_.finish());
      return vote();
    default:
      RETURN_IF_ERROR(executor_.run(i));
      if (i.action != Action::kForward || std::exchange(is_computed_, true)) {
        return base::Status::ok();
      }
      return FAULT_STATUS(kStepCompute);
  }
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
  for (const HeldTensor& t : state_.tensors()) vote_.set_digest(t.id, t.digest());
  vote_.raise_flags(state_.flags());
  if (state_.calibration() == Calibration::kPending) vote_.raise_uncalibrated();
  if (hold_.load(std::memory_order_relaxed)) vote_.raise_hold();
  vote_.set_sample_sum(executor_.sample_sum());
  pending_ = attempt_;
  RETURN_IF_ERROR(FAULT_STATUS(kStepVote));
  RETURN_IF_ERROR(exchange_vote());
  return FAULT_STATUS(kStepVoted);
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

size_t engine_bytes(const EngineOptions& options) {
  size_t tensors = 0;
  for (const base::TensorId id : options.layout.tensors(options.model, options.rank)) {
    tensors += stored_bytes(options.model.tensor(id), options.batch.compute, options.numerics);
  }
  return tensors + step_bytes(options);
}

size_t engine_scratch_bytes(const EngineOptions& options) {
  return StageMemory::scratch_bytes(memory_options(options));
}

namespace {

base::Result<std::unique_ptr<StepEngine>> make_engine(EngineOptions options,
                                                      std::unique_ptr<RankMemory> own,
                                                      RankMemory& memory,
                                                      collective::Fabric& fabric) {
  CHECK_EQ(fabric.rank(), options.rank);
  CHECK_EQ(fabric.ranks(), options.layout.ranks());
  RETURN_IF_ERROR(parallel::check_layout(options.model, options.layout));
  for (const base::TensorId id : options.layout.tensors(options.model, options.rank)) {
    if (!memory.tensors.holds(id)) {
      return base::failed_precondition("rank " + std::to_string(options.rank.value()) +
                                       " does not hold tensor " + std::to_string(id.value()) +
                                       " (" + options.model.tensor(id).name + ")");
    }
  }
  ASSIGN_OR_RETURN(auto stream, memory.tensors.device().make_stream());
  ASSIGN_OR_RETURN(kernels::DeviceBuffer * buffer, memory.step.reserve(step_bytes(options)));
  return std::unique_ptr<StepEngine>(std::make_unique<StepEngineImpl>(
      std::move(options), std::move(own), memory, std::move(stream), *buffer, fabric));
}

}  // namespace

base::Result<std::unique_ptr<StepEngine>> StepEngine::create(EngineOptions options,
                                                             RankMemory& memory,
                                                             collective::Fabric& fabric) {
  return make_engine(std::move(options), nullptr, memory, fabric);
}

base::Result<std::unique_ptr<StepEngine>> StepEngine::create(EngineOptions options,
                                                             kernels::Device& device,
                                                             collective::Fabric& fabric) {
  RETURN_IF_ERROR(parallel::check_layout(options.model, options.layout));
  auto own = std::make_unique<RankMemory>(StoreOptions{.model = options.model,
                                                       .compute = options.batch.compute,
                                                       .numerics = options.numerics,
                                                       .seed = options.seed},
                                          device);
  const auto tensors = options.layout.tensors(options.model, options.rank);
  RETURN_IF_ERROR(own->tensors.add_from_seed(tensors, options.leave));
  RankMemory& memory = *own;
  return make_engine(std::move(options), std::move(own), memory, fabric);
}

}  // namespace perdure::runtime::engine
