#pragma once
// Predicts the memory of one worker before anything is allocated, item by item, so that a job that
// does not fit is refused with a table instead of dying in its first step.

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/activation_plan.h"
#include "parallel/schedule.h"

namespace perdure::parallel {

// What the planner cannot know by itself.
struct NumericsMemory {
  int64_t accumulator_bytes_per_element = 8;  // 8 or 4 in fixed point, 4 in floating point
  // Fixed point: elements that share an exponent, and so one int16 and one float maximum. 0: none.
  int64_t block_elements = 0;
  // Grains of several micro-batches are summed in f32 first: 4, else 0.
  int64_t grain_bytes_per_element = 0;
  int64_t snapshot_copies = 0;         // of the state, in the memory of the node
  int64_t workspace_bytes = 0;         // scratch of the device's ops
  int64_t runtime_baseline_bytes = 0;  // code, libraries, transport
};

struct WorkerMemory {
  int64_t parameters = 0;             // f32
  int64_t moments = 0;                // Adam's m and v, f32
  int64_t low_precision = 0;          // bf16 copies of what matrix products read; bf16 runs only
  int64_t gradient_accumulators = 0;  // with exponents and maxima of fixed point
  int64_t gradient_grains = 0;
  int64_t activations = 0;       // stash slots x layers of the stage
  int64_t activation_grads = 0;  // one set of the largest layer, or slots x layers when split
  int64_t boundary = 0;          // per slot: residual gradient [R, C] f32, tokens, targets
  int64_t snapshots = 0;         // parameters and moments, with exponents and maxima
  int64_t workspace = 0;
  int64_t runtime_baseline = 0;

  int64_t total() const;
  struct Item {
    std::string name;
    int64_t bytes;
  };
  std::vector<Item> items() const;  // in the order above; they sum to total()
};

// Every buffer is counted with the padding to 64 bytes that allocation gives it.
WorkerMemory plan_worker_memory(const ModelSpec& model, const Layout& layout,
                                const Schedule& schedule, base::Rank rank, const BatchShape& batch,
                                const NumericsMemory& numerics);

// kResourceExhausted tells rank, need, limit and the two largest items.
base::Status check_worker_memory(const WorkerMemory& memory, base::Rank rank, int64_t bytes_max);

}  // namespace perdure::parallel
