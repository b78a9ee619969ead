#include "runtime/worker/slab_keeper.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/fault_point.h"
#include "base/log.h"
#include "recovery/epoch_fields.h"
#include "runtime/rpc/wire.h"
#include "runtime/worker/committed_state.h"
#include "runtime/worker/epoch_phases.h"

namespace perdure::runtime::worker {
namespace {

using checkpoint::ElementType;
using checkpoint::SlotPart;
using checkpoint::SlotRecord;
using checkpoint::SlotTensor;

// What is kept of a tensor, in this order. Optimizer state has the names that its paper gives it
// (Adam, Kingma and Ba: m, v).
constexpr std::array<std::string_view, 5> kPrefixes = {"", "adam.m.", "adam.v.",
                                                       "numerics.tracked.", "numerics.exponents."};

std::vector<base::MutableByteSpan> arrays_of(const engine::StoredTensor& tensor) {
  const auto bytes_of = [](const kernels::Tensor& t) {
    return base::MutableByteSpan(static_cast<std::byte*>(t.data()),
                                 static_cast<size_t>(t.elements()) * sizeof(float));
  };
  return {bytes_of(tensor.param), bytes_of(tensor.m), bytes_of(tensor.v),
          std::as_writable_bytes(tensor.tracked), std::as_writable_bytes(tensor.exponents)};
}

SlotTensor plan_tensor(const engine::StoredTensor& tensor) {
  SlotTensor planned{.tensor = tensor.id, .digest = 0, .parts = {}};
  const std::vector<base::MutableByteSpan> arrays = arrays_of(tensor);
  for (size_t i = 0; i < arrays.size(); ++i) {
    SlotPart part{.name = std::string(kPrefixes[i]) + tensor.spec->name};
    if (i < 3) {
      part.shape = tensor.spec->shape;
    } else {
      part.type = i == 3 ? ElementType::kF32 : ElementType::kI16;
      part.shape = {static_cast<int64_t>(arrays[i].size() / (i == 3 ? 4 : 2))};
    }
    planned.parts.push_back(std::move(part));
  }
  return planned;
}

}  // namespace

base::Result<std::unique_ptr<SlabKeeper>> SlabKeeper::open(const SlabKeeperOptions& options,
                                                           base::Clock& clock) {
  CHECK(options.own_slots.size() >= 2) << "a snapshot would overwrite the only one";
  std::unique_ptr<SlabKeeper> keeper(new SlabKeeper(options, clock));
  const auto add = [&keeper](const std::string& path, bool is_own) {
    base::Result<base::SharedMemory> memory = base::SharedMemory::open(path);
    if (memory.is_ok()) keeper->slots_.push_back({path, std::move(memory).value(), is_own});
    return memory.status();
  };
  for (const std::string& path : options.own_slots) RETURN_IF_ERROR(add(path, true));
  for (const std::string& path : options.other_slots) RETURN_IF_ERROR(add(path, false));
  if (!options.reports.empty()) {
    ASSIGN_OR_RETURN(keeper->reports_, base::SharedMemory::open(options.reports));
  }
  return keeper;
}

base::Result<base::MutableByteSpan> SlabKeeper::report_memory(size_t bytes) {
  if (options_.reports.empty()) return base::MutableByteSpan();
  return reports_.map(bytes);
}

base::Result<const SlotRecord*> SlabKeeper::record_of(Slot& slot) {
  ASSIGN_OR_RETURN(const base::MutableByteSpan memory, slot.memory.map(0));
  const uint64_t generation = checkpoint::slot_generation(memory);
  if (generation == 0 || generation != slot.record.generation) {
    slot.record = {};
    ASSIGN_OR_RETURN(slot.record, checkpoint::read_slot(memory));
  }
  return &slot.record;
}

base::Status SlabKeeper::plan_for(engine::TensorStore& store) {
  std::vector<base::TensorId> held;
  for (const engine::TensorDigest& t : store.digests()) held.push_back(t.tensor);
  if (held == planned_) return base::Status::ok();
  std::vector<SlotTensor> tensors;
  for (const base::TensorId id : held) tensors.push_back(plan_tensor(store.held(id)));
  ASSIGN_OR_RETURN(plan_, checkpoint::plan_slot(std::move(tensors)));
  planned_ = std::move(held);
  return base::Status::ok();
}

// The same step again goes over the one that there is; else the older one makes room.
size_t SlabKeeper::slot_to_overwrite(base::Step step) {
  size_t oldest = 0;
  uint64_t oldest_step = ~uint64_t{0};
  for (size_t i = 0; i < slots_.size() && slots_[i].is_own; ++i) {
    const auto record = record_of(slots_[i]);
    if (!record.is_ok()) {
      oldest = i;
      oldest_step = 0;
      continue;
    }
    const SlotRecord& r = **record;
    generation_ = std::max(generation_, r.generation);
    if (r.step == step.value()) return i;
    if (r.step < oldest_step) {
      oldest = i;
      oldest_step = r.step;
    }
  }
  return oldest;
}

base::Status SlabKeeper::try_save(engine::TensorStore& store) {
  RETURN_IF_ERROR(plan_for(store));
  const size_t own = options_.own_slots.size();
  if (config_.memory_bytes != 0 && plan_.slot_bytes * own > config_.memory_bytes) {
    return base::resource_exhausted(
        std::to_string(own) + " snapshots of " + std::to_string(plan_.slot_bytes) +
        " bytes are more than checkpoint.memory_bytes = " + std::to_string(config_.memory_bytes));
  }
  const engine::CommittedScalars committed = store.committed();
  Slot& slot = slots_[slot_to_overwrite(committed.step)];
  ASSIGN_OR_RETURN(const base::MutableByteSpan memory, slot.memory.map(plan_.slot_bytes));
  checkpoint::SlotWriter writer(memory, plan_);
  FAULT_POINT(kStepSnapshot);
  for (size_t t = 0; t < planned_.size(); ++t) {
    const engine::StoredTensor& tensor = store.held(planned_[t]);
    const std::vector<base::MutableByteSpan> arrays = arrays_of(tensor);
    for (size_t p = 0; p < arrays.size(); ++p) writer.copy(t, p, arrays[p]);
    writer.set_digest(t, tensor.digest);
  }
  RETURN_IF_ERROR(
      writer.finish(++generation_, committed.step.value(), rpc::to_bytes(committed_of(committed))));
  FAULT_POINT(kStepKept);
  cost_.bytes = plan_.image_bytes;
  return base::Status::ok();
}

void SlabKeeper::save(engine::TensorStore& store, Why why) {
  if (config_.memory_every == 0 || !store.has_state()) return;
  const uint64_t step = store.committed().step.value();
  if (why == Why::kStep && step % config_.memory_every != 0) return;
  const base::Nanos begin = clock_.now();
  const base::Status saved = try_save(store);
  cost_.seconds += base::to_seconds(clock_.now() - begin);
  if (saved.is_ok()) {
    ++cost_.taken;
    return;
  }
  ++cost_.skipped;
  if (!std::exchange(has_warned_, true))
    LOG_WARNING("snapshot", "skipped; the next ones will not be told", KV("why", saved));
}

std::vector<recovery::StateOffer> SlabKeeper::offers() {
  std::vector<recovery::StateOffer> result;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const auto record = record_of(slots_[i]);
    if (!record.is_ok()) {
      if (record.status().code() != base::StatusCode::kNotFound)
        LOG_WARNING("snapshot", "not usable", KV("slot", slots_[i].path),
                    KV("why", record.status()));
      continue;
    }
    const auto state = rpc::from_bytes<recovery::CommittedState>((*record)->state);
    if (!state.is_ok()) continue;
    recovery::StateOffer offer{
        .tier = recovery::StateTier::kMemory, .committed = *state, .tensors = {}};
    for (const SlotTensor& t : (*record)->tensors) {
      const Refused refused{i, (*record)->generation, t.tensor};
      if (std::find(refused_.begin(), refused_.end(), refused) == refused_.end())
        offer.tensors.push_back({t.tensor, t.digest});
    }
    if (!offer.tensors.empty()) result.push_back(std::move(offer));
  }
  std::stable_sort(result.begin(), result.end(), [](const auto& a, const auto& b) {
    return a.committed.step > b.committed.step;
  });
  return result;
}

