#include "checkpoint/parity/reed_solomon.h"

#include <isa-l/erasure_code.h>
#include <isa-l/raid.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

#include "base/check.h"

namespace perdure::checkpoint::parity {
namespace {

// What is worked on at a time: sources of some stripes stay in the second cache.
constexpr size_t kBlockBytes = 64 << 10;
constexpr size_t kTableBytes = 32;  // of ISA-L, per coefficient
constexpr size_t kXorAlignment = 32;

struct alignas(64) Line {
  std::byte bytes[64] = {};
};
constexpr size_t kBlockLines = kBlockBytes / sizeof(Line);

uint8_t* writable(const std::byte* bytes) {  // ISA-L does not write to its sources
  return reinterpret_cast<uint8_t*>(const_cast<std::byte*>(bytes));
}

// outs[r] = sum over i of rows[r][i] * sources[i], block by block, short ones padded with zeros.
class Combination {
 public:
  Combination(std::vector<uint8_t> rows, std::vector<base::ByteSpan> sources,
              std::vector<base::MutableByteSpan> outs)
      : rows_(std::move(rows)),
        sources_(std::move(sources)),
        outs_(std::move(outs)),
        tables_(kTableBytes * rows_.size()),
        zeros_(kBlockLines),
        scratch_(kBlockLines * (sources_.size() + outs_.size())) {
    CHECK_EQ(rows_.size(), sources_.size() * outs_.size());
    ec_init_tables(static_cast<int>(sources_.size()), static_cast<int>(outs_.size()), rows_.data(),
                   tables_.data());
    is_xor_ = outs_.size() == 1 && sources_.size() > 1 &&
              std::all_of(rows_.begin(), rows_.end(), [](uint8_t c) { return c == 1; });
  }

  void run(size_t length) {
    for (size_t at = 0; at < length; at += kBlockBytes) {
      block(at, std::min(kBlockBytes, length - at));
    }
  }

 private:
  std::byte* scratch(size_t i) { return scratch_[i * kBlockLines].bytes; }

  void block(size_t at, size_t bytes) {
    pointers_.clear();
    for (size_t i = 0; i < sources_.size(); ++i) {
      pointers_.push_back(writable(source(i, at, bytes)));
    }
    for (size_t r = 0; r < outs_.size(); ++r) {
      const bool whole = at + bytes <= outs_[r].size();
      pointers_.push_back(writable(whole ? outs_[r].data() + at : scratch(sources_.size() + r)));
    }
    multiply(bytes);
    for (size_t r = 0; r < outs_.size(); ++r) {
      if (at + bytes <= outs_[r].size() || at >= outs_[r].size()) continue;
      std::memcpy(outs_[r].data() + at, scratch(sources_.size() + r), outs_[r].size() - at);
    }
  }

  const std::byte* source(size_t i, size_t at, size_t bytes) {
    const base::ByteSpan all = sources_[i];
    if (at + bytes <= all.size()) return all.data() + at;
    if (at >= all.size()) return zeros_[0].bytes;
    const size_t rest = all.size() - at;
    std::memcpy(scratch(i), all.data() + at, rest);
    std::memset(scratch(i) + rest, 0, bytes - rest);
    return scratch(i);
  }

  void multiply(size_t bytes) {
    const auto is_aligned = [](const uint8_t* p) {
      return reinterpret_cast<uintptr_t>(p) % kXorAlignment == 0;
    };
    if (is_xor_ && std::all_of(pointers_.begin(), pointers_.end(), is_aligned)) {
      CHECK_EQ(xor_gen(static_cast<int>(pointers_.size()), static_cast<int>(bytes),
                       reinterpret_cast<void**>(pointers_.data())),
               0);
      return;
    }
    ec_encode_data(static_cast<int>(bytes), static_cast<int>(sources_.size()),
                   static_cast<int>(outs_.size()), tables_.data(), pointers_.data(),
                   pointers_.data() + sources_.size());
  }

