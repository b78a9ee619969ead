#include "recovery/epoch_plan.h"

#include <algorithm>

namespace perdure::recovery {

base::Status check_shape(const parallel::ModelSpec& model, const EpochPlan& plan) {
  RETURN_IF_ERROR(parallel::check_layout(model, plan.layout));
  const uint32_t ranks = plan.layout.ranks();
  for (const parallel::TensorMove& move : plan.moves) {
    if (move.from.value() >= ranks || move.to.value() >= ranks || move.from == move.to ||
        move.tensor.value() >= model.tensors.size()) {
      return base::invalid_argument("plan moves tensor " + std::to_string(move.tensor.value()) +
                                    " between ranks " + std::to_string(move.from.value()) +
                                    " and " + std::to_string(move.to.value()));
    }
  }
  return base::Status::ok();
}

base::Status check_plan(const parallel::ModelSpec& model, const EpochPlan& plan) {
  RETURN_IF_ERROR(check_shape(model, plan));
  if (plan.members.size() != plan.layout.ranks()) {
    return base::invalid_argument("plan of epoch " + std::to_string(plan.epoch.value()) + " has " +
                                  std::to_string(plan.members.size()) + " members for " +
                                  std::to_string(plan.layout.ranks()) + " ranks");
  }
  std::vector<base::WorkerId> workers;
  workers.reserve(plan.members.size());
  for (const PlanMember& member : plan.members) workers.push_back(member.worker);
  std::sort(workers.begin(), workers.end());
  const auto twice = std::adjacent_find(workers.begin(), workers.end());
  if (twice != workers.end()) {
    return base::invalid_argument("worker " + std::to_string(twice->value()) + " has two ranks");
  }
  return base::Status::ok();
}

std::optional<base::Rank> rank_of(const EpochPlan& plan, base::WorkerId worker,
                                  base::Incarnation incarnation) {
  for (size_t r = 0; r < plan.members.size(); ++r) {
    if (plan.members[r].worker == worker && plan.members[r].incarnation == incarnation) {
      return base::Rank(static_cast<uint32_t>(r));
    }
  }
  return std::nullopt;
}

}  // namespace perdure::recovery
