#include "parallel/layout.h"

#include <algorithm>
#include <string>

#include "parallel/partition.h"

namespace perdure::parallel {
namespace {

using base::Rank;
using base::Result;
using base::Status;
using base::TensorId;

// Where a rank sits; CHECKs that it is there.
struct Position {
  size_t pipeline;
  size_t stage;
};

Position find_rank(const Layout& layout, Rank rank) {
  // A legal layout is numbered pipeline by pipeline.
  const auto after = std::partition_point(
      layout.pipelines.begin(), layout.pipelines.end(), [rank](const PipelinePlace& pipeline) {
        return pipeline.stages.empty() || pipeline.stages.front().rank <= rank;
      });
  if (after != layout.pipelines.begin()) {
    const std::vector<StagePlace>& stages = std::prev(after)->stages;
    for (size_t s = 0; s < stages.size(); ++s) {
      if (stages[s].rank == rank)
        return {static_cast<size_t>(after - layout.pipelines.begin()) - 1, s};
    }
  }
  for (size_t p = 0; p < layout.pipelines.size(); ++p) {
    const std::vector<StagePlace>& stages = layout.pipelines[p].stages;
    for (size_t s = 0; s < stages.size(); ++s) {
      if (stages[s].rank == rank) return {p, s};
    }
  }
  CHECK(false) << "rank " << rank << " of " << layout.ranks();
  return {0, 0};
}

// For each tensor the layers that use it, ascending.
std::vector<std::vector<uint32_t>> layers_of_tensors(const ModelSpec& model) {
  std::vector<std::vector<uint32_t>> layers(model.tensors.size());
  for (uint32_t l = 0; l < model.layers.size(); ++l) {
    for (const TensorUseInLayer& use : model.layers[l].tensors) {
      layers[use.tensor.value()].push_back(l);
    }
  }
  return layers;
}

std::vector<Rank> holders_of_layers(const Layout& layout, const std::vector<uint32_t>& layers) {
  std::vector<Rank> holders;
  for (const PipelinePlace& pipeline : layout.pipelines) {
    for (const StagePlace& stage : pipeline.stages) {
      const bool holds = std::any_of(layers.begin(), layers.end(), [&stage](uint32_t l) {
        return l >= stage.layer_begin && l < stage.layer_end;
      });
      if (holds) holders.push_back(stage.rank);
    }
  }
  std::sort(holders.begin(), holders.end());
  return holders;
}

std::string where(size_t pipeline, size_t stage) {
  return "layout: pipeline " + std::to_string(pipeline) + ", stage " + std::to_string(stage);
}

Status check_stages(const ModelSpec& model, const Layout& layout) {
  uint32_t rank_next = 0;
  for (size_t p = 0; p < layout.pipelines.size(); ++p) {
    uint32_t layer_next = 0;
    const std::vector<StagePlace>& stages = layout.pipelines[p].stages;
    for (size_t s = 0; s < stages.size(); ++s) {
      const StagePlace& stage = stages[s];
      if (stage.rank.value() != rank_next) {
        return base::invalid_argument(where(p, s) + " has rank " +
                                      std::to_string(stage.rank.value()) + ", expected " +
                                      std::to_string(rank_next));
      }
      if (stage.layer_begin != layer_next) {
        return base::invalid_argument(where(p, s) + " begins at layer " +
                                      std::to_string(stage.layer_begin) + ", expected " +
                                      std::to_string(layer_next));
      }
      if (stage.layer_end <= stage.layer_begin) {
        return base::invalid_argument(where(p, s) + " has no layer");
      }
      layer_next = stage.layer_end;
      ++rank_next;
    }
    if (layer_next != model.layers.size()) {
      return base::invalid_argument("layout: pipeline " + std::to_string(p) + " holds " +
                                    std::to_string(layer_next) + " of " +
                                    std::to_string(model.layers.size()) + " layers");
    }
  }
  return Status::ok();
}

Status check_options(const ModelSpec& model, const LayoutOptions& o) {
  if (o.pipelines == 0 || o.stages == 0 || o.micro_batches == 0 || o.grain == 0) {
    return base::invalid_argument(
        "layout: pipelines, stages, micro_batches and grain must be at least 1");
  }
  if (model.layers.size() < o.stages) {
    return base::invalid_argument(
        "layout: " + std::to_string(o.stages) + " stages need as many layers, the model has " +
        std::to_string(model.layers.size()) + " (embedding and head included)");
  }
  if (o.micro_batches % o.grain != 0) {
    return base::invalid_argument("layout: micro_batches (" + std::to_string(o.micro_batches) +
                                  ") must be a multiple of grain (" + std::to_string(o.grain) +
                                  ")");
  }
  if (o.micro_batches / o.grain < o.pipelines) {
    return base::invalid_argument(
        "layout: " + std::to_string(o.pipelines) + " pipelines need as many grains, the step has " +
        std::to_string(o.micro_batches / o.grain) + " (" + std::to_string(o.micro_batches) +
        " micro-batches in grains of " + std::to_string(o.grain) + ")");
  }
  return Status::ok();
}

}  // namespace

uint32_t Layout::ranks() const {
  size_t count = 0;
  for (const PipelinePlace& pipeline : pipelines) count += pipeline.stages.size();
  return static_cast<uint32_t>(count);
}

RankPlace Layout::place(Rank rank) const {
  const Position position = find_rank(*this, rank);
  return {base::PipelineId(static_cast<uint32_t>(position.pipeline)),
          base::StageId(static_cast<uint32_t>(position.stage))};
}

const StagePlace& Layout::stage(Rank rank) const {
  const Position position = find_rank(*this, rank);
  return pipelines[position.pipeline].stages[position.stage];
}

const PipelinePlace& Layout::pipeline(Rank rank) const {
  return pipelines[find_rank(*this, rank).pipeline];
}

std::vector<TensorId> Layout::tensors(const ModelSpec& model, Rank rank) const {
  const StagePlace& place = stage(rank);
  CHECK_LE(place.layer_end, model.layers.size());
  std::vector<TensorId> list;
  for (uint32_t l = place.layer_begin; l < place.layer_end; ++l) {
    for (const TensorUseInLayer& use : model.layers[l].tensors) list.push_back(use.tensor);
  }
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

std::vector<Rank> Layout::holders(const ModelSpec& model, TensorId tensor) const {
  CHECK_LT(tensor.value(), model.tensors.size());
  return holders_of_layers(*this, layers_of_tensors(model)[tensor.value()]);
}

Rank Layout::speaker(const ModelSpec& model, TensorId tensor) const {
  const std::vector<Rank> list = holders(model, tensor);
  CHECK(!list.empty()) << "nobody holds tensor " << tensor;
  return list.front();
}

std::vector<ReduceBucket> Layout::all_buckets(const ModelSpec& model) const {
  const std::vector<std::vector<uint32_t>> layers = layers_of_tensors(model);
  std::vector<ReduceBucket> buckets;
  // Tensor ids ascend with the layers (a tied tensor counts where backward is done with it, at its
  // first layer), so descending ids are the order in which backward completes gradients.
  for (size_t t = model.tensors.size(); t-- > 0;) {
    std::vector<Rank> holders = holders_of_layers(*this, layers[t]);
    if (buckets.empty() || buckets.back().holders != holders) {
      buckets.push_back({{}, std::move(holders)});
    }
    buckets.back().tensors.push_back(TensorId(static_cast<uint32_t>(t)));
  }
  for (ReduceBucket& bucket : buckets) std::reverse(bucket.tensors.begin(), bucket.tensors.end());
  return buckets;
}

std::vector<ReduceBucket> Layout::buckets(const ModelSpec& model, Rank rank) const {
  std::vector<ReduceBucket> list = all_buckets(model);
  std::erase_if(list, [rank](const ReduceBucket& bucket) {
    return !std::binary_search(bucket.holders.begin(), bucket.holders.end(), rank);
  });
  return list;
}

Result<Layout> make_layout(const ModelSpec& model, const LayoutOptions& options,
                           const std::vector<double>& layer_cost) {
  RETURN_IF_ERROR(check_options(model, options));
  CHECK_EQ(layer_cost.size(), model.layers.size());
  const std::vector<uint32_t> borders = partition_minimax(layer_cost, options.stages);
  const uint32_t grains = options.micro_batches / options.grain;
  const uint32_t grains_each = grains / options.pipelines;
  const uint32_t pipelines_larger = grains % options.pipelines;

  Layout layout;
  layout.micro_batches = options.micro_batches;
  uint32_t rank = 0;
  uint32_t micro_batch = 0;
  for (uint32_t p = 0; p < options.pipelines; ++p) {
    PipelinePlace pipeline;
    for (uint32_t s = 0; s < options.stages; ++s) {
      pipeline.stages.push_back({Rank(rank++), borders[s], borders[s + 1]});
    }
    pipeline.micro_batch_begin = micro_batch;
    micro_batch += (grains_each + (p < pipelines_larger ? 1 : 0)) * options.grain;
    pipeline.micro_batch_end = micro_batch;
    layout.pipelines.push_back(std::move(pipeline));
  }
  const Status status = check_layout(model, layout);
  CHECK(status.is_ok()) << status;
  return layout;
}

Status check_layout(const ModelSpec& model, const Layout& layout) {
  if (layout.pipelines.empty()) return base::invalid_argument("layout: no pipeline");
  RETURN_IF_ERROR(check_stages(model, layout));
  uint32_t micro_batch = 0;
  for (size_t p = 0; p < layout.pipelines.size(); ++p) {
    const PipelinePlace& pipeline = layout.pipelines[p];
    if (pipeline.micro_batch_begin != micro_batch ||
        pipeline.micro_batch_end <= pipeline.micro_batch_begin) {
      return base::invalid_argument(
          "layout: pipeline " + std::to_string(p) + " computes micro-batches [" +
          std::to_string(pipeline.micro_batch_begin) + ", " +
          std::to_string(pipeline.micro_batch_end) + "), expected to begin at " +
          std::to_string(micro_batch) + " and to have at least one");
    }
    micro_batch = pipeline.micro_batch_end;
  }
  if (micro_batch != layout.micro_batches) {
    return base::invalid_argument("layout: pipelines compute " + std::to_string(micro_batch) +
                                  " of " + std::to_string(layout.micro_batches) + " micro-batches");
  }
  return Status::ok();
}

}  // namespace perdure::parallel
