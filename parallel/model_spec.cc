#include "parallel/model_spec.h"

#include <cmath>
#include <initializer_list>
#include <utility>

namespace perdure::parallel {
namespace {

using base::LayerId;
using base::Result;
using base::Status;
using base::TensorId;

constexpr double kInitStd = 0.02;
// Bounds keep every product of sizes far inside 64 bits; they are not meant as advice.
constexpr int64_t kLayersMax = 1 << 16;
constexpr int64_t kWidthMax = 1 << 20;
constexpr int64_t kVocabularyMax = (int64_t{1} << 31) - 1;  // token ids are int32
constexpr int64_t kContextMax = 1 << 24;

std::string named(const char* key, int64_t value) {
  return std::string("model.") + key + " (" + std::to_string(value) + ")";
}

struct Range {
  const char* key;
  int64_t value;
  int64_t least;
  int64_t most;
};

Status check_ranges(const ModelConfig& c) {
  for (const Range& r :
       std::initializer_list<Range>{{"layers", c.layers, 1, kLayersMax},
                                    {"width", c.width, 1, kWidthMax},
                                    {"heads", c.heads, 1, kWidthMax},
                                    {"kv_heads", c.kv_heads, 0, kWidthMax},
                                    {"ffn_width", c.ffn_width, 0, 4 * kWidthMax},
                                    {"vocabulary", c.vocabulary, 2, kVocabularyMax},
                                    {"context", c.context, 1, kContextMax}}) {
    if (r.value < r.least || r.value > r.most) {
      return base::invalid_argument(named(r.key, r.value) + " must be from " +
                                    std::to_string(r.least) + " to " + std::to_string(r.most));
    }
  }
  return Status::ok();
}

Status check_config(const ModelConfig& c) {
  RETURN_IF_ERROR(check_ranges(c));
  if (c.width % c.heads != 0) {
    return base::invalid_argument(named("width", c.width) + " must be a multiple of " +
                                  named("heads", c.heads));
  }
  if (c.kv_heads != 0 && c.heads % c.kv_heads != 0) {
    return base::invalid_argument(named("heads", c.heads) + " must be a multiple of " +
                                  named("kv_heads", c.kv_heads));
  }
  if (c.family == Family::kGpt2 && c.kv_heads != 0 && c.kv_heads != c.heads) {
    return base::invalid_argument(named("kv_heads", c.kv_heads) + " must be 0 or equal to " +
                                  named("heads", c.heads) + " with model.family = \"gpt2\"");
  }
  if (c.family == Family::kLlama && c.head_size() % 2 != 0) {
    return base::invalid_argument(named("width", c.width) + " / " + named("heads", c.heads) +
                                  " must be even: rotary positions turn pairs");
  }
  if (!std::isfinite(c.norm_epsilon) || c.norm_epsilon <= 0.0 || c.norm_epsilon >= 1.0) {
    return base::invalid_argument("model.norm_epsilon (" + std::to_string(c.norm_epsilon) +
                                  ") must be above 0 and below 1");
  }
  if (!std::isfinite(c.rope_theta) || c.rope_theta <= 1.0) {
    return base::invalid_argument("model.rope_theta (" + std::to_string(c.rope_theta) +
                                  ") must be above 1");
  }
  return Status::ok();
}

int64_t default_ffn_width(const ModelConfig& c) {
  if (c.family == Family::kGpt2) return 4 * c.width;
  constexpr int64_t kMultiple = 32;
  return (8 * c.width + 3 * kMultiple - 1) / (3 * kMultiple) * kMultiple;
}

// Appends tensors and layers to a spec, in the order that numbers them.
class Builder {
 public:
  explicit Builder(const ModelConfig& config) { spec_.config = config; }

  ModelSpec build() && {
    add_embedding();
    for (int64_t i = 0; i < spec_.config.layers; ++i) add_block(i);
    add_head();
    return std::move(spec_);
  }

 private:
  bool is_gpt2() const { return spec_.config.family == Family::kGpt2; }
  double residual_std() const {
    return kInitStd / std::sqrt(2.0 * static_cast<double>(spec_.config.layers));
  }

  void begin_layer(LayerKind kind, std::string name) {
    spec_.layers.push_back({kind, std::move(name), {}});
  }
  void add(Role role, TensorSpec tensor) {
    const TensorId id(static_cast<uint32_t>(spec_.tensors.size()));
    tensor.name = spec_.layers.back().name + "." + tensor.name;
    spec_.tensors.push_back(std::move(tensor));
    spec_.layers.back().tensors.push_back({role, id});
  }
  void add_matrix(Role role, const char* name, std::vector<int64_t> shape, double std) {
    add(role, {name, std::move(shape), Init::kNormal, std, Decay::kYes, TensorUse::kMatrix});
  }
  void add_vector(Role role, const char* name, int64_t size, Init init) {
    add(role, {name, {size}, init, 0.0, Decay::kNo, TensorUse::kVector});
  }
  void add_bias(Role role, const char* name, int64_t size) {
    if (is_gpt2()) add_vector(role, name, size, Init::kZero);
  }

