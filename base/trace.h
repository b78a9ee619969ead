#pragma once
// Trace: a running hash over ordered events. Two runs of one seed are equal when their hashes are;
// when they are not, samples() shows between which events they parted.

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "base/units.h"

namespace perdure::base {

// One thread. The hash depends on the arguments and their order only, not on the machine.
class Trace {
 public:
  // `kind` is a short fixed name; `values` are what happened: hosts, sizes, content hashes.
  void record(Nanos time, std::string_view kind, std::initializer_list<uint64_t> values) {
    mix(static_cast<uint64_t>(time.count()));
    for (const char c : kind) hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001B3;
    for (const uint64_t value : values) mix(value);
    if (++count_ % kSampleEvery == 0) samples_.push_back(hash_);
  }

  uint64_t hash() const { return mix64(hash_ ^ count_); }
  uint64_t count() const { return count_; }

  // The running hash after each kSampleEvery events.
  static constexpr uint64_t kSampleEvery = 4096;
  const std::vector<uint64_t>& samples() const { return samples_; }

 private:
  void mix(uint64_t value) { hash_ = mix64(hash_ + 0x9E3779B97F4A7C15 + value); }

  uint64_t hash_ = 0xCBF29CE484222325;
  uint64_t count_ = 0;
  std::vector<uint64_t> samples_;
};

// The number of the first block of kSampleEvery events in which two runs differ; the length of the
// shorter one when it is a prefix of the other.
size_t first_different_sample(const Trace& a, const Trace& b);

}  // namespace perdure::base
