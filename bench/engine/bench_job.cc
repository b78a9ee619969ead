#include "bench/engine/bench_job.h"

#include <algorithm>

#include "base/posix_clock.h"
#include "base/random.h"
#include "parallel/layer_cost.h"
#include "parallel/schedule_makers.h"

namespace perdure::bench {

using runtime::engine::StepEngine;

double now_seconds() {
  static const base::PosixClock clock;
  return base::to_seconds(clock.now());
}

double step_flops(const BenchJob& job) {
  const parallel::ModelSpec model = parallel::make_model_spec(job.model).value();
  const parallel::ModelConfig& c = model.config;
  double products = 0.0;  // elements of the matrices that every token meets
  for (const parallel::TensorSpec& t : model.tensors) {
    if (t.use == parallel::TensorUse::kMatrix) products += static_cast<double>(t.elements());
  }
  const auto tokens = static_cast<double>(step_tokens(job));
  const auto context = static_cast<double>(c.context);
  // Scores and values: 2 products of T x T/2 per head; backward twice that and the scores again.
  const double attention =
      2.0 * 2.0 * context / 2.0 * static_cast<double>(c.width) * static_cast<double>(c.layers);
  return tokens * (6.0 * products + 3.5 * attention);
}

int64_t step_tokens(const BenchJob& job) {
  return job.micro_batch * static_cast<int64_t>(job.micro_batches) * job.model.context;
}

class BenchRun::ChainedTokens : public runtime::engine::BatchSource {
 public:
  ChainedTokens(int64_t context, int64_t vocabulary) : context_(context), vocabulary_(vocabulary) {}
  // A chain: each token follows from the one before, but for one in eight, which is anything. There
  // is something to learn, and no end of it.
  void fill(uint64_t first_sample, int64_t samples, std::span<int32_t> tokens,
            std::span<int32_t> targets) override {
    size_t at = 0;
    for (uint64_t sample = first_sample; sample < first_sample + static_cast<uint64_t>(samples);
         ++sample) {
      auto token = static_cast<int64_t>(sample % static_cast<uint64_t>(vocabulary_));
      for (int64_t t = 0; t < context_; ++t, ++at) {
        const auto draw = base::philox4x32(
            {1, 2}, {static_cast<uint32_t>(sample), static_cast<uint32_t>(t), 0, 0});
        tokens[at] = static_cast<int32_t>(token);
        token = draw[0] % 8 == 0 ? draw[1] % vocabulary_ : (token * 5 + 3) % vocabulary_;
        targets[at] = static_cast<int32_t>(token);
      }
    }
  }

 private:
  const int64_t context_;
  const int64_t vocabulary_;
};

BenchRun::BenchRun(const BenchJob& job, kernels::Device& device)
    : hub_(1),
      fabric_(hub_.make_fabric(base::Rank(0))),
      source_(std::make_unique<ChainedTokens>(job.model.context, job.model.vocabulary)) {
  runtime::engine::EngineOptions options;
  options.model = parallel::make_model_spec(job.model).value();
  options.layout =
      parallel::make_layout(options.model,
                            {.micro_batches = job.micro_batches, .grain = job.numerics.grain},
                            parallel::relative_layer_costs(options.model))
          .value();
  options.schedule = parallel::make_schedule_1f1b(options.model, options.layout);
  options.batch = {.micro_batch = job.micro_batch, .compute = job.compute};
  options.numerics = job.numerics;
  engine_ = StepEngine::create(std::move(options), device, *fabric_).value();
}

double BenchRun::step() {
  const double begin = now_seconds();
  const runtime::engine::StepResult result = engine_->run_step(*source_, 1e-3f).value();
  loss_ = result.loss;
  attempts_again_ += result.attempts - 1;
  return now_seconds() - begin;
}

double BenchRun::best_of(int count) {
  step();
  step();
  double best = step();
  for (int i = 1; i < count; ++i) best = std::min(best, step());
  return best;
}

}  // namespace perdure::bench
