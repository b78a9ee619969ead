#include "chaos/cluster/data_plane.h"

#include "chaos/cluster/fake_engine.h"

namespace perdure::chaos::cluster {
namespace {

constexpr size_t kGroupsKept = 8;  // of old epochs, for those who are still in them

}  // namespace

DataPlane::DataPlane(SimWorld& world, uint64_t seed, const DataPlaneOptions& options)
    : world_(world), options_(options), random_(seed, 11) {}

base::Nanos DataPlane::draw(base::Nanos mean) {
  return base::Nanos(static_cast<int64_t>(random_.exponential(static_cast<double>(mean.count()))));
}

void DataPlane::attach(FakeEngine& engine) {
  engines_[{engine.worker(), engine.incarnation()}] = &engine;
}

void DataPlane::detach(FakeEngine& engine) {
  leave(engine);
  seats_.erase({engine.worker(), engine.incarnation()});
  engines_.erase({engine.worker(), engine.incarnation()});
}

FakeEngine* DataPlane::find(const EngineKey& key) {
  const auto found = engines_.find(key);
  return found == engines_.end() ? nullptr : found->second;
}

uint32_t DataPlane::side_of(const EngineKey& key) {
  const FakeEngine* engine = find(key);
  const auto found = engine == nullptr ? sides_.end() : sides_.find(engine->host().index());
  return found == sides_.end() ? 0 : found->second;
}

void DataPlane::sit(FakeEngine& engine, const Seat& seat) {
  Group& group = groups_[seat.epoch];
  group.ranks = seat.ranks;
  group.seats[seat.rank] = {engine.worker(), engine.incarnation()};
  group.present.insert(seat.rank);
  group.untold.insert(seat.rank);
  seats_[{engine.worker(), engine.incarnation()}][seat.epoch] = seat.rank;
  while (groups_.size() > kGroupsKept) groups_.erase(groups_.begin());
}

void DataPlane::leave(FakeEngine& engine) {
  const auto seats = seats_.find({engine.worker(), engine.incarnation()});
  if (seats == seats_.end()) return;
  for (const auto& [epoch, rank] : std::exchange(seats->second, {})) {
    const auto group = groups_.find(epoch);
    if (group == groups_.end()) continue;
    group->second.present.erase(rank);
    group->second.untold.erase(rank);
    tell_loss(epoch, rank);
  }
}

void DataPlane::tell_loss(base::Epoch epoch, base::Rank lost) {
  // One loss is enough for an engine: who will hear of one is not told of others.
  std::set<base::Rank>& untold = groups_.at(epoch).untold;
  for (auto next = untold.begin(); next != untold.end();) {
    const base::Rank rank = *next;
    next = random_.bernoulli(options_.silent_loss) ? std::next(next) : untold.erase(next);
    if (untold.contains(rank)) continue;
    world_.call_at(world_.now() + draw(options_.loss_mean), [this, epoch, rank, lost] {
      const auto group = groups_.find(epoch);
      if (group == groups_.end() || !group->second.present.contains(rank)) return;
      FakeEngine* engine = find(group->second.seats.at(rank));
      if (engine != nullptr) engine->peer_lost(epoch, lost);
    });
  }
}

void DataPlane::arrive(FakeEngine& engine, const BarrierKey& key, bool wants_hold) {
  Group& group = groups_[engine.seat().epoch];
  Barrier& barrier = group.barriers[key];
  barrier.arrived.insert(engine.seat().rank);
  barrier.wants_hold = barrier.wants_hold || wants_hold;
  try_pass(engine.seat().epoch, group, key);
}

void DataPlane::try_pass(base::Epoch epoch, Group& group, const BarrierKey& key) {
  Barrier& barrier = group.barriers[key];
  if (barrier.passed || barrier.arrived.size() < group.ranks) return;
  // Cut cables hold the messages back until they are mended; who has died had sent his.
  if (!sides_.empty()) {
    const uint32_t side = side_of(group.seats.begin()->second);
    for (const auto& [rank, seat] : group.seats) {
      if (side_of(seat) != side) return;
    }
  }
  barrier.passed = true;
  for (const auto& [rank, seat] : group.seats) {
    const bool late = random_.bernoulli(options_.late);
    const base::Nanos delay = draw(late ? options_.late_mean : options_.message_mean);
    world_.call_at(world_.now() + delay, [this, epoch, key, rank, hold = barrier.wants_hold] {
      deliver(epoch, key, rank, hold);
    });
  }
  // Earlier barriers of the epoch have been left by all.
  while (group.barriers.size() > 4) group.barriers.erase(group.barriers.begin());
}

void DataPlane::deliver(base::Epoch epoch, const BarrierKey& key, base::Rank rank,
                        bool wants_hold) {
  const auto group = groups_.find(epoch);
  if (group == groups_.end() || !group->second.present.contains(rank)) return;
  FakeEngine* engine = find(group->second.seats.at(rank));
  if (engine != nullptr) engine->passed(epoch, key, wants_hold);
}

FakeEngine* DataPlane::peer(const FakeEngine& by, base::Epoch epoch, base::Rank rank) {
  const auto group = groups_.find(epoch);
  if (group == groups_.end() || !group->second.present.contains(rank)) return nullptr;
  const EngineKey& key = group->second.seats.at(rank);
  if (side_of(key) != side_of({by.worker(), by.incarnation()})) return nullptr;
  return find(key);
}

void DataPlane::set_side(uint32_t host, uint32_t side) { sides_[host] = side; }

void DataPlane::heal_all() {
  sides_.clear();
  for (auto& [epoch, group] : groups_) {
    std::vector<BarrierKey> keys;
    for (const auto& [key, barrier] : group.barriers) keys.push_back(key);
    for (const BarrierKey& key : keys) try_pass(epoch, group, key);
  }
}

}  // namespace perdure::chaos::cluster
