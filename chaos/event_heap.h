#pragma once
// EventHeap: what will happen in virtual time. Events of one time happen in the order in which they
// were added.

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/units.h"

namespace perdure::chaos {

// One thread.
class EventHeap {
 public:
  using Callback = base::UniqueFunction<void()>;

  // Whose event it is: a host's number, or the world's.
  static constexpr uint32_t kWorld = 0xFFFFFFFF;

  base::TimerId add(base::Nanos when, uint32_t owner, Callback callback);

  // An event that has happened, or kNone, is ignored.
  void cancel(base::TimerId id);

  // Destroys all events of one owner.
  void cancel_all_of(uint32_t owner);

  // False when nothing is left. Else the earliest time.
  bool next_time(base::Nanos* when);

  struct Event {
    base::Nanos when;
    uint32_t owner;
    Callback callback;
  };
  // There is one (see next_time).
  Event pop();

  size_t pending_count() const { return pending_count_; }

 private:
  // Heap entries are small and are left behind by cancel(): an entry whose generation is not its
  // slot's is dead.
  struct Entry {
    base::Nanos when;
    uint64_t sequence;
    uint32_t slot;
    uint32_t generation;
  };
  static constexpr uint32_t kNone = 0xFFFFFFFF;
  // The live slots of one owner are linked: a host that dies must not cost a walk over all events.
  struct Slot {
    Callback callback;
    uint32_t owner = 0;
    uint32_t generation = 0;
    uint32_t previous = kNone;
    uint32_t next = kNone;
  };
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const {
      return a.when != b.when ? a.when > b.when : a.sequence > b.sequence;
    }
  };

  bool is_live(const Entry& entry) const {
    return slots_[entry.slot].generation == entry.generation;
  }
  Callback free_slot(uint32_t slot);
  uint32_t& first_of(uint32_t owner);
  void drop_dead_front();
  void compact_if_mostly_dead();

  std::vector<Entry> heap_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  std::vector<uint32_t> firsts_;  // by owner
  uint32_t first_of_world_ = kNone;
  uint64_t sequence_last_ = 0;
  size_t pending_count_ = 0;
};

}  // namespace perdure::chaos
