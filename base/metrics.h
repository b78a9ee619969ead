#pragma once
// Counters, gauges and histograms, and the registry that lists them. Updates are lock-free and
// never allocate; any thread may update and read.

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "base/mutex.h"

namespace perdure::base {

class Counter {
 public:
  void add(uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_ = 0;
};

class Gauge {
 public:
  void set(double value) { value_.store(value, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_ = 0;
};

// Values >= 0 in buckets whose width is an eighth of a power of two: a quantile is exact to 6.25 %.
// Covers 2^-32 .. 2^32 (in seconds: a quarter of a nanosecond to a century); smaller and larger
// ones are clamped.
class Histogram {
 public:
  void record(double value);

  uint64_t count() const { return count_.load(std::memory_order_relaxed); }
  double sum() const { return sum_.load(std::memory_order_relaxed); }
  double max() const { return max_.load(std::memory_order_relaxed); }

  // The middle of the bucket in which the q-quantile lies, q in [0, 1]; 0 when nothing was
  // recorded.
  double quantile(double q) const;

 private:
  static constexpr int kExponentMin = -32;
  static constexpr int kExponentMax = 32;
  static constexpr int kStepsPerOctave = 8;
  static constexpr size_t kBucketCount = (kExponentMax - kExponentMin) * kStepsPerOctave;

  static size_t bucket_of(double value);
  static double middle_of(size_t bucket);

  std::array<std::atomic<uint64_t>, kBucketCount> buckets_ = {};
  std::atomic<uint64_t> count_ = 0;
  std::atomic<double> sum_ = 0;
  std::atomic<double> max_ = 0;
};

// Owns metrics by name. Asking for a name twice gives the same object; asking for it as another
// kind is a bug. References stay valid as long as the registry: components look them up once, at
// start.
class MetricsRegistry {
 public:
  Counter& counter(std::string_view name) EXCLUDES(mutex_);
  Gauge& gauge(std::string_view name) EXCLUDES(mutex_);
  Histogram& histogram(std::string_view name) EXCLUDES(mutex_);

  // One "name value" per line, sorted by name; a histogram gives name.count, .sum, .p50, .p90,
  // .p99, .max.
  std::string dump() const EXCLUDES(mutex_);

 private:
  using Metric =
      std::variant<std::unique_ptr<Counter>, std::unique_ptr<Gauge>, std::unique_ptr<Histogram>>;
  template <typename T>
  T& get_or_make(std::string_view name) EXCLUDES(mutex_);

  mutable Mutex mutex_;
  std::map<std::string, Metric, std::less<>> metrics_ GUARDED_BY(mutex_);
};

}  // namespace perdure::base
