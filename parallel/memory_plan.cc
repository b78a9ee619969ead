#include "parallel/memory_plan.h"

#include <algorithm>

namespace perdure::parallel {
namespace {

int64_t padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

bool splits_backward(const StageSchedule& stage) {
  return std::any_of(stage.instructions.begin(), stage.instructions.end(),
                     [](const Instruction& i) { return i.action == Action::kBackwardInput; });
}

void add_tensor(WorkerMemory& memory, const TensorSpec& tensor, const BatchShape& batch,
                const NumericsMemory& numerics) {
  const int64_t elements = tensor.elements();
  memory.parameters += padded(4 * elements);
  memory.moments += 2 * padded(4 * elements);
  if (batch.compute == ComputeType::kBF16 && tensor.use == TensorUse::kMatrix) {
    memory.low_precision += padded(2 * elements);
  }
  memory.gradient_accumulators += padded(numerics.accumulator_bytes_per_element * elements);
  if (numerics.block_elements > 0) {
    const int64_t blocks = (elements + numerics.block_elements - 1) / numerics.block_elements;
    memory.gradient_accumulators += padded(2 * blocks) + 2 * padded(4 * blocks);
  }
  if (numerics.grain_bytes_per_element > 0) {
    memory.gradient_grains += padded(numerics.grain_bytes_per_element * elements);
  }
}

void add_layers(WorkerMemory& memory, const ModelSpec& model, const StagePlace& place,
                const StageSchedule& stage, const BatchShape& batch) {
  int64_t activations = 0;
  int64_t grads_sum = 0;
  int64_t grads_largest = 0;
  for (uint32_t l = place.layer_begin; l < place.layer_end; ++l) {
    const StagePosition position =
        l + 1 == place.layer_end ? StagePosition::kLastOfStage : StagePosition::kInner;
    for (const ActivationSpec& a : layer_activations(model, base::LayerId(l), batch, position)) {
      activations += a.buffer.bytes();
    }
    int64_t grads = 0;
    for (const ActivationGradSpec& g : layer_activation_grads(model, base::LayerId(l), batch)) {
      grads += g.buffer.bytes();
    }
    grads_sum += grads;
    grads_largest = std::max(grads_largest, grads);
  }
  const int64_t slots = stage.stash_slots;
  const int64_t rows = batch.micro_batch * model.config.context;
  memory.activations = slots * activations;
  memory.activation_grads = splits_backward(stage) ? slots * grads_sum : grads_largest;
  memory.boundary = slots * (padded(4 * rows * model.config.width) + 2 * padded(4 * rows));
}

constexpr int64_t kBlockBytes = 6;  // an exponent (i16) and a maximum (f32)

}  // namespace

int64_t WorkerMemory::total() const {
  int64_t sum = 0;
  for (const Item& item : items()) sum += item.bytes;
  return sum;
}

std::vector<WorkerMemory::Item> WorkerMemory::items() const {
  return {{"parameters", parameters},
          {"moments", moments},
          {"low_precision", low_precision},
          {"gradient_accumulators", gradient_accumulators},
          {"gradient_grains", gradient_grains},
          {"activations", activations},
          {"activation_grads", activation_grads},
          {"boundary", boundary},
          {"snapshots", snapshots},
          {"workspace", workspace},
          {"runtime_baseline", runtime_baseline}};
}

WorkerMemory plan_worker_memory(const ModelSpec& model, const Layout& layout,
                                const Schedule& schedule, base::Rank rank, const BatchShape& batch,
                                const NumericsMemory& numerics) {
  CHECK_LT(rank.value(), schedule.stages.size());
  CHECK_GT(numerics.accumulator_bytes_per_element, 0);
  WorkerMemory memory;
  for (const base::TensorId id : layout.tensors(model, rank)) {
    add_tensor(memory, model.tensor(id), batch, numerics);
  }
  add_layers(memory, model, layout.stage(rank), schedule.stages[rank.value()], batch);
  const int64_t elements = memory.parameters / 4;
  const int64_t blocks = numerics.block_elements > 0 ? elements / numerics.block_elements : 0;
  memory.snapshots =
      numerics.snapshot_copies * (memory.parameters + memory.moments + blocks * kBlockBytes);
  memory.workspace = numerics.workspace_bytes;
  memory.runtime_baseline = numerics.runtime_baseline_bytes;
  return memory;
}

base::Status check_worker_memory(const WorkerMemory& memory, base::Rank rank, int64_t bytes_max) {
  const int64_t total = memory.total();
  if (total <= bytes_max) return base::Status::ok();
  std::vector<WorkerMemory::Item> items = memory.items();
  std::stable_sort(items.begin(), items.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return base::resource_exhausted("rank " + std::to_string(rank.value()) + " needs " +
                                  std::to_string(total) + " bytes, the device has " +
                                  std::to_string(bytes_max) + "; most go to " + items[0].name +
                                  " (" + std::to_string(items[0].bytes) + ") and " + items[1].name +
                                  " (" + std::to_string(items[1].bytes) + ")");
}

}  // namespace perdure::parallel
