#include "runtime/engine/model_state.h"

#include <algorithm>

#include "base/hash.h"

namespace perdure::runtime::engine {
namespace {

using kernels::DType;
using kernels::Tensor;

size_t padded_bytes(size_t bytes) { return (bytes + 63) / 64 * 64; }

// How many addends a step has for one element, over the whole job.
uint32_t addends_of(const ModelStateOptions& options, base::TensorId id) {
  uint32_t uses = 0;
  for (const parallel::LayerSpec& layer : options.model->layers) {
    for (const parallel::TensorUseInLayer& use : layer.tensors) uses += use.tensor == id ? 1 : 0;
  }
  const uint32_t grain = options.numerics.grain;
  return std::max(1u, uses) * ((options.layout->micro_batches + grain - 1) / grain);
}

Tensor words_of(std::span<std::byte> bytes) {
  return Tensor::vector(bytes.data(), DType::kF32, static_cast<int64_t>(bytes.size() / 4));
}

}  // namespace

Tensor HeldTensor::matrix() const {
  CHECK_EQ(spec->shape.size(), 2u) << spec->name;
  const Tensor& from = low.is_absent() ? param : low;
  return Tensor::matrix(from.data(), from.dtype(), spec->shape[0], spec->shape[1]);
}

size_t ModelState::bytes(const ModelStateOptions& options) {
  size_t total = 0;
  for (const base::TensorId id : options.layout->tensors(*options.model, options.rank)) {
    const parallel::TensorSpec& spec = options.model->tensor(id);
    const auto elements = static_cast<size_t>(padded_elements(spec.elements()));
    const auto blocks = static_cast<size_t>(padded_elements(blocks_of(spec, options.numerics)));
    total += elements * static_cast<size_t>(options.numerics.accumulator_bytes());
    total += 2 * blocks * 4 + padded_bytes(blocks * 2);
  }
  return total;
}

ModelState::ModelState(const ModelStateOptions& options, TensorStore& store, MemoryCarver& carver)
    : store_(store), numerics_(options.numerics) {
  for (const base::TensorId id : options.layout->tensors(*options.model, options.rank)) {
    StoredTensor& stored = store.held(id);
    HeldTensor t;
    t.id = id;
    t.spec = &options.model->tensor(id);
    t.param = stored.param;
    t.m = stored.m;
    t.v = stored.v;
    t.low = stored.low;
    t.stored = &stored;
    tensors_.push_back(t);
  }
  carve_accumulators(options, carver);
  carve_scales(carver);
  begin_step();
}

// Bucket by bucket, so that the accumulators of a bucket are one piece of memory.
void ModelState::carve_accumulators(const ModelStateOptions& options, MemoryCarver& carver) {
  const auto element_bytes = static_cast<size_t>(options.numerics.accumulator_bytes());
  std::byte* first = nullptr;
  for (const parallel::ReduceBucket& plan : options.layout->buckets(*options.model, options.rank)) {
    Bucket bucket{.tensors = plan.tensors, .holders = plan.holders};
    std::byte* begin = nullptr;
    std::byte* end = nullptr;
    for (const base::TensorId id : plan.tensors) {
      HeldTensor& t = held(id);
      const int64_t elements = padded_elements(t.spec->elements());
      const std::span<std::byte> memory =
          carver.take(static_cast<size_t>(elements) * element_bytes);
      t.sink.kind = options.numerics.grad_kind();
      t.sink.accumulator = memory.data();
      t.sink.elements = t.spec->elements();
      t.sink.block_elements = block_elements_of(*t.spec, options.numerics);
      t.sink.flags = &flags_;
      if (options.numerics.mode == SumMode::kExact) {
        t.sink.limit = addend_limit(options.numerics.width_bits, addends_of(options, id));
      }
      if (begin == nullptr) begin = memory.data();
      end = memory.data() + memory.size();
    }
    if (first == nullptr) first = begin;
    bucket.accumulators = {begin, end};
    all_accumulators_ = {first, end};
    buckets_.push_back(std::move(bucket));
  }
}

void ModelState::carve_scales(MemoryCarver& carver) {
  std::byte* first = nullptr;
  for (Bucket& bucket : buckets_) {
    std::byte* begin = nullptr;
    std::byte* end = nullptr;
    for (const base::TensorId id : bucket.tensors) {
      HeldTensor& t = held(id);
      const auto blocks = static_cast<size_t>(t.sink.blocks());
      const auto padded = static_cast<size_t>(padded_elements(t.sink.blocks()));
      const std::span<float> maxima = carver.array<float>(padded);
      t.sink.abs_max = maxima.data();
      t.scale.abs_max = maxima.first(blocks);
      if (begin == nullptr) begin = std::as_writable_bytes(maxima).data();
      end = std::as_writable_bytes(maxima).data() + maxima.size_bytes();
    }
    if (first == nullptr) first = begin;
    bucket.maxima = {begin, end};
    all_maxima_ = {first, end};
  }
  for (HeldTensor& t : tensors_) {
    const auto blocks = static_cast<size_t>(t.sink.blocks());
    const auto padded = static_cast<size_t>(padded_elements(t.sink.blocks()));
    t.scale.tracked = carver.array<float>(padded).first(blocks);
    t.scale.exponents = carver.array<int16_t>(padded).first(blocks);
    t.sink.exponents = t.scale.exponents.data();
  }
}

HeldTensor& ModelState::held(base::TensorId id) {
  const auto found =
      std::lower_bound(tensors_.begin(), tensors_.end(), id,
                       [](const HeldTensor& t, base::TensorId key) { return t.id < key; });
  CHECK(found != tensors_.end() && found->id == id)
      << "tensor " << id << " is not held by this rank";
  return *found;
}

void ModelState::begin_step() {
  const bool is_scaled = numerics_.mode == SumMode::kExact;
  calibration_ =
      is_scaled && !store_.committed().calibrated ? Calibration::kPending : Calibration::kDone;
  for (HeldTensor& t : tensors_) {
    std::copy(t.stored->tracked.begin(), t.stored->tracked.end(), t.scale.tracked.begin());
    std::copy(t.stored->exponents.begin(), t.stored->exponents.end(), t.scale.exponents.begin());
  }
}

void ModelState::begin_attempt(kernels::Ops& ops, kernels::Stream& stream) {
  flags_.store(0, std::memory_order_relaxed);
  ops.fill_zero(stream, words_of(all_accumulators_));
  ops.fill_zero(stream, words_of(all_maxima_));
}

void ModelState::recalibrate() {
  for (HeldTensor& t : tensors_) {
    recalibrate_scale(t.scale, t.sink.limit, headroom_bits(numerics_.width_bits));
  }
  calibration_ = Calibration::kDone;
}

void ModelState::commit(Applied applied) {
  for (HeldTensor& t : tensors_) {
    if (numerics_.mode == SumMode::kExact && applied == Applied::kYes) {
      advance_scale(t.scale, t.sink.limit, headroom_bits(numerics_.width_bits));
    }
    std::copy(t.scale.tracked.begin(), t.scale.tracked.end(), t.stored->tracked.begin());
    std::copy(t.scale.exponents.begin(), t.scale.exponents.end(), t.stored->exponents.begin());
    store_.set_digest(*t.stored);
  }
}

uint64_t ModelState::params_digest(const HeldTensor& tensor) const {
  const std::span values(tensor.param.as<float>(), static_cast<size_t>(tensor.sink.elements));
  return base::hash64(std::as_bytes(values));
}

}  // namespace perdure::runtime::engine
