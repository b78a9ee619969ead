#include "chaos/event_heap.h"

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/random.h"
#include "tests/testing/matchers.h"

namespace perdure::chaos {
namespace {

using base::Nanos;
using ::testing::ElementsAre;

TEST(EventHeapTest, OrdersByTimeThenByAge) {
  EventHeap heap;
  std::vector<int> calls;
  heap.add(Nanos(5), 0, [&] { calls.push_back(1); });
  heap.add(Nanos(3), 0, [&] { calls.push_back(2); });
  heap.add(Nanos(5), 0, [&] { calls.push_back(3); });
  heap.add(Nanos(3), 0, [&] { calls.push_back(4); });
  Nanos when;
  while (heap.next_time(&when)) {
    EventHeap::Event event = heap.pop();
    EXPECT_EQ(event.when, when);
    event.callback();
  }
  EXPECT_THAT(calls, ElementsAre(2, 4, 1, 3));
}

TEST(EventHeapTest, CancelDestroysTheCallbackAndOldIdsAreIgnored) {
  EventHeap heap;
  auto owned = std::make_shared<int>(0);
  const base::TimerId id = heap.add(Nanos(1), 0, [owned] {});
  EXPECT_EQ(owned.use_count(), 2);
  heap.cancel(id);
  EXPECT_EQ(owned.use_count(), 1);
  const base::TimerId reused = heap.add(Nanos(1), 0, [owned] {});
  heap.cancel(id);
  heap.cancel(base::TimerId::kNone);
  EXPECT_EQ(heap.pending_count(), 1u);
  heap.cancel(reused);
  Nanos when;
  EXPECT_FALSE(heap.next_time(&when));
}

TEST(EventHeapTest, CancelsAllOfOneOwner) {
  EventHeap heap;
  for (uint32_t i = 0; i < 10; ++i) heap.add(Nanos(i), i % 2, [] {});
  heap.cancel_all_of(0);
  EXPECT_EQ(heap.pending_count(), 5u);
  Nanos when;
  while (heap.next_time(&when)) EXPECT_EQ(heap.pop().owner, 1u);
}

// Against a map, with so many cancellations that the heap compacts itself.
TEST(EventHeapTest, AgreesWithAMap) {
  base::SeededRandom random(testing::test_seed());
  EventHeap heap;
  std::map<std::pair<Nanos, int>, base::TimerId> model;
  int last_called = -1;
  for (int i = 0; i < 50000; ++i) {
    const Nanos when(random.uniform_int(1000));
    if (!random.bernoulli(0.1) || model.empty()) {
      model[{when, i}] = heap.add(when, 0, [&last_called, i] { last_called = i; });
    } else if (random.bernoulli(0.9)) {
      const auto victim = model.lower_bound({when, 0});
      if (victim == model.end()) continue;
      heap.cancel(victim->second);
      model.erase(victim);
    }
    if (model.size() > 2000) {
      while (model.size() > 20) {
        heap.cancel(model.rbegin()->second);
        model.erase(std::prev(model.end()));
      }
    }
    if (random.bernoulli(0.3) && !model.empty()) {
      heap.pop().callback();
      ASSERT_EQ(last_called, model.begin()->first.second);
      model.erase(model.begin());
    }
    ASSERT_EQ(heap.pending_count(), model.size());
  }
}

}  // namespace
}  // namespace perdure::chaos
