#include "runtime/engine/model_state.h"

#include <algorithm>

#include "base/hash.h"
#include "runtime/engine/initial_weights.h"

namespace perdure::runtime::engine {
namespace {

using kernels::DType;
using kernels::Tensor;

// Padding, so that tensors of one bucket start on 64-byte borders whatever the element.
int64_t padded_elements(int64_t elements) { return (elements + 15) / 16 * 16; }
size_t padded_bytes(size_t bytes) { return (bytes + 63) / 64 * 64; }

// The token table's rows sleep until their token appears, so its gradients share one exponent.
int64_t block_elements_of(const parallel::TensorSpec& spec, const Numerics& numerics) {
  const bool is_table = spec.name.find("token") != std::string::npos;
  const bool whole = numerics.block_elements == 0 || numerics.mode == SumMode::kFast || is_table ||
                     spec.use == parallel::TensorUse::kVector;
  return whole ? std::max<int64_t>(padded_elements(spec.elements()), 64) : numerics.block_elements;
}

int64_t blocks_of(const parallel::TensorSpec& spec, const Numerics& numerics) {
  const int64_t block = block_elements_of(spec, numerics);
  return (spec.elements() + block - 1) / block;
}

// How many addends a step has for one element, over the whole job.
uint32_t addends_of(const ModelStateOptions& options, base::TensorId id) {
  uint32_t uses = 0;
  for (const parallel::LayerSpec& layer : options.model->layers) {
    for (const parallel::TensorUseInLayer& use : layer.tensors) uses += use.tensor == id ? 1 : 0;
  }
  const uint32_t grain = options.numerics.grain;
  return std::max(1u, uses) * ((options.layout->micro_batches + grain - 1) / grain);
}

bool has_low(const ModelStateOptions& options, const parallel::TensorSpec& spec) {
  return options.compute == parallel::ComputeType::kBF16 &&
         spec.use == parallel::TensorUse::kMatrix;
}

// Carves room for the padded size, gives a view of the real one.
Tensor take_vector(MemoryCarver& carver, DType dtype, int64_t elements) {
  const Tensor padded = carver.vector(dtype, padded_elements(elements));
  return Tensor::vector(padded.data(), dtype, elements);
}

int64_t chunks_of(int64_t elements) {
  return (elements + kernels::kDigestChunk - 1) / kernels::kDigestChunk;
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
    total += 3 * elements * 4;
    if (has_low(options, spec)) total += padded_bytes(elements * 2);
    total += elements * static_cast<size_t>(options.numerics.accumulator_bytes());
    total += 2 * blocks * 4 + padded_bytes(blocks * 2);
  }
  return total;
}

ModelState::ModelState(const ModelStateOptions& options, MemoryCarver& carver)
    : numerics_(options.numerics), seed_(options.seed) {
  for (const base::TensorId id : options.layout->tensors(*options.model, options.rank)) {
    HeldTensor t;
    t.id = id;
    t.spec = &options.model->tensor(id);
    tensors_.push_back(t);
  }
  for (HeldTensor& t : tensors_) t.param = take_vector(carver, DType::kF32, t.spec->elements());
  for (HeldTensor& t : tensors_) t.m = take_vector(carver, DType::kF32, t.spec->elements());
  for (HeldTensor& t : tensors_) t.v = take_vector(carver, DType::kF32, t.spec->elements());
  int64_t chunks = 0;
  int64_t chunks_most = 0;
  for (HeldTensor& t : tensors_) {
    if (has_low(options, *t.spec)) t.low = take_vector(carver, DType::kBF16, t.spec->elements());
    chunks += chunks_of(t.spec->elements());
    chunks_most = std::max(chunks_most, chunks_of(t.spec->elements()));
  }
  chunk_digests_.resize(static_cast<size_t>(chunks));
  digest_scratch_.reserve(static_cast<size_t>(chunks_most) + 2);
  size_t at = 0;
  for (HeldTensor& t : tensors_) {
    const auto count = static_cast<size_t>(chunks_of(t.spec->elements()));
    t.chunk_digests = std::span(chunk_digests_).subspan(at, count);
    at += count;
  }
  carve_accumulators(options, carver);
  carve_scales(carver);
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

void ModelState::initialise(kernels::Ops& ops, kernels::Stream& stream) {
  for (HeldTensor& t : tensors_) {
    set_initial_weights(*t.spec, seed_,
                        {t.param.as<float>(), static_cast<size_t>(t.sink.elements)});
    ops.fill_zero(stream, t.m);
    ops.fill_zero(stream, t.v);
    std::fill(t.scale.tracked.begin(), t.scale.tracked.end(), 0.0f);
    std::fill(t.scale.exponents.begin(), t.scale.exponents.end(), int16_t{0});
  }
  calibration_ = numerics_.mode == SumMode::kFast ? Calibration::kDone : Calibration::kPending;
  refresh(ops, stream);
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
    set_digest(t);
  }
}

void ModelState::refresh(kernels::Ops& ops, kernels::Stream& stream) {
  for (HeldTensor& t : tensors_) {
    if (!t.low.is_absent()) ops.copy(stream, t.param, t.low);
    ops.state_digests(stream, t.param, t.m, t.v, t.chunk_digests);
    set_digest(t);
  }
}

// Over the chunk digests, the exponents and the tracked maxima.
void ModelState::set_digest(HeldTensor& tensor) {
  digest_scratch_.assign(tensor.chunk_digests.begin(), tensor.chunk_digests.end());
  digest_scratch_.push_back(base::hash64(std::as_bytes(tensor.scale.exponents)));
  digest_scratch_.push_back(base::hash64(std::as_bytes(tensor.scale.tracked)));
  tensor.digest = base::hash64(std::as_bytes(std::span(digest_scratch_)));
}

uint64_t ModelState::params_digest(const HeldTensor& tensor) const {
  const std::span values(tensor.param.as<float>(), static_cast<size_t>(tensor.sink.elements));
  return base::hash64(std::as_bytes(values));
}

}  // namespace perdure::runtime::engine
