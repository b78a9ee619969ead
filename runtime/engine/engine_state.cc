// The committed state of a rank as a copy in host memory, and back.

#include <algorithm>

#include "runtime/engine/step_engine_impl.h"

namespace perdure::runtime::engine {

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
    if (found == snapshot.tensors.end())
      return base::invalid_argument("snapshot lacks " + t.spec->name);
    const TensorSnapshot& copy = found->second;
    const auto count = static_cast<size_t>(t.sink.elements);
    if (copy.param.size() != count || copy.m.size() != count || copy.v.size() != count ||
        copy.exponents.size() != t.scale.exponents.size() ||
        copy.tracked.size() != t.scale.tracked.size()) {
      return base::invalid_argument("snapshot of " + t.spec->name +
                                    " is of another model or other numerics");
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

}  // namespace perdure::runtime::engine
