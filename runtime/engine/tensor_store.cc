#include "runtime/engine/tensor_store.h"

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "runtime/engine/initial_weights.h"

namespace perdure::runtime::engine {
namespace {

using kernels::DType;
using kernels::Tensor;

constexpr size_t kSeedSlice = 1 << 16;  // elements made between two looks at `leave`

size_t padded_bytes(size_t bytes) { return (bytes + 63) / 64 * 64; }

bool has_low(const parallel::TensorSpec& spec, parallel::ComputeType compute) {
  return compute == parallel::ComputeType::kBF16 && spec.use == parallel::TensorUse::kMatrix;
}

size_t wire_bytes_of(const parallel::TensorSpec& spec, const Numerics& numerics) {
  const auto blocks = static_cast<size_t>(padded_elements(blocks_of(spec, numerics)));
  return 3 * static_cast<size_t>(padded_elements(spec.elements())) * 4 + blocks * 4 +
         padded_bytes(blocks * 2);
}

}  // namespace

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

size_t stored_bytes(const parallel::TensorSpec& spec, parallel::ComputeType compute,
                    const Numerics& numerics) {
  const auto elements = static_cast<size_t>(padded_elements(spec.elements()));
  return wire_bytes_of(spec, numerics) + (has_low(spec, compute) ? padded_bytes(elements * 2) : 0);
}

TensorStore::TensorStore(StoreOptions options, kernels::Device& device)
    : options_(std::move(options)), device_(device), pool_(device) {
  auto stream = device.make_stream();
  CHECK(stream.is_ok()) << stream.status();
  stream_ = std::move(stream).value();
  int64_t chunks_most = 0;
  for (const parallel::TensorSpec& spec : options_.model.tensors) {
    chunks_most = std::max(chunks_most, spec.elements() / kernels::kDigestChunk + 1);
  }
  digest_scratch_.reserve(static_cast<size_t>(chunks_most) + 2);
}

StoredTensor& TensorStore::held(base::TensorId id) {
  const auto found = held_.find(id);
  CHECK(found != held_.end()) << "tensor " << id << " is not held";
  return found->second;
}

StoredTensor& TensorStore::staged(base::TensorId id) {
  const auto found = staged_.find(id);
  CHECK(found != staged_.end()) << "tensor " << id << " is not staged";
  return found->second;
}

std::vector<TensorDigest> TensorStore::digests() const {
  std::vector<TensorDigest> result;
  result.reserve(held_.size());
  for (const auto& [id, tensor] : held_) result.push_back({id, tensor.digest});
  return result;
}

size_t TensorStore::wire_bytes(base::TensorId id) const {
  return wire_bytes_of(options_.model.tensor(id), options_.numerics);
}

size_t TensorStore::block_bytes(base::TensorId id) const {
  return stored_bytes(options_.model.tensor(id), options_.compute, options_.numerics);
}

StoredTensor TensorStore::carve(base::TensorId id, std::span<std::byte> block) const {
  StoredTensor t;
  t.id = id;
  t.spec = &options_.model.tensor(id);
  t.block = block;
  t.wire = block.first(wire_bytes(id));
  std::byte* at = block.data();
  const auto take = [&](size_t bytes) { return std::exchange(at, at + padded_bytes(bytes)); };
  const int64_t elements = t.spec->elements();
  const size_t f32_bytes = static_cast<size_t>(padded_elements(elements)) * 4;
  t.param = Tensor::vector(take(f32_bytes), DType::kF32, elements);
  t.m = Tensor::vector(take(f32_bytes), DType::kF32, elements);
  t.v = Tensor::vector(take(f32_bytes), DType::kF32, elements);
  const auto blocks = static_cast<size_t>(blocks_of(*t.spec, options_.numerics));
  const auto padded = static_cast<size_t>(padded_elements(static_cast<int64_t>(blocks)));
  t.tracked = {reinterpret_cast<float*>(take(padded * 4)), blocks};
  t.exponents = {reinterpret_cast<int16_t*>(take(padded * 2)), blocks};
  if (has_low(*t.spec, options_.compute)) {
    t.low = Tensor::vector(take(f32_bytes / 2), DType::kBF16, elements);
  }
  CHECK_LE(static_cast<size_t>(at - block.data()), block.size());
  t.chunk_digests.resize(
      static_cast<size_t>((elements + kernels::kDigestChunk - 1) / kernels::kDigestChunk));
  return t;
}

void TensorStore::drop(Tensors& from, base::TensorId id) {
  const auto found = from.find(id);
  if (found == from.end()) return;
  pool_.give(found->second.block);
  from.erase(found);
}

void TensorStore::resume_at(const CommittedScalars& scalars) {
  if (whole_ && committed_ == scalars) return;
  drop_staged();
  retain({});
  committed_ = scalars;
  vote_.attempt = 0;
  whole_ = true;
}

base::Status TensorStore::stage(std::span<const base::TensorId> ids) {
  drop_staged();
  std::vector<size_t> sizes;
  for (const base::TensorId id : ids) sizes.push_back(block_bytes(id));
  ASSIGN_OR_RETURN(const auto blocks, pool_.take(sizes));
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool is_new = staged_.emplace(ids[i], carve(ids[i], blocks[i])).second;
    CHECK(is_new) << "tensor " << ids[i] << " is staged twice";
  }
  return base::Status::ok();
}

