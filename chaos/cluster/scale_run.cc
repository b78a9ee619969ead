#include "chaos/cluster/scale_run.h"

#include <algorithm>

namespace perdure::chaos::cluster {
namespace {

constexpr base::Nanos kPatience = std::chrono::seconds(120);

ClusterOptions cluster_of(const ScaleOptions& o) {
  const uint32_t workers = o.nodes * o.workers_per_node;
  ClusterOptions c;
  c.nodes = o.nodes;
  c.workers_per_node = o.workers_per_node;
  c.stages = std::min(4u, workers);
  c.pipelines = workers / c.stages;
  c.micro_batches = 2 * c.pipelines;
  c.steps = 1'000'000;
  c.compute_mean = std::chrono::milliseconds(300);
  c.meter = o.meter;
  c.data.late = 0.0;
  return c;
}

struct Reading {
  base::Nanos at{0};
  base::Nanos work{0};
  runtime::coordinator::Coordinator::Traffic traffic;
};

Reading read(SimCluster& cluster) {
  return {cluster.world().now(), cluster.coordinator_work(), cluster.coordinator()->traffic()};
}

bool run_to_epoch(SimCluster& cluster, size_t count) {
  return cluster.world().run_until(
      [&] {
        return cluster.ledger().plans().size() >= count || cluster.outcome().has_value() ||
               !cluster.violation().empty();
      },
      cluster.world().now() + kPatience);
}

}  // namespace

ScaleResult run_scale(const ScaleOptions& options) {
  ScaleResult result;
  SimCluster cluster(cluster_of(options));
  cluster.start();
  const auto is_well = [&](bool arrived) {
    if (!cluster.violation().empty()) {
      result.problem = cluster.violation();
    } else if (cluster.outcome().has_value()) {
      result.problem = "the job ended: " + cluster.outcome()->to_string();
    } else if (!arrived) {
      result.problem = "nothing happens";
    }
    return result.problem.empty();
  };
  if (!is_well(run_to_epoch(cluster, 1))) return result;
  const Reading begin = read(cluster);
  cluster.world().run_until(cluster.world().now() + options.steady);
  if (!is_well(true)) return result;
  const Reading end = read(cluster);
  const double seconds = base::to_seconds(end.at - begin.at);
  result.steady_work = base::to_seconds(end.work - begin.work) / seconds;
  result.steady_frames = static_cast<double>(end.traffic.frames_in + end.traffic.frames_out -
                                             begin.traffic.frames_in - begin.traffic.frames_out) /
                         seconds;
  const auto change = [&](const std::string& struck) {
    const Reading before = read(cluster);
    if (struck == "node") {
      cluster.kill_node(base::NodeId(options.nodes / 2), Crash::kProcess);
    } else {
      cluster.kill_worker(base::WorkerId(options.workers_per_node));
    }
    if (!is_well(run_to_epoch(cluster, cluster.ledger().plans().size() + 1))) return false;
    const Reading after = read(cluster);
    result.changes.push_back({.struck = struck,
                              .decision = cluster.coordinator()->decision_time(),
                              .work = after.work - before.work,
                              .until_active = after.at - before.at,
                              .frames = after.traffic.frames_in + after.traffic.frames_out -
                                        before.traffic.frames_in - before.traffic.frames_out,
                              .bytes_out = after.traffic.bytes_out - before.traffic.bytes_out});
    return true;
  };
  if (change("node")) static_cast<void>(change("worker"));
  return result;
}

}  // namespace perdure::chaos::cluster
