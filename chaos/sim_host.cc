#include "chaos/sim_host.h"

#include <utility>

namespace perdure::chaos {

SimHost::SimHost(const Wiring& wiring, uint32_t index, std::string name,
                 const SimHostOptions& options)
    : wiring_(wiring),
      index_(index),
      name_(std::move(name)),
      clock_(wiring.heap, wiring.now, index, options.clock_offset),
      files_(options.disk, base::SeededRandom(wiring.seed, 1000 + index)),
      network_(wiring.network.make_port(*this)) {
  start();
}

SimHost::~SimHost() {
  if (is_alive_) kill(Crash::kProcess);
}

void SimHost::start() {
  CHECK(!is_alive_);
  ++incarnation_;
  is_alive_ = true;
  is_paused_ = false;
  test_gate_.emplace();
  // The hint says that one thread runs it; poll() never waits, so nothing real is behind it.
  context_ = std::make_unique<boost::asio::io_context>(1);
  work_.emplace(context_->get_executor());
  wiring_.network.on_host_start(*this);
  if (program_) process_ = program_(*this);
  mark_ready();
}

void SimHost::boot(Program program) {
  CHECK(is_alive_ && process_ == nullptr) << name_ << " has a program already";
  program_ = std::move(program);
  process_ = program_(*this);
  mark_ready();
}

void SimHost::kill(Crash crash) {
  CHECK(is_alive_) << name_ << " is dead already";
  CHECK(!is_running_) << name_ << ": code of the host calls die()";
  wiring_.trace.record(wiring_.now, "kill", {index_, static_cast<uint64_t>(crash)});
  is_alive_ = false;
  // The seams are dead before any destructor of the process runs.
  wiring_.network.on_host_death(*this, crash);
  files_.disconnect();
  wiring_.heap.cancel_all_of(index_);
  work_.reset();
  context_.reset();
  process_.reset();
  test_gate_.reset();
  if (crash == Crash::kPower) files_.lose_power();
}

void SimHost::restart() {
  CHECK(!is_alive_) << name_ << " is alive";
  wiring_.trace.record(wiring_.now, "restart", {index_});
  files_.reconnect();
  start();
}

void SimHost::die(Crash crash) {
  if (!is_running_) return kill(crash);
  wiring_.network.on_host_death(*this, crash);
  files_.disconnect();
  // The world's own event: the host's are destroyed by kill().
  wiring_.heap.add(wiring_.now, EventHeap::kWorld, [this, crash, died = incarnation_] {
    if (is_alive_ && incarnation_ == died) kill(crash);
  });
  context_->stop();
}

void SimHost::pause() { is_paused_ = true; }

void SimHost::resume() {
  is_paused_ = false;
  mark_ready();
}

void SimHost::spawn(base::Task<void> task) {
  CHECK(is_alive_) << name_;
  CHECK(base::spawn(executor(), *test_gate_, std::move(task)).is_ok());
  mark_ready();
}

void SimHost::mark_ready() {
  if (is_ready_ || !is_alive_) return;
  is_ready_ = true;
  wiring_.ready.push_back(this);
}

void SimHost::run_ready() {
  is_ready_ = false;
  if (!is_alive_ || is_paused_) return;
  const base::Nanos begin = meter_ ? meter_() : base::Nanos(0);
  is_running_ = true;
  context_->poll();
  is_running_ = false;
  if (meter_) metered_ += meter_() - begin;
}

}  // namespace perdure::chaos