void TensorStore::drop_staged() {
  while (!staged_.empty()) drop(staged_, staged_.begin()->first);
}

void TensorStore::retain(std::span<const base::TensorId> ids) {
  std::vector<base::TensorId> gone;
  for (const auto& [id, tensor] : held_) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) gone.push_back(id);
  }
  for (const base::TensorId id : gone) drop(held_, id);
}

base::Status TensorStore::adopt(base::TensorId id, uint64_t digest) {
  StoredTensor& tensor = staged(id);
  refresh(tensor);
  RETURN_IF_ERROR(stream_->synchronize());
  set_digest(tensor);
  if (tensor.digest != digest) {
    const std::string name = tensor.spec->name;
    drop(staged_, id);
    return base::data_loss("tensor " + std::to_string(id.value()) + " (" + name +
                           ") is whole but has another digest than its source");
  }
  drop(held_, id);
  held_.insert(staged_.extract(id));
  return base::Status::ok();
}

base::Status TensorStore::add_from_seed(std::span<const base::TensorId> ids,
                                        const std::atomic<bool>* leave) {
  CHECK_EQ(committed_.step, base::Step(0)) << "weights from the seed belong to step 0";
  std::vector<base::TensorId> missing;
  for (const base::TensorId id : ids) {
    if (!holds(id)) missing.push_back(id);
  }
  RETURN_IF_ERROR(stage(missing));
  for (const base::TensorId id : missing) {
    RETURN_IF_ERROR(initialise(staged(id), leave));
    held_.insert(staged_.extract(id));
  }
  return base::Status::ok();
}

base::Status TensorStore::initialise(StoredTensor& t, const std::atomic<bool>* leave) {
  const std::span values(t.param.as<float>(), static_cast<size_t>(t.spec->elements()));
  for (size_t at = 0; at < values.size(); at += kSeedSlice) {
    if (leave != nullptr && leave->load(std::memory_order_relaxed)) {
      return base::aborted("left while weights were being made");
    }
    set_initial_weights(*t.spec, options_.seed, at,
                        values.subspan(at, std::min(kSeedSlice, values.size() - at)));
  }
  kernels::Ops& ops = device_.ops();
  ops.fill_zero(*stream_, t.m);
  ops.fill_zero(*stream_, t.v);
  std::fill(t.tracked.begin(), t.tracked.end(), 0.0f);
  std::fill(t.exponents.begin(), t.exponents.end(), int16_t{0});
  refresh(t);
  RETURN_IF_ERROR(stream_->synchronize());
  set_digest(t);
  return base::Status::ok();
}

void TensorStore::refresh(StoredTensor& t) {
  kernels::Ops& ops = device_.ops();
  if (!t.low.is_absent()) ops.copy(*stream_, t.param, t.low);
  ops.state_digests(*stream_, t.param, t.m, t.v, t.chunk_digests);
}

void TensorStore::set_digest(StoredTensor& t) {
  digest_scratch_.assign(t.chunk_digests.begin(), t.chunk_digests.end());
  digest_scratch_.push_back(base::hash64(std::as_bytes(t.exponents)));
  digest_scratch_.push_back(base::hash64(std::as_bytes(t.tracked)));
  t.digest = base::hash64(std::as_bytes(std::span(digest_scratch_)));
}

void TensorStore::begin_commit() { whole_ = false; }

void TensorStore::end_commit(const CommittedScalars& scalars) {
  committed_ = scalars;
  vote_.attempt = 0;
  whole_ = true;
}

void TensorStore::set_vote(base::Epoch epoch, uint32_t attempt, std::span<const std::byte> words) {
  vote_.epoch = epoch;
  vote_.attempt = attempt;
  vote_.words.resize(words.size() / sizeof(uint64_t));
  std::memcpy(vote_.words.data(), words.data(), words.size());
}

}  // namespace perdure::runtime::engine
