#pragma once
// Parity: k stripes of data and p of parity, of which any p may be lost. Files of several nodes
// survive the loss of p of them at the cost of p/k of their size, where copies cost all of it.
//
// Stripes of data may have different lengths: a shorter one counts as continued with zeros, which
// are never stored. Parity is as long as the longest. Reed-Solomon over GF(2^8) with the polynomial
// 0x11d: parity i is the sum of c(i, j) * data j with c(i, j) = (k ^ j) / ((k + i) ^ j), a Cauchy
// matrix whose columns are scaled so that parity 0 is plain XOR.
//
//   data 0  [==============]           parity 0  [====================]
//   data 1  [====================]     parity 1  [====================]
//   data 2  [=====]

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/units.h"

namespace perdure::checkpoint::parity {

struct StripeCounts {
  uint32_t data = 0;
  uint32_t parity = 0;
};
inline constexpr uint32_t kStripesMax = 255;  // data and parity

struct LostStripe {
  uint32_t index = 0;        // data from 0, parity from StripeCounts::data
  base::MutableByteSpan to;  // of its true length: is written
};

// Immutable: any thread, several at once.
class ReedSolomon {
 public:
  // kInvalidArgument: no data, no parity, or too many.
  static base::Result<ReedSolomon> create(StripeCounts counts);

  // kInvalidArgument: another count of stripes, parity that is not as long as the longest data.
  base::Status encode(std::span<const base::ByteSpan> data,
                      std::span<const base::MutableByteSpan> parity) const;

  // `stripes`: all of them, data first; what is at the places of lost ones is not looked at.
  // kDataLoss: more are lost than there is parity. kInvalidArgument: a count, an index or a length
  // that can not be. What comes out is only as good as what went in: check its hashes.
  base::Status rebuild(std::span<const base::ByteSpan> stripes,
                       std::span<const LostStripe> lost) const;

 private:
  explicit ReedSolomon(StripeCounts counts);
  std::span<const uint8_t> row(uint32_t stripe) const;
  base::Status check_lost(std::span<const base::ByteSpan> stripes,
                          std::span<const LostStripe> lost) const;
  std::vector<uint8_t> coefficients(std::span<const LostStripe> lost,
                                    std::span<const uint32_t> survivors) const;

  StripeCounts counts_;
  std::vector<uint8_t> matrix_;  // stripe x data: stripe = sum of matrix_ * data
};

}  // namespace perdure::checkpoint::parity
