// After warm-up a step allocates nothing and faults no page.
//
// oneDNN allocates inside its products and gives the memory back at once (docs/decisions/0001);
// those calls are counted apart. Everything else - engine, collectives, all other ops - must not
// allocate at all.

#include "base/posix_process.h"
#include "base/random.h"
#include "kernels/metered_device.h"
#include "kernels/select/make_device.h"
#include "parallel/layer_cost.h"
#include "parallel/schedule_makers.h"
#include "runtime/collective/local_fabric.h"
#include "runtime/engine/step_engine.h"
#include "tests/kernels/allocation_counter.h"
#include "tests/runtime/engine/train_harness.h"

namespace perdure::runtime::engine {
namespace {

using kernels::testing::allocation_count;

class ConstantSource : public BatchSource {
 public:
  void fill(uint64_t first_sample, int64_t, std::span<int32_t> tokens,
            std::span<int32_t> targets) override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>((first_sample * 7 + i) % 29);
      targets[i] = static_cast<int32_t>((first_sample * 7 + i + 1) % 29);
    }
  }
};

struct Counts {
  int64_t products = 0;  // inside matrix products
  int64_t others = 0;    // all the rest of the step
  uint64_t page_faults = 0;
};

Counts count_steady_step(parallel::Family family, parallel::ComputeType compute,
                         const Numerics& numerics) {
  auto device = kernels::select::make_device("cpu", {.threads = 2}).value();
  kernels::MeteredDevice metered(*device, [] { return static_cast<double>(allocation_count()); });
  collective::LocalSwitch hub(1);
  const auto fabric = hub.make_fabric(base::Rank(0));
  EngineOptions options;
  options.model = parallel::make_model_spec(tiny_model(family)).value();
  options.layout =
      parallel::make_layout(options.model, {.micro_batches = 4, .grain = numerics.grain},
                            parallel::relative_layer_costs(options.model))
          .value();
  options.schedule = parallel::make_schedule_1f1b(options.model, options.layout);
  options.batch = {.micro_batch = 2, .compute = compute};
  options.numerics = numerics;
  auto engine = StepEngine::create(options, metered, *fabric).value();
  ConstantSource source;
  for (int i = 0; i < 3; ++i) EXPECT_OK(engine->run_step(source, 1e-3f));

  metered.clear();
  const uint64_t faults_before = base::process_usage().page_faults;
  const int64_t before = allocation_count();
  const auto result = engine->run_step(source, 1e-3f);
  const int64_t all = allocation_count() - before;
  Counts counts;
  counts.page_faults = base::process_usage().page_faults - faults_before;
  EXPECT_OK(result);
  EXPECT_EQ(result->attempts, 1u);
  for (const auto& [name, totals] : metered.totals()) {
    if (name.starts_with("matmul")) counts.products += static_cast<int64_t>(totals.amount);
  }
  counts.others = all - counts.products;
  return counts;
}

TEST(SteadyStepTest, AllocatesNothingAndFaultsNoPage) {
  if (!kernels::testing::can_count_allocations())
    GTEST_SKIP() << "sanitizers have their own malloc";
  for (const auto family : {parallel::Family::kGpt2, parallel::Family::kLlama}) {
    for (const auto compute : {parallel::ComputeType::kF32, parallel::ComputeType::kBF16}) {
      for (const Numerics& numerics :
           {Numerics{}, Numerics{.width_bits = 32, .block_elements = 64, .grain = 2},
            Numerics{.mode = SumMode::kFast}}) {
        const Counts counts = count_steady_step(family, compute, numerics);
        EXPECT_EQ(counts.others, 0);
        EXPECT_EQ(counts.page_faults, 0u);
        std::printf(
            "allocations inside products (oneDNN): %lld, elsewhere: %lld, page faults: %llu\n",
            static_cast<long long>(counts.products), static_cast<long long>(counts.others),
            static_cast<unsigned long long>(counts.page_faults));
      }
    }
  }
}

}  // namespace
}  // namespace perdure::runtime::engine
