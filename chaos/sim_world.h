#pragma once
// SimWorld: hosts, links and disks in virtual time, all from one seed.
//
//   SimWorld world({.seed = 7});
//   for (int i = 0; i < 4; ++i) world.add_host("node" + std::to_string(i)).boot(make_node);
//   world.call_at(10_s, [&] { world.host("node2").kill(Crash::kPower); });
//   world.run_until(60_s);
//   EXPECT_EQ(world.trace().hash(), ...);
//
// How it runs: take the earliest event of the heap, move virtual time to it, call it (it completes
// waits, which posts to the io_contexts of hosts), then run what is ready on these hosts, until
// nothing is. So code under test runs in virtual time, one host after another, and the same seed
// gives the same run, event for event.
//
// Nothing here may depend on addresses, hash order, real time or threads.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/task.h"
#include "base/trace.h"
#include "base/units.h"
#include "chaos/event_heap.h"
#include "chaos/sim_host.h"
#include "chaos/sim_network.h"

namespace perdure::chaos {

struct SimOptions {
  uint64_t seed = 1;
  LinkOptions link = {};  // of all pairs, unless SimNetwork::set_link says otherwise
};

// Owns the hosts. One thread; used from outside of the hosts' code only (tests, fault plans,
// call_at).
class SimWorld {
 public:
  explicit SimWorld(const SimOptions& options);
  ~SimWorld();
  SimWorld(const SimWorld&) = delete;
  SimWorld& operator=(const SimWorld&) = delete;

  // The name is its network address. References stay valid as long as the world.
  SimHost& add_host(std::string name, const SimHostOptions& options = {});
  SimHost& host(std::string_view name);
  SimHost& host(size_t index) { return *hosts_.at(index); }
  size_t host_count() const { return hosts_.size(); }

  base::Nanos now() const { return now_; }

  // Calls `action` between the hosts' turns: the place for faults.
  void call_at(base::Nanos when, base::UniqueFunction<void()> action);

  // Runs all events up to `when`, and moves time there.
  void run_until(base::Nanos when);

  // Runs until `done` holds, which is asked after every event; false when it does not by `limit`.
  bool run_until(const std::function<bool()>& done, base::Nanos limit);

  // Runs `task` on a host, to its end. A task that needs longer than `limit` of virtual time is a
  // bug.
  template <typename T>
  T run(SimHost& host, base::Task<T> task, base::Nanos limit = base::Nanos(3'600'000'000'000));

  SimNetwork& network() { return network_; }
  base::Trace& trace() { return trace_; }
  // For fault plans; seams have streams of their own, so a fault drawn here does not shift their
  // numbers.
  base::SeededRandom& random() { return random_; }
  uint64_t seed() const { return options_.seed; }
  uint64_t event_count() const { return event_count_; }

 private:
  bool step(base::Nanos limit);
  void run_ready_hosts();

  const SimOptions options_;
  base::Nanos now_{0};
  uint64_t event_count_ = 0;
  EventHeap heap_;
  base::Trace trace_;
  base::SeededRandom random_;
  std::vector<SimHost*> ready_;  // in the order in which they became ready
  SimNetwork network_;
  std::vector<std::unique_ptr<SimHost>> hosts_;
};

template <typename T>
T SimWorld::run(SimHost& host, base::Task<T> task, base::Nanos limit) {
  std::optional<T> result;
  host.spawn(base::store_result(std::move(task), result));
  CHECK(run_until([&result] { return result.has_value(); }, now_ + limit))
      << "the task on " << host.name() << " does not end";
  return std::move(*result);
}

}  // namespace perdure::chaos
