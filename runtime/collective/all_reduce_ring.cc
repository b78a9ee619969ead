// Ring all-reduce. With members p = 0..n-1 and the data cut into n segments:
//
//   reduce-scatter, round r: p sends segment (p - r) to p+1 and adds what p-1 sends to segment (p -
//   r - 1);
//                            after n-1 rounds p holds segment (p + 1) complete
//   all-gather, round r:     p sends segment (p + 1 - r), receives segment (p - r)
//
// A segment goes in chunks of kRingChunkBytes, with kDepth receives posted ahead.

#include <algorithm>
#include <array>

#include "runtime/collective/collectives.h"

namespace perdure::runtime::collective {
namespace {

constexpr size_t kDepth = 2;

struct Segment {
  size_t begin = 0;
  size_t end = 0;
  size_t chunks() const { return (end - begin + kRingChunkBytes - 1) / kRingChunkBytes; }
  Segment chunk(size_t i) const {
    const size_t at = begin + i * kRingChunkBytes;
    return {at, std::min(end, at + kRingChunkBytes)};
  }
  size_t size() const { return end - begin; }
};

class Ring {
 public:
  Ring(Fabric& fabric, const AllReduceArgs& args) : fabric_(fabric), args_(args) {
    n_ = args.members.size();
    const auto self = std::find(args.members.begin(), args.members.end(), fabric.rank());
    CHECK(self != args.members.end()) << "rank " << fabric.rank() << " is not a member";
    p_ = static_cast<size_t>(self - args.members.begin());
    next_ = args.members[(p_ + 1) % n_];
    previous_ = args.members[(p_ + n_ - 1) % n_];
  }

  base::Status run() {
    for (size_t r = 0; r + 1 < n_; ++r) {
      RETURN_IF_ERROR(round(segment(p_ + n_ - r), segment(p_ + n_ - r - 1), Keep::kAdd));
    }
    for (size_t r = 0; r + 1 < n_; ++r) {
      RETURN_IF_ERROR(round(segment(p_ + 1 + n_ - r), segment(p_ + n_ - r), Keep::kReplace));
    }
    return base::Status::ok();
  }

 private:
  enum class Keep : uint8_t { kAdd, kReplace };

  // Segment borders are 64-byte multiples, which every element size divides.
  Segment segment(size_t index) const {
    const size_t units = (args_.data.size() + 63) / 64;
    const size_t i = index % n_;
    return {std::min(args_.data.size(), units * i / n_ * 64),
            std::min(args_.data.size(), units * (i + 1) / n_ * 64)};
  }

  Tag next_tag(uint32_t sequence) const {
    CHECK_LT(args_.index, 256u);
    return {args_.channel, args_.step, (args_.index << 12) | (sequence & 0xfffu)};
  }

  std::span<std::byte> landing(const Segment& chunk, size_t i, Keep keep) const {
    if (keep == Keep::kReplace) return args_.data.subspan(chunk.begin, chunk.size());
    return args_.scratch.subspan((i % kDepth) * kRingChunkBytes, chunk.size());
  }

  base::Status round(const Segment& out, const Segment& in, Keep keep) {
    std::array<Ticket, kDepth> receives{};
    std::array<Ticket, kDepth> sends{};
    const size_t chunks = std::max(out.chunks(), in.chunks());
    for (size_t i = 0; i < std::min(kDepth, in.chunks()); ++i) post_receive(in, i, keep, receives);
    for (size_t i = 0; i < chunks; ++i) {
      if (i < out.chunks()) {
        if (i >= kDepth) RETURN_IF_ERROR(fabric_.wait(sends[i % kDepth], args_.timeout));
        const Segment chunk = out.chunk(i);
        sends[i % kDepth] = fabric_.post_send(next_, next_tag(sent_++),
                                              args_.data.subspan(chunk.begin, chunk.size()));
      }
      if (i < in.chunks()) {
        RETURN_IF_ERROR(fabric_.wait(receives[i % kDepth], args_.timeout));
        const Segment chunk = in.chunk(i);
        if (keep == Keep::kAdd) {
          combine(args_.op, args_.data.subspan(chunk.begin, chunk.size()), landing(chunk, i, keep));
        }
        if (i + kDepth < in.chunks()) post_receive(in, i + kDepth, keep, receives);
      }
    }
    const size_t open = std::min(kDepth, out.chunks());
    for (size_t i = out.chunks() - open; i < out.chunks(); ++i) {
      RETURN_IF_ERROR(fabric_.wait(sends[i % kDepth], args_.timeout));
    }
    return base::Status::ok();
  }

  void post_receive(const Segment& in, size_t i, Keep keep, std::array<Ticket, kDepth>& receives) {
    const Segment chunk = in.chunk(i);
    receives[i % kDepth] =
        fabric_.post_receive(previous_, next_tag(received_++), landing(chunk, i, keep));
  }

  Fabric& fabric_;
  const AllReduceArgs& args_;
  size_t n_ = 0;
  size_t p_ = 0;
  base::Rank next_, previous_;
  uint32_t sent_ = 0;
  uint32_t received_ = 0;
};

}  // namespace

size_t all_reduce_scratch_bytes() { return kDepth * kRingChunkBytes; }

base::Status all_reduce_ring(Fabric& fabric, const AllReduceArgs& args) {
  CHECK_EQ(args.data.size() % element_bytes(args.op), 0u);
  CHECK_GE(args.scratch.size(), all_reduce_scratch_bytes());
  if (args.members.size() <= 1 || args.data.empty()) return base::Status::ok();
  return Ring(fabric, args).run();
}

}  // namespace perdure::runtime::collective
