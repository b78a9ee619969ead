// Recursive doubling among n members, m = largest power of two <= n:
//   members m..n-1 give their data to member p - m; members 0..m-1 exchange with p ^ 1, p ^ 2, p ^
//   4, ...; then members m..n-1 are told the result.

#include <algorithm>
#include <bit>

#include "runtime/collective/collectives.h"

namespace perdure::runtime::collective {
namespace {

constexpr uint32_t kFoldRound = 60;
constexpr uint32_t kTellRound = 61;

Tag round_tag(const AllReduceArgs& args, uint32_t round) {
  CHECK_LT(args.index, 256u);
  return {args.channel, args.step, (args.index << 12) | round};
}

base::Status send_to(Fabric& fabric, const AllReduceArgs& args, base::Rank to, uint32_t round) {
  return fabric.wait(fabric.post_send(to, round_tag(args, round), args.data), args.timeout);
}

base::Status exchange(Fabric& fabric, const AllReduceArgs& args, base::Rank partner,
                      uint32_t round) {
  const std::span<std::byte> landing = args.scratch.first(args.data.size());
  const Ticket receive = fabric.post_receive(partner, round_tag(args, round), landing);
  const Ticket send = fabric.post_send(partner, round_tag(args, round), args.data);
  RETURN_IF_ERROR(fabric.wait(receive, args.timeout));
  RETURN_IF_ERROR(fabric.wait(send, args.timeout));  // data is free to change only now
  combine(args.op, args.data, landing);
  return base::Status::ok();
}

}  // namespace

base::Status all_reduce_small(Fabric& fabric, const AllReduceArgs& args) {
  CHECK_GE(args.scratch.size(), args.data.size());
  const size_t n = args.members.size();
  if (n <= 1 || args.data.empty()) return base::Status::ok();
  const auto self = std::find(args.members.begin(), args.members.end(), fabric.rank());
  CHECK(self != args.members.end()) << "rank " << fabric.rank() << " is not a member";
  const size_t p = static_cast<size_t>(self - args.members.begin());
  const size_t m = std::bit_floor(n);

  if (p >= m) {
    const base::Rank partner = args.members[p - m];
    RETURN_IF_ERROR(send_to(fabric, args, partner, kFoldRound));
    return fabric.wait(fabric.post_receive(partner, round_tag(args, kTellRound), args.data),
                       args.timeout);
  }
  if (p + m < n) {
    const std::span<std::byte> landing = args.scratch.first(args.data.size());
    RETURN_IF_ERROR(
        fabric.wait(fabric.post_receive(args.members[p + m], round_tag(args, kFoldRound), landing),
                    args.timeout));
    combine(args.op, args.data, landing);
  }
  uint32_t round = 0;
  for (size_t distance = 1; distance < m; distance *= 2, ++round) {
    RETURN_IF_ERROR(exchange(fabric, args, args.members[p ^ distance], round));
  }
  if (p + m < n) return send_to(fabric, args, args.members[p + m], kTellRound);
  return base::Status::ok();
}

}  // namespace perdure::runtime::collective
