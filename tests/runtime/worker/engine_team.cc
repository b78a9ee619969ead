#include "tests/runtime/worker/engine_team.h"

#include <algorithm>

#include "kernels/select/make_device.h"
#include "parallel/layer_cost.h"

namespace perdure::runtime::worker {
namespace {

using recovery::EpochPlan;
using recovery::StateReport;

class LocalMesh final : public collective::MeshFabric {
 public:
  LocalMesh(std::shared_ptr<collective::LocalSwitch> hub, base::Rank rank)
      : hub_(std::move(hub)), fabric_(hub_->make_fabric(rank)) {}
  ~LocalMesh() override { close(); }
  base::Rank rank() const override { return fabric_->rank(); }
  uint32_t ranks() const override { return fabric_->ranks(); }
  collective::Ticket post_send(base::Rank to, collective::Tag tag,
                               std::span<const std::byte> bytes) override {
    return fabric_->post_send(to, tag, bytes);
  }
  collective::Ticket post_receive(base::Rank from, collective::Tag tag,
                                  std::span<std::byte> bytes) override {
    return fabric_->post_receive(from, tag, bytes);
  }
  base::Status wait(collective::Ticket ticket, collective::Timeout timeout) override {
    return fabric_->wait(ticket, timeout);
  }
  void abort(base::Status why) override { fabric_->abort(std::move(why)); }
  std::vector<std::byte> address() const override {
    return {static_cast<std::byte>(rank().value())};
  }
  base::Status connect(std::span<const std::vector<std::byte>> addresses,
                       collective::Timeout) override {
    CHECK_EQ(addresses.size(), ranks());
    return base::Status::ok();
  }
  void close() override { fabric_->abort(base::cancelled("the fabric was closed")); }

