#include "tests/runtime/engine/train_harness.h"

#include <thread>

#include "base/random.h"
#include "kernels/select/make_device.h"
#include "parallel/layer_cost.h"
#include "parallel/schedule_check.h"
#include "parallel/schedule_makers.h"
#include "runtime/collective/local_fabric.h"

namespace perdure::runtime::engine {

EngineOptions engine_options(const TrainJob& job, base::Rank rank) {
  EngineOptions options;
  options.model = parallel::make_model_spec(job.model).value();
  options.layout = parallel::make_layout(options.model,
                                         {.pipelines = job.pipelines,
                                          .stages = job.stages,
                                          .micro_batches = job.micro_batches,
                                          .grain = job.numerics.grain},
                                         parallel::relative_layer_costs(options.model))
                       .value();
  options.schedule = parallel::make_schedule_1f1b(options.model, options.layout);
  const base::Status legal =
      parallel::check_schedule(options.model, options.layout, options.schedule);
  CHECK(legal.is_ok()) << legal;
  options.rank = rank;
  options.batch = job.batch;
  options.numerics = job.numerics;
  options.optimizer = job.optimizer;
  options.seed = job.seed;
  return options;
}

namespace {

constexpr uint32_t kEvaluationBatches = 5;

// Text with structure: each token follows from the one before, with some noise.
class ChainSource : public BatchSource {
 public:
  ChainSource(int64_t context, int64_t vocabulary, uint64_t seed)
      : context_(context), vocabulary_(vocabulary), seed_(seed) {}

  void fill(uint64_t first_sample, int64_t samples, std::span<int32_t> tokens,
            std::span<int32_t> targets) override {
    for (int64_t s = 0; s < samples; ++s) {
      const uint64_t sample = first_sample + static_cast<uint64_t>(s);
      const base::PhiloxKey key = base::philox_key(seed_);
      auto token = static_cast<int64_t>(sample % static_cast<uint64_t>(vocabulary_));
      for (int64_t t = 0; t < context_; ++t) {
        const auto draw =
            base::philox4x32(key, {static_cast<uint32_t>(sample), static_cast<uint32_t>(t), 0, 0});
        const int64_t next =
            draw[0] % 8 == 0 ? draw[1] % vocabulary_ : (token * 5 + 3) % vocabulary_;
        tokens[static_cast<size_t>(s * context_ + t)] = static_cast<int32_t>(token);
        targets[static_cast<size_t>(s * context_ + t)] = static_cast<int32_t>(next);
        token = next;
      }
    }
  }

 private:
  const int64_t context_;
  const int64_t vocabulary_;
  const uint64_t seed_;
};

TrainTrace train_rank(const TrainJob& job, collective::Fabric& fabric) {
  TrainTrace trace;
  auto device = kernels::select::make_device(job.device, {.threads = job.threads});
  CHECK(device.is_ok()) << device.status();
  auto engine = StepEngine::create(engine_options(job, fabric.rank()), **device, fabric);
  CHECK(engine.is_ok()) << engine.status();
  ChainSource source(job.model.context, job.model.vocabulary, job.seed);
  if (job.on_start) job.on_start(**engine);
  for (uint32_t i = 0; i < job.steps; ++i) {
    auto result = (*engine)->run_step(source, job.learning_rate);
    CHECK(result.is_ok()) << result.status();
    trace.results.push_back(*result);
    trace.digests.push_back(result->digest_before);
  }
  auto digests = (*engine)->digests();
  EXPECT_THAT(digests.status(), job.expect_digests);
  if (!digests.is_ok()) return trace;
  trace.digests.push_back(digests->state);
  trace.params = digests->params;
  auto evaluation = (*engine)->evaluate(source, kEvaluationBatches);
  CHECK(evaluation.is_ok()) << evaluation.status();
  trace.evaluation = *evaluation;
  if (job.on_end) job.on_end(**engine);
  return trace;
}

}  // namespace

std::unique_ptr<BatchSource> make_source(const TrainJob& job) {
  return std::make_unique<ChainSource>(job.model.context, job.model.vocabulary, job.seed);
}

parallel::ModelConfig tiny_model(parallel::Family family) {
  parallel::ModelConfig config;
  config.family = family;
  config.layers = 4;
  config.width = 32;
  config.heads = 4;
  config.kv_heads = family == parallel::Family::kLlama ? 2 : 4;
  config.vocabulary = 29;
  config.context = 12;
  return config;
}

TrainTrace train(const TrainJob& job) {
  const uint32_t ranks = job.pipelines * job.stages;
  collective::LocalSwitch hub(ranks);
  std::vector<TrainTrace> traces(ranks);
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto fabric = hub.make_fabric(base::Rank(r));
      traces[r] = train_rank(job, *fabric);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const TrainTrace& trace : traces) {
    EXPECT_EQ(trace.digests, traces[0].digests);
    EXPECT_EQ(trace.params, traces[0].params);
    EXPECT_EQ(trace.evaluation, traces[0].evaluation);
  }
  return traces[0];
}

}  // namespace perdure::runtime::engine
