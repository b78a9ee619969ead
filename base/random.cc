#include "base/random.h"

#include <bit>
#include <cmath>

#include "base/check.h"

namespace perdure::base {
namespace {

constexpr uint64_t join_words(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }

// In (0, 1], so that its logarithm is finite.
constexpr double positive_unit_double(uint64_t word) {
  return static_cast<double>((word >> 11) + 1) * 0x1.0p-53;
}

NormalPair box_muller(uint64_t word0, uint64_t word1) {
  const double radius = std::sqrt(-2.0 * portable_log(positive_unit_double(word0)));
  const SinCos direction = portable_sincos_turns(unit_double(word1));
  return {radius * direction.cos, radius * direction.sin};
}

}  // namespace

double uniform_from(PhiloxKey key, PhiloxCounter counter) {
  const auto words = philox4x32(key, counter);
  return unit_double(join_words(words[0], words[1]));
}

NormalPair normal_pair(PhiloxKey key, PhiloxCounter counter) {
  const auto words = philox4x32(key, counter);
  return box_muller(join_words(words[0], words[1]), join_words(words[2], words[3]));
}

// x = m * 2^e with m in [sqrt(1/2), sqrt(2)); log(m) = 2 atanh(s) with s = (m - 1) / (m + 1), |s| <
// 0.172, whose series gains more than a decimal digit and a half per term.
double portable_log(double x) {
  CHECK_GE(x, 0x1.0p-1022);
  CHECK_LE(x, 0x1.fffffffffffffp1023);
  constexpr double kLn2High =
      0x1.62e42fee00000p-1;  // 33 bits: its product with an exponent is exact
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr uint64_t kFractionMask = (uint64_t{1} << 52) - 1;
  constexpr uint64_t kSqrt2Fraction = 0x6A09E667F3BCD;

  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const uint64_t fraction = bits & kFractionMask;
  int exponent = static_cast<int>(bits >> 52) - 1023;
  uint64_t biased = 1023;
  if (fraction > kSqrt2Fraction) {
    biased = 1022;
    ++exponent;
  }
  const double m = std::bit_cast<double>(biased << 52 | fraction);
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double series = 1.0 / 23.0;
  for (int n = 21; n >= 3; n -= 2) series = series * s2 + 1.0 / n;
  const double log_m = 2.0 * s + 2.0 * s * (s2 * series);
  return exponent * kLn2High + (log_m + exponent * kLn2Low);
}

// The nearest quarter turn is taken off exactly; the rest, at most pi/4, goes into the Taylor
// series.
SinCos portable_sincos_turns(double turns) {
  CHECK_GE(turns, 0.0);
  CHECK_LT(turns, 1.0);
  constexpr double kHalfPi = 0x1.921fb54442d18p0;
  const double quarters = turns * 4.0;
  const int quadrant = static_cast<int>(quarters + 0.5);
  const double x = (quarters - quadrant) * kHalfPi;
  const double x2 = x * x;
  double sin_series = 1.0;
  double cos_series = 1.0;
  for (int n = 18; n >= 2; n -= 2) {
    sin_series = 1.0 - x2 * sin_series / (n * (n + 1.0));
    cos_series = 1.0 - x2 * cos_series / (n * (n - 1.0));
  }
  const double s = x * sin_series;
  const double c = cos_series;
  switch (quadrant % 4) {
    case 0:
      return {s, c};
    case 1:
      return {c, -s};
    case 2:
      return {-s, -c};
    default:
      return {-c, s};
  }
}

uint64_t keyed_permutation(uint64_t index, uint64_t size, uint64_t key) {
  CHECK_LT(index, size);
  const int bits = std::bit_width(size - 1);
  int left_bits = bits / 2;
  int right_bits = bits - left_bits;
  const auto mask = [](int n) { return (uint64_t{1} << n) - 1; };  // n <= 32
  constexpr int kRounds = 8;  // even: the halves, which may differ by one bit, end where they began
  uint64_t value = index;
  do {
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t left = value >> right_bits;
      const uint64_t right = value & mask(right_bits);
      const uint64_t hash = mix64(mix64(key + 0x9E3779B97F4A7C15 * (round + 1u)) ^ right);
      value = right << left_bits | (left ^ (hash & mask(left_bits)));
      std::swap(left_bits, right_bits);
    }
  } while (value >= size);
  return value;
}

SeededRandom::SeededRandom(uint64_t seed, uint64_t stream)
    : key_(philox_key(seed)),
      counter_{0, 0, static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)} {}

uint64_t SeededRandom::next_u64() {
  if (words_left_ == 0) {
    words_ = philox4x32(key_, counter_);
    words_left_ = 4;
    if (++counter_[0] == 0) ++counter_[1];
  }
  words_left_ -= 2;
  return join_words(words_[words_left_], words_[words_left_ + 1]);
}

// The high half of word * bound; a low half below 2^64 mod bound would make some values likelier
// and is drawn again.
uint64_t SeededRandom::uniform_int(uint64_t bound) {
  CHECK_GT(bound, 0u);
  const uint64_t threshold = -bound % bound;
  while (true) {
    const auto product = static_cast<unsigned __int128>(next_u64()) * bound;
    if (static_cast<uint64_t>(product) >= threshold) return static_cast<uint64_t>(product >> 64);
  }
}

double SeededRandom::exponential(double mean) {
  return -mean * portable_log(positive_unit_double(next_u64()));
}

double SeededRandom::normal() {
  const uint64_t word0 = next_u64();
  return box_muller(word0, next_u64()).first;
}

}  // namespace perdure::base
