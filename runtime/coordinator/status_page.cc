// What `perdure status` shows.

#include <nlohmann/json.hpp>

#include "runtime/coordinator/coordinator.h"

namespace perdure::runtime::coordinator {

std::string Coordinator::status_json() const {
  nlohmann::ordered_json page;
  page["job"] = options_.job_id;
  page["phase"] = to_string(machine_.phase());
  page["epoch"] = machine_.epoch().value();
  page["committed_step"] = machine_.committed().value();
  page["recoveries"] = machine_.recoveries();
  page["coordinator_life"] = life_.value();
  page["stale_messages_refused"] = machine_.stale_events();
  page["nodes"] = nlohmann::ordered_json::array();
  const base::Nanos now = clock_.now();
  for (const auto& [id, info] : table_.nodes()) {
    nlohmann::ordered_json node;
    node["node"] = id.value();
    node["alive"] = info.state == membership::NodeState::kAlive;
    node["incarnation"] = info.incarnation.value();
    node["heard_ms_ago"] = base::to_ms(now - info.heard_last);
    node["workers"] = nlohmann::ordered_json::array();
    const auto found = nodes_.find(id);
    if (found != nodes_.end()) {
      for (const auto& [worker, up] : found->second.workers) {
        nlohmann::ordered_json entry;
        entry["worker"] = worker.value();
        entry["pid"] = up.pid;
        const auto rank = machine_.rank_of(worker, up.incarnation);
        if (rank.has_value()) {
          entry["rank"] = rank->value();
        } else {
          entry["rank"] = "stand-by";
        }
        node["workers"].push_back(std::move(entry));
      }
    }
    page["nodes"].push_back(std::move(node));
  }
  return page.dump();
}

}  // namespace perdure::runtime::coordinator
