#include "tests/runtime/engine/survivors.h"

#include <thread>

#include "kernels/select/make_device.h"
#include "runtime/engine/step_phases.h"

namespace perdure::runtime::engine {

namespace {

kernels::Device& device_of(const std::string& name, uint32_t worker) {
  static std::map<std::pair<std::string, uint32_t>, std::unique_ptr<kernels::Device>> devices;
  auto& device = devices[{name, worker}];
  if (device == nullptr) device = kernels::select::make_device(name, {.threads = 1}).value();
  return *device;
}

}  // namespace

constinit thread_local uint32_t current_rank = ~0u;

Survivors::Survivors(const TrainJob& job, uint32_t count) : job_(job), survivors_(count) {
  for (uint32_t i = 0; i < count; ++i) {
    members_.push_back(i);
    lose(i);
  }
}

void Survivors::lose(uint32_t worker) {
  Survivor& s = survivors_[worker];
  s.engine.reset();
  s.fabric.reset();
  s.memory.reset();
  s.device = &device_of(job_.device, worker);
  s.memory = std::make_unique<RankMemory>(
      StoreOptions{.model = parallel::make_model_spec(job_.model).value(),
                   .compute = job_.batch.compute,
                   .numerics = job_.numerics,
                   .seed = job_.seed},
      *s.device);
}

Survivors::~Survivors() {
  for (Survivor& s : survivors_) s.engine.reset();
}

void Survivors::run_epoch(uint32_t pipelines, uint32_t stages, uint32_t steps,
                          const Before& before) {
  job_.pipelines = pipelines;
  job_.stages = stages;
  epoch_ = epoch_.next();
  ranks_ = pipelines * stages;
  CHECK_LE(ranks_, members_.size());
  for (Survivor& s : survivors_) {
    s.engine.reset();
    s.fabric.reset();
    s.status = base::Status::ok();
  }
  hub_ = std::make_unique<collective::LocalSwitch>(ranks_);
  for (uint32_t r = 0; r < ranks_; ++r) {
    rank(r).fabric = hub_->make_fabric(base::Rank(r));
  }
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < ranks_; ++r) {
    threads.emplace_back([this, r, steps, &before] {
      current_rank = r;
      run_rank(r, steps, before);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void Survivors::run_rank(uint32_t r, uint32_t steps, const Before& before) {
  Survivor& s = rank(r);
  EngineOptions options = engine_options(job_, base::Rank(r));
  options.epoch = epoch_;
  TensorStore& store = s.memory->tensors;
  const auto needed = options.layout.tensors(options.model, options.rank);
  if (before) {
    s.status = before(s, options);
  } else if (store.committed().step == base::Step(0)) {
    s.status = store.add_from_seed(needed, nullptr);
  }
  if (!s.status.is_ok()) return s.fabric->abort(s.status);
  auto engine = StepEngine::create(std::move(options), *s.memory, *s.fabric);
  CHECK(engine.is_ok()) << engine.status();
  s.engine = std::move(engine).value();
  const auto source = make_source(job_);
  while (s.status.is_ok() && s.engine->step().value() < steps) {
    const auto result = s.engine->run_step(*source, job_.learning_rate);
    s.status = result.status();
    if (result.is_ok()) s.results.push_back(result.value());
  }
}

uint32_t Survivors::settle() {
  uint32_t best = 0;
  for (uint32_t r = 0; r < ranks_; ++r) {
    if (rank(r).engine->step() > rank(best).engine->step()) best = r;
  }
  const base::Step newest = rank(best).engine->step();
  const CommittedVote vote = rank(best).engine->last_vote();
  uint32_t applied = 0;
  for (uint32_t r = 0; r < ranks_; ++r) {
    StepEngine& engine = *rank(r).engine;
    if (engine.step() == newest) continue;
    EXPECT_EQ(engine.step().next(), newest) << "a rank is more than one step behind";
    EXPECT_EQ(engine.pending_attempt(), vote.attempt) << "rank " << r;
    const auto result = engine.apply_vote(vote.attempt, vote.words, job_.learning_rate);
    EXPECT_OK(result);
    if (result.is_ok()) rank(r).results.push_back(result.value());
    ++applied;
  }
  return applied;
}

std::map<uint64_t, uint64_t> Survivors::digests() const {
  std::map<uint64_t, uint64_t> result;
  for (const Survivor& s : survivors_) {
    for (const StepResult& step : s.results) {
      const auto [at, is_new] = result.emplace(step.step.value() - 1, step.digest_before);
      EXPECT_EQ(at->second, step.digest_before) << "before step " << step.step;
    }
  }
  return result;
}

base::Status Strike::at_fault_point(std::string_view name, base::MutableByteSpan bytes) {
  if (current_rank != when_.rank) return base::Status::ok();
  if (name == kStepBegin) ++step_;
  if (name != when_.point || (when_.step != 0 && step_ != when_.step)) return base::Status::ok();
  if (++seen_ != when_.nth) return base::Status::ok();
  struck_ = true;
  return action_(bytes);
}

}  // namespace perdure::runtime::engine
