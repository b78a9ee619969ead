#include "base/metrics.h"

#include <bit>
#include <charconv>
#include <cmath>

#include "base/check.h"

namespace perdure::base {
namespace {

std::string line(std::string_view name, std::string_view suffix, double value) {
  char text[32];
  char* end = std::to_chars(text, text + sizeof text, value).ptr;
  return std::string(name)
      .append(suffix)
      .append(" ")
      .append(text, static_cast<size_t>(end - text))
      .append("\n");
}

std::string line(std::string_view name, std::string_view suffix, uint64_t value) {
  return std::string(name).append(suffix).append(" ").append(std::to_string(value)).append("\n");
}

}  // namespace

// The exponent and the first three bits of the fraction of a double are the bucket's number.
size_t Histogram::bucket_of(double value) {
  constexpr double kLowest = 1.0 / (uint64_t{1} << -kExponentMin);
  if (!(value > kLowest)) return 0;  // also NaN and negative values
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const int exponent = static_cast<int>(bits >> 52) - 1023;
  if (exponent >= kExponentMax) return kBucketCount - 1;
  const size_t step = (bits >> 49) & (kStepsPerOctave - 1);
  return static_cast<size_t>(exponent - kExponentMin) * kStepsPerOctave + step;
}

double Histogram::middle_of(size_t bucket) {
  const int exponent = static_cast<int>(bucket / kStepsPerOctave) + kExponentMin;
  const double fraction = (static_cast<double>(bucket % kStepsPerOctave) + 0.5) / kStepsPerOctave;
  return std::ldexp(1.0 + fraction, exponent);
}

void Histogram::record(double value) {
  buckets_[bucket_of(value)].fetch_add(1, std::memory_order_relaxed);
  count_.fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
  double max = max_.load(std::memory_order_relaxed);
  while (value > max && !max_.compare_exchange_weak(max, value, std::memory_order_relaxed)) {
  }
}

double Histogram::quantile(double q) const {
  CHECK_GE(q, 0.0);
  CHECK_LE(q, 1.0);
  // Counted from the buckets, which other threads may be filling: count_ could be ahead of them.
  uint64_t total = 0;
  for (const auto& bucket : buckets_) total += bucket.load(std::memory_order_relaxed);
  if (total == 0) return 0;
  const uint64_t wanted = static_cast<uint64_t>(std::ceil(q * static_cast<double>(total)));
  uint64_t seen = 0;
  for (size_t i = 0; i < kBucketCount; ++i) {
    seen += buckets_[i].load(std::memory_order_relaxed);
    if (seen >= std::max<uint64_t>(wanted, 1)) return middle_of(i);
  }
  return middle_of(kBucketCount - 1);
}

template <typename T>
T& MetricsRegistry::get_or_make(std::string_view name) {
  MutexLock lock(mutex_);
  auto found = metrics_.find(name);
  if (found == metrics_.end()) {
    found = metrics_.emplace(std::string(name), std::make_unique<T>()).first;
  }
  auto* metric = std::get_if<std::unique_ptr<T>>(&found->second);
  CHECK(metric != nullptr) << "the metric has another kind: " << name;
  return **metric;
}

Counter& MetricsRegistry::counter(std::string_view name) { return get_or_make<Counter>(name); }
Gauge& MetricsRegistry::gauge(std::string_view name) { return get_or_make<Gauge>(name); }
Histogram& MetricsRegistry::histogram(std::string_view name) {
  return get_or_make<Histogram>(name);
}

std::string MetricsRegistry::dump() const {
  MutexLock lock(mutex_);
  std::string text;
  for (const auto& [name, metric] : metrics_) {
    if (const auto* counter = std::get_if<std::unique_ptr<Counter>>(&metric)) {
      text += line(name, "", (*counter)->value());
    } else if (const auto* gauge = std::get_if<std::unique_ptr<Gauge>>(&metric)) {
      text += line(name, "", (*gauge)->value());
    } else {
      const Histogram& histogram = *std::get<std::unique_ptr<Histogram>>(metric);
      text += line(name, ".count", histogram.count()) + line(name, ".sum", histogram.sum()) +
              line(name, ".p50", histogram.quantile(0.5)) +
              line(name, ".p90", histogram.quantile(0.9)) +
              line(name, ".p99", histogram.quantile(0.99)) + line(name, ".max", histogram.max());
    }
  }
  return text;
}

}  // namespace perdure::base
