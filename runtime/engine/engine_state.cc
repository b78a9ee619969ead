// The committed state of a rank as a copy in host memory, and back.

#include <algorithm>

#include "runtime/engine/step_engine_impl.h"

namespace perdure::runtime::engine {

EngineSnapshot StepEngineImpl::save() const {
  const CommittedScalars& committed = store_.committed();
  EngineSnapshot snapshot{.step = committed.step,
                          .samples_consumed = committed.samples_consumed,
                          .applied_steps = committed.applied_steps,
                          .calibrated = committed.calibrated,
                          .skipped_in_a_row = committed.skipped_in_a_row};
  for (const HeldTensor& t : state_.tensors()) {
    TensorSnapshot& copy = snapshot.tensors[t.spec->name];
    const auto count = static_cast<size_t>(t.sink.elements);
    copy.param.assign(t.param.as<float>(), t.param.as<float>() + count);
    copy.m.assign(t.m.as<float>(), t.m.as<float>() + count);
    copy.v.assign(t.v.as<float>(), t.v.as<float>() + count);
    copy.exponents.assign(t.stored->exponents.begin(), t.stored->exponents.end());
    copy.tracked.assign(t.stored->tracked.begin(), t.stored->tracked.end());
  }
  return snapshot;
}

base::Status StepEngineImpl::load(const EngineSnapshot& snapshot) {
  for (const HeldTensor& t : state_.tensors()) {  // all of it is checked before any of it is used
    const auto found = snapshot.tensors.find(t.spec->name);
    if (found == snapshot.tensors.end())
      return base::invalid_argument("snapshot lacks " + t.spec->name);
    const TensorSnapshot& copy = found->second;
    const auto count = static_cast<size_t>(t.sink.elements);
    if (copy.param.size() != count || copy.m.size() != count || copy.v.size() != count ||
        copy.exponents.size() != t.stored->exponents.size() ||
        copy.tracked.size() != t.stored->tracked.size()) {
      return base::invalid_argument("snapshot of " + t.spec->name +
                                    " is of another model or other numerics");
    }
  }
  pending_ = 0;
  store_.begin_commit();
  for (HeldTensor& t : state_.tensors()) {
    const TensorSnapshot& copy = snapshot.tensors.at(t.spec->name);
    std::copy(copy.param.begin(), copy.param.end(), t.param.as<float>());
    std::copy(copy.m.begin(), copy.m.end(), t.m.as<float>());
    std::copy(copy.v.begin(), copy.v.end(), t.v.as<float>());
    std::copy(copy.exponents.begin(), copy.exponents.end(), t.stored->exponents.begin());
    std::copy(copy.tracked.begin(), copy.tracked.end(), t.stored->tracked.begin());
  }
  for (HeldTensor& t : state_.tensors()) store_.refresh(*t.stored);
  RETURN_IF_ERROR(stream_->synchronize());
  for (HeldTensor& t : state_.tensors()) store_.set_digest(*t.stored);
  store_.end_commit({.step = snapshot.step,
                     .samples_consumed = snapshot.samples_consumed,
                     .applied_steps = snapshot.applied_steps,
                     .calibrated = snapshot.calibrated,
                     .skipped_in_a_row = snapshot.skipped_in_a_row});
  state_.begin_step();
  return base::Status::ok();
}

}  // namespace perdure::runtime::engine
