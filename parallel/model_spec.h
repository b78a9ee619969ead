#pragma once
// The model as a list of layers and of named parameter tensors. Everything else in parallel/ (cost,
// partition, layout, schedule, memory) is computed from this; the engine builds what it finds here.
//
// Layer 0 is the embedding, layers 1..L the blocks, layer L+1 the head (final norm, projection on
// the vocabulary, loss). A tensor may belong to two layers (tied embeddings): then every rank that
// holds either layer holds it, and its gradient is the sum over both uses.

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace perdure::parallel {

enum class Family : uint8_t { kGpt2, kLlama };
enum class Embeddings : uint8_t { kTied, kUntied };
enum class ComputeType : uint8_t { kF32, kBF16 };

struct ModelConfig {
  Family family = Family::kLlama;
  int64_t layers = 4;
  int64_t width = 128;
  int64_t heads = 4;
  int64_t kv_heads = 0;   // 0: heads. == heads for GPT-2; heads % kv_heads == 0 (grouped-query)
  int64_t ffn_width = 0;  // 0: 4 * width for GPT-2; round_up(8/3 * width, 32) for Llama
  int64_t vocabulary = 256;
  int64_t context = 64;  // tokens per sample
  Embeddings embeddings = Embeddings::kTied;
  double norm_epsilon = 1e-5;
  double rope_theta = 10000.0;  // Llama only
  int64_t head_size() const { return width / heads; }
};

enum class LayerKind : uint8_t { kEmbedding, kBlock, kHead };
enum class Init : uint8_t { kZero, kOne, kNormal };
enum class Decay : uint8_t { kNo, kYes };
// kMatrix: read in the compute type (a bf16 copy exists in bf16 runs). kVector: read as f32.
enum class TensorUse : uint8_t { kMatrix, kVector };

// What a tensor is to the layer that holds it; the engine finds its operands by role.
enum class Role : uint8_t {
  kTokenTable,     // [V, C]
  kPositionTable,  // [context, C], GPT-2
  kNorm1Gamma,
  kNorm1Beta,  // [C]
  kQkvWeight,
  kQkvBias,  // [(H + 2 Hkv) * D, C]
  kAttentionOutWeight,
  kAttentionOutBias,  // [C, C]
  kNorm2Gamma,
  kNorm2Beta,
  kFfnInWeight,
  kFfnInBias,  // [F, C]; Llama: [2F, C], gate rows then up rows
  kFfnOutWeight,
  kFfnOutBias,  // [C, F]
  kFinalGamma,
  kFinalBeta,
  kHeadWeight,  // [V, C]; tied: the tensor of kTokenTable
};

struct TensorSpec {
  std::string name;  // "blocks.3.attention.qkv.weight"; keys the initial weights
  std::vector<int64_t> shape;
  Init init = Init::kZero;
  double init_std = 0.0;     // kNormal: 0.02, residual projections 0.02 / sqrt(2 * layers)
  Decay decay = Decay::kNo;  // matrices yes; norms, biases no
  TensorUse use = TensorUse::kVector;
  int64_t elements() const;
};

struct TensorUseInLayer {
  Role role;
  base::TensorId tensor;
};

struct LayerSpec {
  LayerKind kind;
  std::string name;  // "embedding", "blocks.0", "head"
  std::vector<TensorUseInLayer> tensors;
};

struct ModelSpec {
  ModelConfig config;
  std::vector<TensorSpec> tensors;
  std::vector<LayerSpec> layers;

  int64_t parameters() const;  // tied tensors counted once
  const TensorSpec& tensor(base::TensorId id) const;
  // The tensor with this role in this layer; CHECKs that there is one.
  base::TensorId find(base::LayerId layer, Role role) const;
  bool has(base::LayerId layer, Role role) const;
};

// The config in the result has its zeros (kv_heads, ffn_width) filled in.
// kInvalidArgument names the field: "model.width (130) must be a multiple of model.heads (4)".
base::Result<ModelSpec> make_model_spec(const ModelConfig& config);

}  // namespace perdure::parallel
