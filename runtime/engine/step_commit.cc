// What a vote's result leads to: decided from the vote alone, so that all ranks decide alike.

#include <algorithm>
#include <cmath>

#include "base/fault_point.h"
#include "base/hash.h"
#include "runtime/engine/step_engine_impl.h"
#include "runtime/engine/step_phases.h"

namespace perdure::runtime::engine {

base::Result<StepEngineImpl::Verdict> StepEngineImpl::judge() const {
  RETURN_IF_ERROR(vote_.check_digests());
  if (vote_.micro_batches() != o_.layout.micro_batches) {
    return base::internal("step " + std::to_string(step().value()) + ": " +
                          std::to_string(vote_.micro_batches()) + " micro-batches voted, " +
                          std::to_string(o_.layout.micro_batches) + " make a step");
  }
  if (vote_.not_finite() || !std::isfinite(vote_.squared_norm())) return Verdict::kSkip;
  return vote_.overflow() || vote_.uncalibrated() ? Verdict::kAgain : Verdict::kApply;
}

base::Result<StepResult> StepEngineImpl::apply_vote(uint32_t attempt,
                                                    std::span<const uint64_t> words,
                                                    float learning_rate) {
  const std::string which =
      "step " + std::to_string(step().value() + 1) + ", attempt " + std::to_string(attempt) + ": ";
  if (pending_ == 0 || pending_ != attempt) {
    return base::failed_precondition(
        which + (pending_ == 0 ? "nothing is pending"
                               : "attempt " + std::to_string(pending_) + " is pending"));
  }
  RETURN_IF_ERROR(vote_.assign(words));
  for (const HeldTensor& t : state_.tensors()) {
    if (vote_.digest(t.id) != t.digest()) {
      return base::failed_precondition(which + "the vote is about another state of tensor " +
                                       std::to_string(t.id.value()));
    }
  }
  const base::Result<Verdict> verdict = judge();
  if (!verdict.is_ok() || verdict.value() == Verdict::kAgain) {
    return base::failed_precondition(which + (verdict.is_ok() ? "the vote asks for another attempt"
                                                              : verdict.status().message()));
  }
  return commit(verdict.value(), attempt, learning_rate);
}

base::Result<StepResult> StepEngineImpl::commit(Verdict verdict, uint32_t attempt,
                                                float learning_rate) {
  const Applied applied = verdict == Verdict::kApply ? Applied::kYes : Applied::kNo;
  const double micro_batches = o_.layout.micro_batches;
  CommittedScalars next = store_.committed();
  StepResult result;
  result.loss = vote_.loss_sum() / (micro_batches * tokens_per_micro_batch());
  result.grad_norm = std::sqrt(vote_.squared_norm()) / micro_batches;
  result.attempts = attempt;
  result.applied = applied;
  result.digest_before = state_digest();
  result.first_sample = next.samples_consumed;
  result.sample_count = vote_.micro_batches() * static_cast<uint64_t>(o_.batch.micro_batch);
  result.sample_sum = vote_.sample_sum();
  result.hold = vote_.hold();

  pending_ = 0;
  store_.begin_commit();
  drop_strangers();
  next.skipped_in_a_row = applied == Applied::kYes ? 0 : next.skipped_in_a_row + 1;
  next.applied_steps += applied == Applied::kYes ? 1 : 0;
  next.calibrated = state_.calibration() == Calibration::kDone;
  next.samples_consumed += samples_per_step();
  next.step = next.step.next();
  if (applied == Applied::kYes) {
    const double clip = o_.optimizer.clip_norm;
    const double factor = clip > 0.0 && result.grad_norm > clip ? clip / result.grad_norm : 1.0;
    apply(next.applied_steps, factor / micro_batches, learning_rate);
  }
  RETURN_IF_ERROR(stream_->synchronize());  // the digests of the new state are read below
  state_.commit(applied);
  store_.end_commit(next);
  store_.set_vote(o_.epoch, attempt, vote_.bytes());
  result.step = next.step;
  FAULT_POINT(kStepCommit);
  return result;
}

// Tensors that the rank held before this epoch and has no part in fall behind now. Until now they
// were of use, should another rank be lost.
void StepEngineImpl::drop_strangers() {
  if (store_.held_count() == state_.tensors().size()) return;
  std::vector<base::TensorId> own;
  for (const HeldTensor& t : state_.tensors()) own.push_back(t.id);
  store_.retain(own);
}

void StepEngineImpl::apply(uint64_t applied_steps, double multiplier, float learning_rate) {
  const double steps = static_cast<double>(applied_steps);
  kernels::AdamwArgs args;
  args.gradient_multiplier = multiplier;
  args.lr = learning_rate;
  args.beta1 = o_.optimizer.beta1;
  args.beta2 = o_.optimizer.beta2;
  args.epsilon = o_.optimizer.epsilon;
  args.correction1 = static_cast<float>(1.0 - std::pow(static_cast<double>(args.beta1), steps));
  args.correction2 = static_cast<float>(1.0 - std::pow(static_cast<double>(args.beta2), steps));
  const size_t half = state_.tensors().size() / 2;
  for (size_t i = 0; i < state_.tensors().size(); ++i) {
    HeldTensor& t = state_.tensors()[i];
    args.param = t.param;
    args.m = t.m;
    args.v = t.v;
    args.param_low = t.low;
    args.gradient = t.sink;
    args.decay = t.spec->decay == parallel::Decay::kYes ? o_.optimizer.weight_decay : 0.0f;
    args.digests = t.stored->chunk_digests;
    ops_.adamw(*stream_, args);
    if (i == half) FAULT_POINT(kStepApply);
  }
}

uint64_t StepEngineImpl::state_digest() {
  const CommittedScalars& committed = store_.committed();
  tensor_digests_[0] = committed.step.value();
  tensor_digests_[1] = committed.samples_consumed;
  tensor_digests_[2] = committed.applied_steps;
  for (uint32_t t = 0; t < o_.model.tensors.size(); ++t) {
    tensor_digests_[3 + t] = vote_.digest(base::TensorId(t));
  }
  return base::hash64(std::as_bytes(std::span(tensor_digests_)));
}

std::vector<TensorDigest> StepEngineImpl::tensor_digests() const {
  std::vector<TensorDigest> result;
  result.reserve(state_.tensors().size());
  for (const HeldTensor& t : state_.tensors()) result.push_back({t.id, t.digest()});
  return result;
}

}  // namespace perdure::runtime::engine
