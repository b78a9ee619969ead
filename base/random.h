#pragma once
// Random numbers whose bits are the same on every machine, compiler and library.
//
// Two ways to draw. By *counter* (philox4x32 and the functions on it): a pure function of a key and
// a place, for everything that belongs to training, so that who computes it does not matter. By
// *sequence* (SeededRandom): for simulation, tests and back-off.

#include <array>
#include <cstdint>

namespace perdure::base {

using PhiloxKey = std::array<uint32_t, 2>;
using PhiloxCounter = std::array<uint32_t, 4>;

// Philox4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011). Four independent uniform words for each (key, counter).
constexpr std::array<uint32_t, 4> philox4x32(PhiloxKey key, PhiloxCounter counter) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

constexpr PhiloxKey philox_key(uint64_t seed) {
  return {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
}

// Mixes all bits of a word into all bits (a bijection).
constexpr uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// In [0, 1), a multiple of 2^-53.
constexpr double unit_double(uint64_t word) { return static_cast<double>(word >> 11) * 0x1.0p-53; }

// In [0, 1), from the first two words at (key, counter).
double uniform_from(PhiloxKey key, PhiloxCounter counter);

// Two independent standard normal values from the four words at (key, counter), by Box-Muller.
struct NormalPair {
  double first;
  double second;
};
NormalPair normal_pair(PhiloxKey key, PhiloxCounter counter);

// Natural logarithm of a positive normal number and sine and cosine of a number of turns in [0, 1),
// made only of IEEE additions, multiplications and divisions in a fixed order, so that the bits do
// not depend on libm.
double portable_log(double x);
struct SinCos {
  double sin;
  double cos;
};
SinCos portable_sincos_turns(double turns);

// The image of `index` under a permutation of [0, size) chosen by `key`: O(1) state, no table.
// A Feistel network over the next power of two, repeated until the value falls inside.
uint64_t keyed_permutation(uint64_t index, uint64_t size, uint64_t key);

// A stream of numbers from a seed. Not thread-safe. Copying it copies its position.
class SeededRandom {
 public:
  // Streams of one seed are independent of each other.
  explicit SeededRandom(uint64_t seed, uint64_t stream = 0);

  uint64_t next_u64();

  // In [0, bound), every value equally likely. `bound` is not zero.
  uint64_t uniform_int(uint64_t bound);
  double uniform_double() { return unit_double(next_u64()); }
  bool bernoulli(double probability) { return uniform_double() < probability; }
  double exponential(double mean);
  double normal();

  // An independent generator whose stream is the next number of this one.
  SeededRandom fork() { return SeededRandom(next_u64(), next_u64()); }

 private:
  PhiloxKey key_;
  PhiloxCounter counter_;
  std::array<uint32_t, 4> words_ = {};
  int words_left_ = 0;
};

}  // namespace perdure::base
