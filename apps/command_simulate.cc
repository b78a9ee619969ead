// perdure simulate control: the job's control plane in the simulated world, seed after seed, with
// faults and invariants; or at one size, to see what it costs.

#include <chrono>
#include <cstdio>
#include <map>

#include "apps/commands.h"
#include "apps/simulate_scale.h"
#include "base/log.h"
#include "base/posix_process.h"
#include "chaos/cluster/fault_script.h"

namespace perdure::apps {
namespace {

using chaos::cluster::ClusterOptions;
using chaos::cluster::SeedOptions;
using chaos::cluster::SeedResult;

struct SimulateArguments {
  uint64_t seeds = 100;
  uint64_t first = 1;
  uint64_t seed = 0;  // 0: all
  uint32_t nodes = 64;
  uint32_t workers_per_node = 1;
  uint32_t pipelines = 0;
  uint32_t stages = 0;
  uint64_t steps = 20;
  uint32_t strikes = 6;
  bool snapshots = false;
  bool tell = false;
  bool require_goals = false;
};

// As square as it gets: stages of four where there are enough workers.
ClusterOptions cluster_of(const SimulateArguments& a) {
  const uint32_t workers = a.nodes * a.workers_per_node;
  ClusterOptions cluster;
  cluster.nodes = a.nodes;
  cluster.workers_per_node = a.workers_per_node;
  cluster.stages = a.stages != 0 ? a.stages : (workers >= 8 ? 4 : workers >= 4 ? 2 : 1);
  cluster.pipelines = a.pipelines != 0 ? a.pipelines : std::max(1u, workers / cluster.stages);
  cluster.micro_batches = 2 * cluster.pipelines;
  cluster.steps = a.steps;
  return cluster;
}

void print_story(const SeedResult& result) {
  for (const std::string& line : result.story) std::printf("  %s\n", line.c_str());
}

std::string repeat_command(const SimulateArguments& a, uint64_t seed) {
  std::string text = "perdure simulate control --seed " + std::to_string(seed) + " --nodes " +
                     std::to_string(a.nodes) + " --workers-per-node " +
                     std::to_string(a.workers_per_node) + " --steps " + std::to_string(a.steps) +
                     " --strikes " + std::to_string(a.strikes) +
                     (a.snapshots ? " --snapshots" : "");
  if (a.pipelines != 0) text += " --pipelines " + std::to_string(a.pipelines);
  if (a.stages != 0) text += " --stages " + std::to_string(a.stages);
  return text + " --tell";
}

int run_control(const SimulateArguments& a) {
  const base::Status quiet = base::set_log_levels(a.tell ? "info" : "error");
  CHECK(quiet.is_ok());
  const ClusterOptions cluster = cluster_of(a);
  if (uint64_t{cluster.pipelines} * cluster.stages > uint64_t{a.nodes} * a.workers_per_node) {
    return report_wrong_input(
        base::invalid_argument("--pipelines x --stages is more than --nodes x --workers-per-node"));
  }
  std::map<std::string, uint64_t> goals;
  uint64_t strikes = 0, skipped = 0, recoveries = 0, events = 0, failed = 0;
  const uint64_t begin = a.seed != 0 ? a.seed : a.first;
  const uint64_t end = a.seed != 0 ? a.seed + 1 : a.first + a.seeds;
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  double told_at = 0.0;
  for (uint64_t seed = begin; seed < end; ++seed) {
    SeedOptions options;
    options.cluster = cluster;
    options.cluster.seed = seed;
    options.strikes_max = a.strikes;
    options.cluster.snapshots = a.snapshots;
    options.tell = a.tell;
    const SeedResult result = chaos::cluster::run_seed(options);
    for (const std::string& goal : result.goals) ++goals[goal];
    strikes += result.strikes;
    skipped += result.skipped;
    recoveries += result.recoveries;
    events += result.events;
    if (a.tell || !result.problem.empty()) print_story(result);
    if (!result.problem.empty()) {
      ++failed;
      std::printf("seed %llu FAILED: %s\n  repeat: %s\n", static_cast<unsigned long long>(seed),
                  result.problem.c_str(), repeat_command(a, seed).c_str());
      if (failed >= 10) break;
    }
    if (seconds() - told_at > 10.0) {
      told_at = seconds();
      std::printf("%llu seeds, %.0f s\n", static_cast<unsigned long long>(seed - begin + 1),
                  told_at);
      std::fflush(stdout);
    }
  }
  for (const auto& [goal, count] : goals)
    std::printf("reached %8llu times: %s\n", static_cast<unsigned long long>(count), goal.c_str());
  uint64_t missed = 0;
  for (const std::string& goal : chaos::cluster::required_goals()) {
    if (goals.contains(goal)) continue;
    ++missed;
    std::printf("NOT reached: %s\n", goal.c_str());
  }
  const double took = seconds();
  const double count = static_cast<double>(end - begin);
  std::printf(
      "%llu seeds of %u nodes x %u workers: %llu faults (%llu more would have lost state), %llu "
      "recoveries, %llu events; %.1f s, %.0f seeds an hour (%.0f in an hour of CPU time), %llu "
      "MB\n",
      static_cast<unsigned long long>(end - begin), a.nodes, a.workers_per_node,
      static_cast<unsigned long long>(strikes), static_cast<unsigned long long>(skipped),
      static_cast<unsigned long long>(recoveries), static_cast<unsigned long long>(events), took,
      count / took * 3600.0, count / base::to_seconds(base::thread_cpu_time()) * 3600.0,
      static_cast<unsigned long long>(base::process_usage().resident_peak_bytes >> 20));
  if (failed > 0) return report_error(base::internal(std::to_string(failed) + " seeds failed"));
  std::printf("all invariants hold\n");
  if (a.require_goals && missed > 0)
    return report_error(base::internal(std::to_string(missed) + " goals were not reached"));
  return kExitDone;
}

}  // namespace

void add_simulate_command(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("simulate", "Run parts of Perdure in a simulated world");
  command->require_subcommand(1);
  add_scale_command(*command, action);
  CLI::App* control = command->add_subcommand(
      "control", "Coordinator, agents and workers (real code, fake engines), with faults");
  auto a = std::make_shared<SimulateArguments>();
  control->add_option("--seeds", a->seeds, "How many seeds")
      ->check(CLI::Range(1ull, 1000000000ull));
  control->add_option("--first", a->first, "The first seed")->check(CLI::Range(1ull, ~0ull >> 1));
  control->add_option("--seed", a->seed, "Only this one");
  control->add_option("--nodes", a->nodes, "Nodes")->check(CLI::Range(1, 4096));
  control->add_option("--workers-per-node", a->workers_per_node, "Workers of each node")
      ->check(CLI::Range(1, 64));
  control->add_option("--pipelines", a->pipelines, "Target layout (default: as many as fit)");
  control->add_option("--stages", a->stages, "Target layout (default: 4, or what fits)")
      ->check(CLI::Range(1, 8));
  control->add_option("--steps", a->steps, "Steps of the job")->check(CLI::Range(1, 100000));
  control->add_option("--strikes", a->strikes, "At most so many faults in a run")
      ->check(CLI::Range(0, 1000));
  control->add_flag("--snapshots", a->snapshots,
                    "Nodes keep the last states of their workers: all holders of a layer may die");
  control->add_flag("--tell", a->tell, "Print faults and decisions of every seed");
  control->add_flag("--require-goals", a->require_goals,
                    "Fail when these seeds do not reach all that they should");
  control->footer(
      "Examples:\n"
      "  perdure simulate control --seeds 10000 --nodes 64\n"
      "  perdure simulate control --seed 42 --nodes 64 --tell\n"
      "\n"
      "A seed that fails prints the command that repeats it; exit code 3.");
  control->callback([a, &action] { action = [a] { return run_control(*a); }; });
}

}  // namespace perdure::apps
