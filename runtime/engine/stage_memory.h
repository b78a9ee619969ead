#pragma once
// StageMemory: all memory of one stage that is not model state: activations per slot and layer as
// parallel/activation_plan.h lists them, their gradients, boundary buffers, scratch of the layers.
//
// Threads: the engine thread only.

#include <array>
#include <span>
#include <vector>

#include "kernels/tensor.h"
#include "parallel/activation_plan.h"
#include "parallel/schedule.h"
#include "runtime/engine/memory_carver.h"

namespace perdure::runtime::engine {

// The activations of one layer for one micro-batch. What the plan does not list is absent.
class ActivationSet {
 public:
  const kernels::Tensor& operator[](parallel::Activation a) const {
    return tensors_[static_cast<size_t>(a)];
  }
  kernels::Tensor& operator[](parallel::Activation a) { return tensors_[static_cast<size_t>(a)]; }

 private:
  std::array<kernels::Tensor, static_cast<size_t>(parallel::Activation::kOutput) + 1> tensors_;
};

class ActivationGradSet {
 public:
  const kernels::Tensor& operator[](parallel::ActivationGrad g) const {
    return tensors_[static_cast<size_t>(g)];
  }
  kernels::Tensor& operator[](parallel::ActivationGrad g) {
    return tensors_[static_cast<size_t>(g)];
  }

 private:
  std::array<kernels::Tensor, static_cast<size_t>(parallel::ActivationGrad::kNorm2BetaGrad) + 1>
      tensors_;
};

// What crosses the border of a stage for one micro-batch.
struct Boundary {
  kernels::Tensor tokens;   // i32 [R]
  kernels::Tensor targets;  // i32 [R]
  kernels::Tensor
      residual;  // f32 [R, C]: gradient of the residual stream, changed layer by layer in backward
};

// Scratch that a layer may use within one call.
struct Scratch {
  kernels::Tensor narrow;               // T [R, C]
  kernels::Tensor wide;                 // T [R, F]
  kernels::Tensor vector;               // f32 [largest output width, at least 2 C]
  kernels::Tensor rope_table;           // f32 [context, D], Llama
  std::span<std::byte> head_workspace;  // of linear_cross_entropy, last stage
};

struct StageMemoryOptions {
  const parallel::ModelSpec* model = nullptr;
  parallel::StagePlace place;
  parallel::BatchShape batch;
  uint32_t slots = 1;
  uint32_t micro_batches_max = 1;  // losses kept until the vote
  bool splits_backward = false;    // the schedule has I and W apart
};

class StageMemory {
 public:
  StageMemory(const StageMemoryOptions& options, MemoryCarver& carver);

  // layer: model-wide id inside the stage.
  const ActivationSet& activations(uint32_t slot, uint32_t layer) const;
  const ActivationGradSet& grads(uint32_t slot, uint32_t layer) const;
  // Where the layer writes its result: the next layer's input, or the stage's output. Absent for
  // the head.
  const kernels::Tensor& output(uint32_t slot, uint32_t layer) const;
  const kernels::Tensor& stage_input(
      uint32_t slot) const;  // what a stage that is not the first receives into
  const Boundary& boundary(uint32_t slot) const { return boundaries_[slot]; }
  uint32_t slots() const { return options_.slots; }
  const Scratch& scratch() const { return scratch_; }
  kernels::Tensor loss(uint32_t index) const;  // f64 [1]

  static size_t bytes(const StageMemoryOptions& options);
  static size_t scratch_bytes(const StageMemoryOptions& options);  // the part of it that is scratch

 private:
  size_t at(uint32_t slot, uint32_t layer) const;

  const StageMemoryOptions options_;
  std::vector<ActivationSet> activations_;  // [slot][layer of the stage]
  std::vector<ActivationGradSet> grads_;    // one, or like activations_
  std::vector<Boundary> boundaries_;        // [slot]
  Scratch scratch_;
  kernels::Tensor losses_;  // f64 [micro_batches_max]
};

}  // namespace perdure::runtime::engine