  std::vector<uint8_t> rows_;
  const std::vector<base::ByteSpan> sources_;
  const std::vector<base::MutableByteSpan> outs_;
  std::vector<uint8_t> tables_;
  const std::vector<Line> zeros_;
  std::vector<Line> scratch_;  // one block for each source and each out
  std::vector<uint8_t*> pointers_;
  bool is_xor_ = false;
};

std::string describe(StripeCounts counts) {
  return std::to_string(counts.data) + "+" + std::to_string(counts.parity);
}

base::Status check_length(uint32_t index, size_t bytes, size_t longest) {
  if (bytes == longest) return base::Status::ok();
  return base::invalid_argument("parity: stripe " + std::to_string(index) + " has " +
                                std::to_string(bytes) + " bytes, the longest data has " +
                                std::to_string(longest));
}

}  // namespace

base::Result<ReedSolomon> ReedSolomon::create(StripeCounts counts) {
  if (counts.data == 0 || counts.parity == 0 ||
      uint64_t{counts.data} + counts.parity > kStripesMax) {
    return base::invalid_argument("parity: " + describe(counts) +
                                  " stripes; needs one of each at least, and at most " +
                                  std::to_string(kStripesMax) + " together");
  }
  return ReedSolomon(counts);
}

ReedSolomon::ReedSolomon(StripeCounts counts)
    : counts_(counts), matrix_(size_t{counts.data + counts.parity} * counts.data) {
  const int stripes = static_cast<int>(counts.data + counts.parity);
  gf_gen_cauchy1_matrix(matrix_.data(), stripes, static_cast<int>(counts.data));
  // Any square part of the matrix stays invertible when a column is scaled.
  for (uint32_t j = 0; j < counts.data; ++j) {
    const uint8_t scale = gf_inv(matrix_[size_t{counts.data} * counts.data + j]);
    for (uint32_t i = counts.data; i < counts.data + counts.parity; ++i) {
      uint8_t& c = matrix_[size_t{i} * counts.data + j];
      c = gf_mul(c, scale);
    }
  }
}

std::span<const uint8_t> ReedSolomon::row(uint32_t stripe) const {
  return std::span(matrix_).subspan(size_t{stripe} * counts_.data, counts_.data);
}

base::Status ReedSolomon::encode(std::span<const base::ByteSpan> data,
                                 std::span<const base::MutableByteSpan> parity) const {
  if (data.size() != counts_.data || parity.size() != counts_.parity) {
    return base::invalid_argument("parity: " + std::to_string(data.size()) + " data and " +
                                  std::to_string(parity.size()) + " parity stripes for a code of " +
                                  describe(counts_));
  }
  size_t longest = 0;
  for (const base::ByteSpan& stripe : data) longest = std::max(longest, stripe.size());
  for (uint32_t i = 0; i < counts_.parity; ++i) {
    RETURN_IF_ERROR(check_length(counts_.data + i, parity[i].size(), longest));
  }
  const auto begin = matrix_.begin() + static_cast<ptrdiff_t>(counts_.data * counts_.data);
  Combination({begin, matrix_.end()}, {data.begin(), data.end()}, {parity.begin(), parity.end()})
      .run(longest);
  return base::Status::ok();
}

base::Status ReedSolomon::rebuild(std::span<const base::ByteSpan> stripes,
                                  std::span<const LostStripe> lost) const {
  RETURN_IF_ERROR(check_lost(stripes, lost));
  if (lost.empty()) return base::Status::ok();
  std::set<uint32_t> missing;
  size_t longest = 0;
  std::vector<base::MutableByteSpan> outs;
  for (const LostStripe& stripe : lost) {
    missing.insert(stripe.index);
    longest = std::max(longest, stripe.to.size());
    outs.push_back(stripe.to);
  }
  std::vector<uint32_t> survivors;
  std::vector<base::ByteSpan> sources;
  for (uint32_t i = 0; i < stripes.size() && survivors.size() < counts_.data; ++i) {
    if (missing.contains(i)) continue;
    survivors.push_back(i);
    sources.push_back(stripes[i]);
    longest = std::max(longest, stripes[i].size());
  }
  Combination(coefficients(lost, survivors), std::move(sources), std::move(outs)).run(longest);
  return base::Status::ok();
}

base::Status ReedSolomon::check_lost(std::span<const base::ByteSpan> stripes,
                                     std::span<const LostStripe> lost) const {
  if (stripes.size() != counts_.data + counts_.parity) {
    return base::invalid_argument("parity: " + std::to_string(stripes.size()) +
                                  " stripes for a code of " + describe(counts_));
  }
  std::vector<size_t> bytes;
  for (const base::ByteSpan& stripe : stripes) bytes.push_back(stripe.size());
  std::set<uint32_t> missing;
  for (const LostStripe& stripe : lost) {
    if (stripe.index >= stripes.size() || !missing.insert(stripe.index).second) {
      return base::invalid_argument("parity: stripe " + std::to_string(stripe.index) +
                                    " is lost twice, or is none of " + describe(counts_));
    }
    bytes[stripe.index] = stripe.to.size();
  }
  if (lost.size() > counts_.parity) {
    return base::data_loss("parity: " + std::to_string(lost.size()) + " stripes of " +
                           describe(counts_) + " are lost, " + std::to_string(counts_.parity) +
                           " can be rebuilt");
  }
  const size_t longest = *std::max_element(bytes.begin(), bytes.begin() + counts_.data);
  for (uint32_t i = counts_.data; i < stripes.size(); ++i) {
    RETURN_IF_ERROR(check_length(i, bytes[i], longest));
  }
  return base::Status::ok();
}

// survivors = A * data, so lost = B * data = B * A^-1 * survivors.
std::vector<uint8_t> ReedSolomon::coefficients(std::span<const LostStripe> lost,
                                               std::span<const uint32_t> survivors) const {
  const size_t k = counts_.data;
  CHECK_EQ(survivors.size(), k);
  std::vector<uint8_t> a, inverse(k * k), result;
  for (const uint32_t survivor : survivors) {
    a.insert(a.end(), row(survivor).begin(), row(survivor).end());
  }
  CHECK_EQ(gf_invert_matrix(a.data(), inverse.data(), static_cast<int>(k)), 0);
  for (const LostStripe& stripe : lost) {
    for (size_t j = 0; j < k; ++j) {
      uint8_t sum = 0;
      for (size_t i = 0; i < k; ++i) sum ^= gf_mul(row(stripe.index)[i], inverse[i * k + j]);
      result.push_back(sum);
    }
  }
  return result;
}

}  // namespace perdure::checkpoint::parity
