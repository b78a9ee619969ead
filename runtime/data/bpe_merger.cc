#include "runtime/data/bpe_merger.h"

namespace perdure::runtime::data {
namespace {

constexpr uint32_t kEnd = UINT32_MAX;
constexpr TokenId kGone = UINT32_MAX;

uint64_t pair_key(TokenId left, TokenId right) { return uint64_t{left} << 32 | right; }

}  // namespace

BpeMerger::BpeMerger(const std::vector<BpeMerge>& merges) {
  targets_.reserve(merges.size());
  for (uint32_t rank = 0; rank < merges.size(); ++rank) {
    const BpeMerge& merge = merges[rank];
    targets_.try_emplace(pair_key(merge.left, merge.right), Target{rank, merge.merged});
  }
}

const BpeMerger::Target* BpeMerger::find(TokenId left, TokenId right) const {
  const auto found = targets_.find(pair_key(left, right));
  return found == targets_.end() ? nullptr : &found->second;
}

void BpeMerger::push(uint32_t left) {
  if (left == kEnd || nodes_[left].next == kEnd) return;
  const TokenId a = nodes_[left].token;
  const TokenId b = nodes_[nodes_[left].next].token;
  if (const Target* target = find(a, b)) queue_.push({target->rank, left, a, b});
}

void BpeMerger::merge(std::span<const TokenId> piece, std::vector<TokenId>& out) {
  CHECK_LT(piece.size(), size_t{kEnd});
  if (piece.empty()) return;
  const uint32_t count = static_cast<uint32_t>(piece.size());
  nodes_.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    nodes_[i] = {piece[i], i == 0 ? kEnd : i - 1, i + 1 == count ? kEnd : i + 1};
  }
  for (uint32_t i = 0; i + 1 < count; ++i) push(i);
  while (!queue_.empty()) {
    const Candidate best = queue_.top();
    queue_.pop();
    Node& left = nodes_[best.left];
    if (left.token != best.left_token || left.next == kEnd ||
        nodes_[left.next].token != best.right_token) {
      continue;
    }
    Node& right = nodes_[left.next];
    left.token = find(best.left_token, best.right_token)->merged;
    left.next = right.next;
    right.token = kGone;
    if (left.next != kEnd) nodes_[left.next].previous = best.left;
    push(left.previous);
    push(best.left);
  }
  for (uint32_t i = 0; i != kEnd; i = nodes_[i].next) out.push_back(nodes_[i].token);
}

}  // namespace perdure::runtime::data