base::Result<size_t> SlabKeeper::find(const recovery::CommittedState& state, base::TensorId tensor,
                                      SlotRecord& record, SlotTensor& found) {
  const rpc::Payload wanted = rpc::to_bytes(state);
  for (size_t i = 0; i < slots_.size(); ++i) {
    const auto looked = record_of(slots_[i]);
    if (!looked.is_ok() || (*looked)->state != wanted) continue;
    const SlotRecord* const here = *looked;
    const auto at = std::find_if(here->tensors.begin(), here->tensors.end(),
                                 [tensor](const SlotTensor& t) { return t.tensor == tensor; });
    const Refused refused{i, here->generation, tensor};
    const bool is_refused = std::find(refused_.begin(), refused_.end(), refused) != refused_.end();
    if (at == here->tensors.end() || is_refused) continue;
    found = *at;
    record.generation = here->generation;  // all that reading a part needs of it
    return i;
  }
  return base::not_found("no snapshot of step " + std::to_string(state.step.value()) +
                         " on this node has it");
}

base::Status SlabKeeper::read(const recovery::CommittedState& state, engine::StoredTensor& to) {
  SlotRecord record;
  SlotTensor kept;
  ASSIGN_OR_RETURN(const size_t slot, find(state, to.id, record, kept));
  const std::vector<base::MutableByteSpan> arrays = arrays_of(to);
  if (kept.parts.size() != arrays.size())
    return base::data_loss("the snapshot has other parts than the tensor");
  std::memset(to.wire.data(), 0, to.wire.size());  // what lies between the arrays
  const base::ByteSpan memory = slots_[slot].memory.bytes();
  for (size_t p = 0; p < arrays.size(); ++p) {
    const base::Status copied = checkpoint::read_part(memory, record, kept.parts[p], arrays[p]);
    if (!copied.is_ok()) return copied.annotate("snapshot in memory, " + slots_[slot].path);
  }
  return base::Status::ok();
}

void SlabKeeper::refuse(const recovery::CommittedState& state, base::TensorId tensor) {
  SlotRecord record;
  SlotTensor kept;
  const auto slot = find(state, tensor, record, kept);
  if (slot.is_ok()) refused_.emplace_back(*slot, record.generation, tensor);
}

}  // namespace perdure::runtime::worker
