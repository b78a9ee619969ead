#include "chaos/sim_world.h"

#include <algorithm>

namespace perdure::chaos {

SimWorld::SimWorld(const SimOptions& options)
    : options_(options),
      random_(options.seed, 1),
      network_(heap_, now_, trace_, options.link, base::SeededRandom(options.seed, 2)) {
  trace_.record(now_, "seed", {options.seed});
}

SimWorld::~SimWorld() {
  for (const auto& host : hosts_) {
    if (host->is_alive()) host->kill(Crash::kPower);
  }
  heap_.cancel_all_of(EventHeap::kWorld);
}

SimHost& SimWorld::add_host(std::string name, const SimHostOptions& options) {
  const uint32_t index = static_cast<uint32_t>(hosts_.size());
  const SimHost::Wiring wiring = {heap_, now_, network_, trace_, ready_, options_.seed};
  hosts_.push_back(std::make_unique<SimHost>(wiring, index, std::move(name), options));
  return *hosts_.back();
}

SimHost& SimWorld::host(std::string_view name) { return *hosts_[network_.index_of(name)]; }

void SimWorld::call_at(base::Nanos when, base::UniqueFunction<void()> action) {
  heap_.add(std::max(when, now_), EventHeap::kWorld, std::move(action));
}

void SimWorld::run_until(base::Nanos when) {
  while (step(when)) {
  }
  now_ = std::max(now_, when);
}

bool SimWorld::run_until(const std::function<bool()>& done, base::Nanos limit) {
  run_ready_hosts();
  while (!done()) {
    if (!step(limit)) return false;
  }
  return true;
}

// One event and all that it makes ready. False when none is left up to `limit`.
bool SimWorld::step(base::Nanos limit) {
  run_ready_hosts();
  base::Nanos when;
  if (!heap_.next_time(&when) || when > limit) return false;
  EventHeap::Event event = heap_.pop();
  CHECK_GE(event.when.count(), now_.count()) << "time runs backwards";
  now_ = event.when;
  ++event_count_;
  trace_.record(now_, "event", {event.owner});
  event.callback();
  if (event.owner != EventHeap::kWorld) hosts_[event.owner]->mark_ready();
  run_ready_hosts();
  return true;
}

void SimWorld::run_ready_hosts() {
  // Hosts may make each other ready: by freeing room in a stream that the other waits to send on.
  for (size_t i = 0; i < ready_.size(); ++i) ready_[i]->run_ready();
  ready_.clear();
}

}  // namespace perdure::chaos
