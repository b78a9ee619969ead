// perdure simulate scale: what a coordinator costs, by the size of the job.

#include "apps/simulate_scale.h"

#include <cstdio>

#include "base/log.h"
#include "base/posix_process.h"
#include "chaos/cluster/scale_run.h"

namespace perdure::apps {
namespace {

using chaos::cluster::ChangeCost;
using chaos::cluster::ScaleResult;

struct ScaleArguments {
  uint32_t nodes_min = 64;
  uint32_t nodes_max = 2048;
  uint32_t workers_per_node = 8;
};

int run(const ScaleArguments& a) {
  const base::Status quiet = base::set_log_levels("error");
  CHECK(quiet.is_ok());
  std::printf(
      "Coordinator, agents and workers are the real code, on one thread in virtual time; engines "
      "and network are not real.\n"
      "steady: CPU of the coordinator's turns while the job trains; change: from a kill to the "
      "active epoch.\n\n"
      "%6s %8s | %8s %9s | %7s %9s %9s %8s %9s %11s | %7s\n",
      "nodes", "workers", "steady %", "messages", "killed", "decide ms", "change ms", "messages",
      "sent kB", "virtual ms", "peak MB");
  for (uint32_t nodes = a.nodes_min; nodes <= a.nodes_max; nodes *= 2) {
    const ScaleResult result = chaos::cluster::run_scale(
        {.nodes = nodes, .workers_per_node = a.workers_per_node, .meter = [] {
           return base::thread_cpu_time();
         }});
    if (!result.problem.empty()) return report_error(base::internal(result.problem));
    for (const ChangeCost& change : result.changes) {
      std::printf("%6u %8u | %8.2f %7.0f/s | %7s %9.2f %9.1f %8llu %9.1f %11.1f | %7llu\n", nodes,
                  nodes * a.workers_per_node, result.steady_work * 100.0, result.steady_frames,
                  change.struck.c_str(), base::to_ms(change.decision), base::to_ms(change.work),
                  static_cast<unsigned long long>(change.frames),
                  static_cast<double>(change.bytes_out) / 1e3, base::to_ms(change.until_active),
                  static_cast<unsigned long long>(base::process_usage().resident_peak_bytes >> 20));
    }
    std::fflush(stdout);
  }
  return kExitDone;
}

}  // namespace

void add_scale_command(CLI::App& simulate, Action& action) {
  CLI::App* command = simulate.add_subcommand(
      "scale", "What the coordinator costs: sizes doubled from --nodes-min to --nodes-max");
  auto a = std::make_shared<ScaleArguments>();
  command->add_option("--nodes-min", a->nodes_min, "First size")->check(CLI::Range(2, 4096));
  command->add_option("--nodes-max", a->nodes_max, "Last size")->check(CLI::Range(2, 4096));
  command->add_option("--workers-per-node", a->workers_per_node, "Workers of each node")
      ->check(CLI::Range(1, 64));
  command->callback([a, &action] { action = [a] { return run(*a); }; });
}

}  // namespace perdure::apps