  void add_embedding() {
    const ModelConfig& c = spec_.config;
    begin_layer(LayerKind::kEmbedding, "embedding");
    add_matrix(Role::kTokenTable, "tokens.weight", {c.vocabulary, c.width}, kInitStd);
    if (is_gpt2()) {
      add_matrix(Role::kPositionTable, "positions.weight", {c.context, c.width}, kInitStd);
    }
  }

  void add_block(int64_t index) {
    const ModelConfig& c = spec_.config;
    const int64_t qkv = (c.heads + 2 * c.kv_heads) * c.head_size();
    const int64_t ffn_in = is_gpt2() ? c.ffn_width : 2 * c.ffn_width;
    begin_layer(LayerKind::kBlock, "blocks." + std::to_string(index));
    add_vector(Role::kNorm1Gamma, "norm1.gamma", c.width, Init::kOne);
    add_bias(Role::kNorm1Beta, "norm1.beta", c.width);
    add_matrix(Role::kQkvWeight, "attention.qkv.weight", {qkv, c.width}, kInitStd);
    add_bias(Role::kQkvBias, "attention.qkv.bias", qkv);
    add_matrix(Role::kAttentionOutWeight, "attention.out.weight", {c.width, c.width},
               residual_std());
    add_bias(Role::kAttentionOutBias, "attention.out.bias", c.width);
    add_vector(Role::kNorm2Gamma, "norm2.gamma", c.width, Init::kOne);
    add_bias(Role::kNorm2Beta, "norm2.beta", c.width);
    add_matrix(Role::kFfnInWeight, "ffn.in.weight", {ffn_in, c.width}, kInitStd);
    add_bias(Role::kFfnInBias, "ffn.in.bias", ffn_in);
    add_matrix(Role::kFfnOutWeight, "ffn.out.weight", {c.width, c.ffn_width}, residual_std());
    add_bias(Role::kFfnOutBias, "ffn.out.bias", c.width);
  }

  void add_head() {
    const ModelConfig& c = spec_.config;
    begin_layer(LayerKind::kHead, "head");
    add_vector(Role::kFinalGamma, "norm.gamma", c.width, Init::kOne);
    add_bias(Role::kFinalBeta, "norm.beta", c.width);
    if (c.embeddings == Embeddings::kTied) {
      const TensorId table = spec_.find(LayerId(0), Role::kTokenTable);
      spec_.layers.back().tensors.push_back({Role::kHeadWeight, table});
    } else {
      add_matrix(Role::kHeadWeight, "weight", {c.vocabulary, c.width}, kInitStd);
    }
  }

  ModelSpec spec_;
};

const TensorUseInLayer* find_use(const ModelSpec& spec, LayerId layer, Role role) {
  CHECK_LT(layer.value(), spec.layers.size());
  for (const TensorUseInLayer& use : spec.layers[layer.value()].tensors) {
    if (use.role == role) return &use;
  }
  return nullptr;
}

}  // namespace

int64_t TensorSpec::elements() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

int64_t ModelSpec::parameters() const {
  int64_t sum = 0;
  for (const TensorSpec& spec : tensors) sum += spec.elements();
  return sum;
}

const TensorSpec& ModelSpec::tensor(TensorId id) const {
  CHECK_LT(id.value(), tensors.size());
  return tensors[id.value()];
}

TensorId ModelSpec::find(LayerId layer, Role role) const {
  const TensorUseInLayer* use = find_use(*this, layer, role);
  CHECK(use != nullptr) << "layer " << layer << " has no tensor of role " << static_cast<int>(role);
  return use->tensor;
}

bool ModelSpec::has(LayerId layer, Role role) const {
  return find_use(*this, layer, role) != nullptr;
}

Result<ModelSpec> make_model_spec(const ModelConfig& config) {
  RETURN_IF_ERROR(check_config(config));
  ModelConfig full = config;
  if (full.kv_heads == 0) full.kv_heads = full.heads;
  if (full.ffn_width == 0) full.ffn_width = default_ffn_width(full);
  ModelSpec spec = Builder(full).build();
  CHECK_EQ(spec.layers.size(), static_cast<size_t>(config.layers) + 2);
  return spec;
}

}  // namespace perdure::parallel
