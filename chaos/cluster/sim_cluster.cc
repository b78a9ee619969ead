// The processes of a simulated cluster. What strikes them: cluster_faults.cc.

#include "chaos/cluster/sim_cluster.h"

#include "chaos/cluster/cluster_processes.h"
#include "parallel/layer_cost.h"

namespace perdure::chaos::cluster {
namespace {

parallel::ModelSpec small_model(int64_t layers) {
  parallel::ModelConfig config;
  config.layers = layers;
  config.width = 32;
  config.heads = 2;
  config.vocabulary = 64;
  config.context = 16;
  base::Result<parallel::ModelSpec> model = parallel::make_model_spec(config);
  CHECK(model.is_ok()) << model.status();
  return std::move(model).value();
}

FakeJob make_job(const ClusterOptions& options) {
  FakeJob job;
  job.model = small_model(options.layers);
  job.steps = options.steps;
  job.samples_per_step = options.micro_batches;
  job.compute_mean = options.compute_mean;
  job.snapshots = options.snapshots;
  return job;
}

}  // namespace

SimCluster::SimCluster(const ClusterOptions& options)
    : options_(options),
      job_(make_job(options)),
      places_(std::make_unique<Places>(*this)),
      plane_(world_, options.seed, options.data),
      world_({.seed = options.seed, .link = options.link}) {
  ledger_.listen([this](const recovery::EpochPlan& plan) { check_active(plan); });
  coordinator_host_ = &world_.add_host("c");
  coordinator_host_->meter(options.meter);
  for (uint32_t n = 0; n < options.nodes; ++n) {
    add_node(base::NodeId(n), "n" + std::to_string(n));
  }
}

// Its hosts, which are the node's from now on. Gives those of its workers before.
SimCluster::Slots SimCluster::add_node(base::NodeId node, const std::string& name) {
  Slots before;
  agents_[node] =
      &world_.add_host(name, {.clock_offset = base::Nanos(world_.random().uniform_int(1u << 30))});
  memories_.push_back(std::make_unique<NodeMemory>());
  uint32_t number = 0;
  for (const base::WorkerId worker : workers_of(node)) {
    slots_.push_back(std::make_unique<WorkerSlot>());
    slots_.back()->host = &world_.add_host(name + "w" + std::to_string(number++));
    slots_.back()->memory = memories_.back().get();
    WorkerSlot*& newest = workers_[worker];
    if (newest != nullptr) before[worker] = newest;
    newest = slots_.back().get();
  }
  return before;
}

void SimCluster::boot_node(base::NodeId node) {
  Slots slots;
  for (const base::WorkerId worker : workers_of(node)) {
    WorkerSlot& place = slot(worker);
    slots[worker] = &place;
    // An empty host until its agent starts something on it.
    place.host->boot([this, &place](SimHost& host) -> std::unique_ptr<SimProcess> {
      if (!place.start.has_value()) return nullptr;
      return std::make_unique<WorkerHost>(*this, host, place);
    });
  }
  agents_.at(node)->boot([this, node, slots](SimHost& host) {
    return std::make_unique<AgentProcess>(*this, host, node, slots);
  });
}

SimCluster::~SimCluster() { ending_ = true; }

void SimCluster::start() {
  coordinator_host_->boot(
      [this](SimHost& host) { return std::make_unique<CoordinatorProcess>(*this, host); });
  for (uint32_t n = 0; n < options_.nodes; ++n) boot_node(base::NodeId(n));
}

bool SimCluster::run(base::Nanos limit) {
  return world_.run_until([this] { return outcome_.has_value() || !violation_.empty(); }, limit);
}

runtime::coordinator::CoordinatorOptions SimCluster::coordinator_options() const {
  runtime::coordinator::CoordinatorOptions o;
  o.job_id = "simulated";
  o.secret = "secret of " + std::to_string(options_.seed);
  o.job = {.toml = "simulated"};
  o.nodes = options_.nodes;
  o.workers_per_node = options_.workers_per_node;
  o.machine.model = job_.model;
  o.machine.pipelines = options_.pipelines;
  o.machine.stages = options_.stages;
  o.machine.micro_batches = options_.micro_batches;
  o.machine.layer_cost = parallel::relative_layer_costs(job_.model);
  o.machine.recoveries_max = options_.recoveries_max;
  o.machine.phase_timeout = std::chrono::seconds(10);
  o.machine.load_timeout = std::chrono::seconds(20);
  o.lease = options_.lease;
  o.work_clock = options_.meter;
  o.nonce_seed = options_.seed;
  return o;
}

std::vector<base::WorkerId> SimCluster::workers_of(base::NodeId node) const {
  std::vector<base::WorkerId> result;
  for (uint32_t i = 0; i < options_.workers_per_node; ++i)
    result.push_back(base::WorkerId(node.value() * options_.workers_per_node + i));
  return result;
}

void SimCluster::violate(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

std::string SimCluster::phase() const {
  return coordinator_ == nullptr ? "away" : std::string(to_string(coordinator_->machine().phase()));
}

// -- invariants

// Every holder moves by one step, from the right state; and who is still in an epoch after a newer
// one has begun can at most finish the step whose vote was under way.
void SimCluster::on_commit(const FakeEngine& engine, base::Step step, recovery::VoteId vote) {
  const std::string who = "worker " + std::to_string(engine.worker().value()) + ": ";
  const recovery::CommittedState& state = engine.committed();
  if (state.samples_consumed != step.value() * job_.samples_per_step)
    violate(who + "cursor and step differ");
  for (const auto& [tensor, digest] : engine.tensors()) {
    if (digest != expected(tensor, step)) {
      violate(who + job_.model.tensor(tensor).name + " is wrong after step " +
              std::to_string(step.value()));
    }
  }
  // A process that was just killed ends when its turn does: nobody will know of this.
  if (slot(engine.worker()).engine != &engine) return;
  newest_commit_ = std::max(newest_commit_, step);
  if (vote.epoch >= newest_active_) return;
  auto& [epoch, count] = late_commits_[engine.worker()];
  if (epoch != vote.epoch) {
    epoch = vote.epoch;
    count = 0;
  }
  note("a rank left behind commits by an old vote");
  if (++count > 1) violate(who + "goes on in epoch " + std::to_string(vote.epoch.value()));
}

void SimCluster::on_go(const FakeEngine& engine) {
  if (engine.seat().epoch > newest_active_)
    violate("worker " + std::to_string(engine.worker().value()) +
            " runs in an epoch that is not active");
}

// The gate held: every member of the plan has exactly its tensors, in the state of the resume step.
void SimCluster::check_active(const recovery::EpochPlan& plan) {
  if (plan.epoch <= newest_active_) violate("an epoch became active after a newer one");
  newest_active_ = plan.epoch;
  if (plan.resume.step.value() + 1 < newest_commit_.value())
    violate("epoch " + std::to_string(plan.epoch.value()) + " falls back by more than a step");
  for (size_t r = 0; r < plan.members.size(); ++r) {
    const WorkerSlot& member = slot(plan.members[r].worker);
    const FakeEngine* engine = member.engine;
    // A member may die at this very moment; then the epoch will not run.
    if (engine == nullptr || engine->incarnation() != plan.members[r].incarnation) continue;
    const auto needed = plan.layout.tensors(job_.model, base::Rank(static_cast<uint32_t>(r)));
    if (!(engine->committed() == plan.resume)) {
      violate("the gate let a rank pass at another step");
      continue;
    }
    if (engine->tensors().size() != needed.size())
      violate("the gate let a wrong set of tensors pass");
    for (const base::TensorId tensor : needed) {
      const auto found = engine->tensors().find(tensor);
      if (found == engine->tensors().end() || found->second != expected(tensor, plan.resume.step))
        violate("the gate let a wrong " + job_.model.tensor(tensor).name + " pass");
    }
  }
  if (ledger_.plans().size() > 1) {
    const recovery::EpochPlan& before = ledger_.plans()[ledger_.plans().size() - 2];
    if (plan.members.size() > before.members.size()) note("the job grew");
    if (plan.members.size() < before.members.size()) note("the job shrank");
    if (plan.layout.pipelines.size() > 1 &&
        plan.layout.pipelines.front().stages.size() != plan.layout.pipelines.back().stages.size())
      note("unequal pipelines");
  }
}

void SimCluster::at_point(std::string_view name) {
  if (on_point_) on_point_(name);
}

uint64_t SimCluster::expected(base::TensorId tensor, base::Step step) {
  return job_.digest_after(tensor, step.value());
}

}  // namespace perdure::chaos::cluster
