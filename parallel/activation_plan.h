#pragma once
// Which activations a layer keeps from forward to backward, per micro-batch: the one list from
// which the memory plan predicts and the engine allocates, so that the two cannot drift apart.

#include <cstdint>
#include <vector>

#include "parallel/model_spec.h"

namespace perdure::parallel {

// R = micro_batch * context rows. "T" is the compute type.
enum class Activation : uint8_t {
  // block
  kInput,         // f32 [R, C]   residual stream; the first layer of a stage receives into it
  kNorm1Mean,     // f32 [R]      GPT-2
  kNorm1Rstd,     // f32 [R]
  kNorm1Out,      // T   [R, C]
  kQkv,           // T   [R, (H + 2 Hkv) D]   after rotary positions
  kAttentionLse,  // f32 [B * H * context]
  kAttentionOut,  // T   [R, C]
  kMiddle,        // f32 [R, C]   residual stream after attention
  kNorm2Mean,
  kNorm2Rstd,
  kNorm2Out,  // T   [R, C]
  kFfnIn,     // T   [R, F] or [R, 2F]    before the activation function
  kFfnAct,    // T   [R, F]
  // head (has kInput too)
  kFinalMean,
  kFinalRstd,
  kFinalOut,  // T   [R, C]
  // every layer but the head: its output is the kInput of the next layer; the last layer of a stage
  // that is not the last stage has it here
  kOutput,  // f32 [R, C]
};

// Gradients of activations that the weight-gradient half of backward reads. One set per stage when
// backward is fused, one per layer and slot when the schedule splits it. Blocks only: the embedding
// has nothing but the residual gradient, and the head does both halves at once.
enum class ActivationGrad : uint8_t {
  kQkvGrad,           // T [R, (H + 2 Hkv) D]
  kAttentionOutGrad,  // T [R, C]   gradient of the attention block's result (residual gradient in
                      // T)
  kFfnInGrad,         // T [R, F] or [R, 2F]
  kFfnOutGrad,        // T [R, C]
  kNorm1GammaGrad,
  kNorm1BetaGrad,
  kNorm2GammaGrad,
  kNorm2BetaGrad,  // f32 [C]
};

struct BufferSpec {
  int64_t rows = 0;
  int64_t cols = 1;
  int64_t element_bytes = 4;
  // Every buffer starts on a 64-byte border.
  int64_t bytes() const { return (rows * cols * element_bytes + 63) / 64 * 64; }
};

struct ActivationSpec {
  Activation activation;
  BufferSpec buffer;
};
struct ActivationGradSpec {
  ActivationGrad grad;
  BufferSpec buffer;
};

struct BatchShape {
  int64_t micro_batch = 1;  // samples per micro-batch
  ComputeType compute = ComputeType::kF32;
};

// kLastOfStage adds kOutput (not for the head).
enum class StagePosition : uint8_t { kInner, kLastOfStage };

std::vector<ActivationSpec> layer_activations(const ModelSpec& model, base::LayerId layer,
                                              const BatchShape& batch, StagePosition position);
std::vector<ActivationGradSpec> layer_activation_grads(const ModelSpec& model, base::LayerId layer,
                                                       const BatchShape& batch);

}  // namespace perdure::parallel
