// Collective calls that change nothing: the loss on other data, the digests of the state.

#include "base/fault_point.h"
#include "base/hash.h"
#include "runtime/engine/step_engine_impl.h"
#include "runtime/engine/step_phases.h"

namespace perdure::runtime::engine {

using parallel::Action;
using parallel::Instruction;

// Forward only, micro-batch i on pipeline i % pipelines, one slot: what is sent is waited for
// before the next.
base::Status StepEngineImpl::run_evaluation(BatchSource& source, uint32_t batches) {
  const auto pipelines = static_cast<uint32_t>(o_.layout.pipelines.size());
  const uint32_t mine = o_.layout.place(o_.rank).pipeline.value();
  const parallel::RankTopology& topology = topology_.at(o_.rank);
  constexpr uint32_t kEvaluationTags = 1u << 19;
  for (uint32_t i = mine; i < batches; i += pipelines) {
    RETURN_IF_ERROR(check_left());
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
  base::Status status = run_evaluation(source, batches);
  if (status.is_ok()) status = FAULT_STATUS(kStepEvaluate);
  if (!status.is_ok()) return give_up(std::move(status));
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
  for (uint32_t t = 0; t < o_.model.tensors.size(); ++t)
    params.push_back(vote_.digest(base::TensorId(t)));
  result.params = base::hash64(std::as_bytes(std::span(params)));
  vote_.clear();
  for (const HeldTensor& t : state_.tensors()) vote_.set_digest(t.id, t.digest());
  RETURN_IF_ERROR(exchange_vote());
  RETURN_IF_ERROR(vote_.check_digests());
  result.state = state_digest();
  return result;
}

}  // namespace perdure::runtime::engine
