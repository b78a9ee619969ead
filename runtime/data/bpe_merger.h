#pragma once
// The merging half of byte-pair encoding: joins neighbouring tokens, best pair first, until no pair
// is known (Sennrich et al., arXiv 1508.07909).

#include <cstdint>
#include <queue>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/data/tokenizer.h"

namespace perdure::runtime::data {

struct BpeMerge {
  TokenId left;
  TokenId right;
  TokenId merged;
};

// One thread at a time. O(n log n) in the length of a piece, however strange the piece.
class BpeMerger {
 public:
  // Earlier merges go first.
  explicit BpeMerger(const std::vector<BpeMerge>& merges);

  // Appends the merged form of `piece` to `out`.
  void merge(std::span<const TokenId> piece, std::vector<TokenId>& out);

 private:
  struct Target {
    uint32_t rank;
    TokenId merged;
  };
  struct Candidate {
    uint32_t rank;
    uint32_t left;  // index of the left node
    TokenId left_token;
    TokenId right_token;  // both as they were when it was found: else it is stale
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  // A list linked by index: merging unlinks the right node.
  struct Node {
    TokenId token;
    uint32_t previous;
    uint32_t next;
  };

  void push(uint32_t left);
  const Target* find(TokenId left, TokenId right) const;

  std::unordered_map<uint64_t, Target> targets_;
  std::vector<Node> nodes_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue_;
};

}  // namespace perdure::runtime::data
