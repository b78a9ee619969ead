#include "base/metrics.h"

#include <cmath>
#include <limits>
#include <thread>

#include "tests/testing/matchers.h"

namespace perdure::base {
namespace {

TEST(HistogramTest, QuantilesAreWithinABucket) {
  Histogram histogram;
  for (int i = 1; i <= 1000; ++i) histogram.record(i * 0.001);
  EXPECT_EQ(histogram.count(), 1000u);
  EXPECT_NEAR(histogram.sum(), 500.5, 1e-9);
  EXPECT_EQ(histogram.max(), 1.0);
  for (const double q : {0.01, 0.5, 0.9, 0.99, 1.0}) {
    EXPECT_NEAR(histogram.quantile(q) / q, 1.0, 0.07) << q;
  }
}

TEST(HistogramTest, ClampsWhatIsTooSmallOrTooLarge) {
  Histogram histogram;
  EXPECT_EQ(histogram.quantile(0.5), 0.0);
  histogram.record(0);
  histogram.record(-1);
  histogram.record(std::numeric_limits<double>::quiet_NaN());
  EXPECT_LT(histogram.quantile(1.0), 1e-9);
  histogram.record(1e300);
  EXPECT_GT(histogram.quantile(1.0), 4e9);
}

TEST(MetricsRegistryTest, DumpIsSortedByName) {
  MetricsRegistry registry;
  registry.gauge("loss").set(2.5);
  registry.counter("steps").add(3);
  registry.counter("aborts").add();
  registry.histogram("latency").record(1.0);
  EXPECT_EQ(&registry.counter("steps"), &registry.counter("steps"));
  EXPECT_EQ(registry.dump(),
            "aborts 1\nlatency.count 1\nlatency.sum 1\nlatency.p50 1.0625\nlatency.p90 1.0625\n"
            "latency.p99 1.0625\nlatency.max 1\nloss 2.5\nsteps 3\n");
}

TEST(MetricsRegistryTest, ThreadsLoseNothing) {
  MetricsRegistry registry;
  const auto work = [&registry] {
    Counter& counter = registry.counter("n");
    Histogram& histogram = registry.histogram("h");
    for (int i = 0; i < 10000; ++i) {
      counter.add();
      histogram.record(1.0);
    }
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_EQ(registry.counter("n").value(), 20000u);
  EXPECT_EQ(registry.histogram("h").sum(), 20000.0);
}

TEST(MetricsRegistryDeathTest, OneNameHasOneKind) {
  MetricsRegistry registry;
  registry.counter("n");
  EXPECT_DEATH(registry.gauge("n"), "another kind: n");
}

}  // namespace
}  // namespace perdure::base
