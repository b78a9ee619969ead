#include "chaos/event_heap.h"

#include <algorithm>
#include <utility>

namespace perdure::chaos {
namespace {

base::TimerId make_id(uint32_t slot, uint32_t generation) {
  return static_cast<base::TimerId>(uint64_t{generation} << 32 | (slot + 1));
}

}  // namespace

base::TimerId EventHeap::add(base::Nanos when, uint32_t owner, Callback callback) {
  uint32_t slot = static_cast<uint32_t>(slots_.size());
  if (free_slots_.empty()) {
    slots_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  uint32_t& first = first_of(owner);
  slots_[slot].callback = std::move(callback);
  slots_[slot].owner = owner;
  slots_[slot].previous = kNone;
  slots_[slot].next = first;
  if (first != kNone) slots_[first].previous = slot;
  first = slot;
  heap_.push_back({when, ++sequence_last_, slot, slots_[slot].generation});
  std::push_heap(heap_.begin(), heap_.end(), Later());
  ++pending_count_;
  return make_id(slot, slots_[slot].generation);
}

void EventHeap::cancel(base::TimerId id) {
  if (id == base::TimerId::kNone) return;
  const uint32_t slot = static_cast<uint32_t>(id) - 1;
  const uint32_t generation = static_cast<uint32_t>(static_cast<uint64_t>(id) >> 32);
  CHECK_LT(slot, slots_.size());
  if (slots_[slot].generation != generation) return;
  // Destroyed last: it may own a coroutine that cancels other events.
  const Callback dropped = free_slot(slot);
  compact_if_mostly_dead();
}

void EventHeap::cancel_all_of(uint32_t owner) {
  std::vector<Callback> dropped;
  while (first_of(owner) != kNone) dropped.push_back(free_slot(first_of(owner)));
}

uint32_t& EventHeap::first_of(uint32_t owner) {
  if (owner == kWorld) return first_of_world_;
  if (owner >= firsts_.size()) firsts_.resize(owner + 1, kNone);
  return firsts_[owner];
}

bool EventHeap::next_time(base::Nanos* when) {
  drop_dead_front();
  if (heap_.empty()) return false;
  *when = heap_.front().when;
  return true;
}

EventHeap::Event EventHeap::pop() {
  drop_dead_front();
  CHECK(!heap_.empty());
  const Entry entry = heap_.front();
  std::pop_heap(heap_.begin(), heap_.end(), Later());
  heap_.pop_back();
  const uint32_t owner = slots_[entry.slot].owner;
  return {entry.when, owner, free_slot(entry.slot)};
}

EventHeap::Callback EventHeap::free_slot(uint32_t slot) {
  Slot& freed = slots_[slot];
  (freed.previous == kNone ? first_of(freed.owner) : slots_[freed.previous].next) = freed.next;
  if (freed.next != kNone) slots_[freed.next].previous = freed.previous;
  ++freed.generation;
  free_slots_.push_back(slot);
  --pending_count_;
  return std::move(freed.callback);
}

void EventHeap::drop_dead_front() {
  while (!heap_.empty() && !is_live(heap_.front())) {
    std::pop_heap(heap_.begin(), heap_.end(), Later());
    heap_.pop_back();
  }
}

void EventHeap::compact_if_mostly_dead() {
  if (heap_.size() < 1024 || pending_count_ > heap_.size() / 2) return;
  std::erase_if(heap_, [this](const Entry& entry) { return !is_live(entry); });
  std::make_heap(heap_.begin(), heap_.end(), Later());
}

}  // namespace perdure::chaos