 private:
  std::shared_ptr<collective::LocalSwitch> hub_;  // shared by all ranks of an epoch
  std::unique_ptr<collective::LocalFabric> fabric_;
};

}  // namespace

base::Result<std::unique_ptr<collective::MeshFabric>> LocalMeshes::make(
    const FabricRequest& request) {
  base::MutexLock lock(mutex_);
  auto& hub = hubs_[request.epoch];
  if (hub == nullptr) hub = std::make_shared<collective::LocalSwitch>(request.ranks);
  return std::unique_ptr<collective::MeshFabric>(std::make_unique<LocalMesh>(hub, request.rank));
}

EngineTeam::EngineTeam(const std::string& toml, uint32_t count, MakeFabrics make_fabrics)
    : text_{.toml = toml, .source = "test"},
      make_fabrics_(std::move(make_fabrics)),
      clock_(io_.get_executor()) {
  const base::Status loaded = job::load_job(toml, "test", {}, &job_);
  CHECK(loaded.is_ok()) << loaded;
  model_ = parallel::make_model_spec(job_.model).value();
  members_.resize(count);
  for (uint32_t w = 0; w < count; ++w) lose(w);
}

EngineTeam::~EngineTeam() {
  for (auto& member : members_) member->engine.reset();
  work_.reset();
  io_.restart();
  io_.poll();  // what engines had posted
}

void EngineTeam::lose(uint32_t worker) {
  if (members_[worker] != nullptr) members_[worker]->engine.reset();
  members_[worker] = std::make_unique<Member>();
  Member& member = *members_[worker];
  if (make_fabrics_) member.fabrics = make_fabrics_();
  FabricMaker& fabrics = member.fabrics != nullptr ? *member.fabrics : meshes_;
  member.engine = std::make_unique<ThreadedEngine>(
      EngineServices{.clock = clock_,
                     .fabrics = fabrics,
                     .snapshots = snapshots_ ? snapshots_(worker) : member.none,
                     .make_device = kernels::select::make_device},
      io_.get_executor());
  member.engine->listen(member);
  EXPECT_OK(wait(member.engine->open(text_)));
}

std::vector<StateReport> EngineTeam::settle(const std::vector<uint32_t>& workers) {
  epoch_ = epoch_.next();
  auto states = wait_all<StateReport>(
      workers, [this](ThreadedEngine& engine, base::Rank) { return engine.fence(epoch_); });
  size_t best = 0;
  for (size_t r = 0; r < states.size(); ++r) {
    if (states[r].committed.step > states[best].committed.step) best = r;
  }
  for (size_t r = 0; r < states.size(); ++r) {
    const bool is_next = states[r].committed.step.next() == states[best].committed.step;
    if (states[r].pending.epoch == base::Epoch(0) || !is_next) continue;
    EXPECT_EQ(states[r].pending, states[best].vote);
    ThreadedEngine& engine = *at(workers[r]).engine;
    const auto vote = at(workers[best]).engine->vote();
    EXPECT_OK(vote);
    EXPECT_OK(wait(engine.apply_vote(vote.value())));
    states[r] = engine.state();
    EXPECT_EQ(states[r].committed, states[best].committed);
  }
  return states;
}

EpochPlan EngineTeam::plan(uint32_t pipelines, uint32_t stages,
                           const std::vector<uint32_t>& workers,
                           const std::vector<StateReport>& held) {
  EpochPlan plan{.epoch = epoch_};
  plan.layout = parallel::make_layout(model_,
                                      {.pipelines = pipelines,
                                       .stages = stages,
                                       .micro_batches = job_.batch.micro_batches,
                                       .grain = job_.numerics.grain},
                                      parallel::relative_layer_costs(model_))
                    .value();
  for (const uint32_t w : workers) plan.members.push_back({.worker = base::WorkerId(w)});
  for (const StateReport& state : held) {
    if (state.has_state == 0) continue;
    plan.source = recovery::StateSource::kSurvivors;
    if (state.committed.step >= plan.resume.step) plan.resume = state.committed;
  }
  if (plan.source == recovery::StateSource::kSeed) return plan;
  for (uint32_t t = 0; t < model_.tensors.size(); ++t) {
    const base::TensorId id(t);
    const auto holds = [&](base::Rank rank) {
      const StateReport& state = held[rank.value()];
      return state.has_state != 0 && state.committed == plan.resume &&
             std::any_of(state.tensors.begin(), state.tensors.end(),
                         [&](const recovery::TensorDigest& d) { return d.tensor == id; });
    };
    base::Rank source;
    while (source.value() < workers.size() && !holds(source)) source = source.next();
    for (const base::Rank to : plan.layout.holders(model_, id)) {
      if (!holds(to)) plan.moves.push_back({id, source, to});
    }
  }
  return plan;
}

std::vector<base::Result<protocol::Loaded>> EngineTeam::load(const EpochPlan& plan,
                                                             const std::vector<uint32_t>& workers) {
  const auto prepared = wait_all<base::Result<protocol::Prepared>>(
      workers, [&](ThreadedEngine& engine, base::Rank rank) { return engine.prepare(plan, rank); });
  std::vector<protocol::RankAddress> addresses;
  for (const auto& p : prepared) {
    EXPECT_OK(p);
    addresses.push_back({base::Rank(static_cast<uint32_t>(addresses.size())),
                         p.is_ok() ? p.value().address : std::vector<std::byte>()});
  }
  return wait_all<base::Result<protocol::Loaded>>(
      workers, [&](ThreadedEngine& engine, base::Rank) { return engine.load(addresses); });
}

void EngineTeam::change(uint32_t pipelines, uint32_t stages, const std::vector<uint32_t>& workers) {
  const auto held = settle(workers);
  const EpochPlan next = plan(pipelines, stages, workers, held);
  std::map<base::TensorId, uint64_t> digests;
  for (const auto& loaded : load(next, workers)) {
    ASSERT_OK(loaded);
    EXPECT_EQ(loaded.value().committed, next.resume);
    for (const recovery::TensorDigest& t : loaded.value().tensors) {
      EXPECT_EQ(digests.emplace(t.tensor, t.digest).first->second, t.digest);
    }
  }
  EXPECT_EQ(digests.size(), model_.tensors.size());
  for (const uint32_t w : workers) {
    at(w).stopped.reset();
    EXPECT_OK(at(w).engine->go());
  }
}

}  // namespace perdure::runtime::worker
