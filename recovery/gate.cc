#include "recovery/gate.h"

#include "parallel/transfer_plan.h"

namespace perdure::recovery {
namespace {

GateResult refuse(base::Rank rank, const std::string& text) {
  return {.status = base::data_loss("gate: rank " + std::to_string(rank.value()) + " " + text),
          .culprit = rank};
}

}  // namespace

GateResult check_gate(const parallel::ModelSpec& model, const EpochPlan& plan,
                      const std::vector<LoadedReport>& by_rank, const HeldDigests& before) {
  CHECK_EQ(by_rank.size(), plan.members.size());
  CHECK_EQ(before.by_tensor.size(), model.tensors.size());
  std::vector<std::optional<uint64_t>> seen(model.tensors.size());
  for (const parallel::PipelinePlace& pipeline : plan.layout.pipelines) {
    for (const parallel::StagePlace& stage : pipeline.stages) {
      const LoadedReport& report = by_rank[stage.rank.value()];
      if (!(report.committed == plan.resume)) {
        return refuse(stage.rank,
                      "loaded step " + std::to_string(report.committed.step.value()) + ", cursor " +
                          std::to_string(report.committed.samples_consumed) +
                          "; the plan resumes at step " + std::to_string(plan.resume.step.value()) +
                          ", cursor " + std::to_string(plan.resume.samples_consumed));
      }
      const std::vector<base::TensorId> expected =
          parallel::tensors_of_layers(model, stage.layer_begin, stage.layer_end);
      if (report.tensors.size() != expected.size()) {
        return refuse(stage.rank, "holds " + std::to_string(report.tensors.size()) +
                                      " tensors, its stage has " + std::to_string(expected.size()));
      }
      for (size_t i = 0; i < expected.size(); ++i) {
        const TensorDigest& told = report.tensors[i];
        const std::string& name = model.tensor(expected[i]).name;
        if (told.tensor != expected[i]) return refuse(stage.rank, "lacks " + name);
        const std::optional<uint64_t>& was = before.by_tensor[expected[i].value()];
        if (was.has_value() && *was != told.digest)
          return refuse(stage.rank, "has another " + name + " than before the change");
        std::optional<uint64_t>& other = seen[expected[i].value()];
        if (other.has_value() && *other != told.digest)
          return {.status = base::data_loss("gate: the holders of " + name + " differ")};
        other = told.digest;
      }
    }
  }
  for (uint32_t t = 0; t < seen.size(); ++t) {
    if (!seen[t].has_value())
      return {.status =
                  base::data_loss("gate: nobody holds " + model.tensor(base::TensorId(t)).name)};
  }
  return {};
}

}  // namespace perdure::recovery
