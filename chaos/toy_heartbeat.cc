#include "chaos/toy_heartbeat.h"

#include <array>
#include <utility>

#include "base/codec.h"
#include "base/sleep.h"

namespace perdure::chaos {
namespace {

using base::Channel;
using base::Nanos;
using base::Result;
using base::Status;
using base::Task;

constexpr size_t kBeatBytes = 4 + 8 + 8;

}  // namespace

ToyHeartbeat::ToyHeartbeat(SimHost& host, const HeartbeatOptions& options, Observer observer)
    : host_(host), options_(options), observer_(std::move(observer)) {
  for (const std::string& node : options_.nodes) {
    if (node != host_.name()) peers_[node].heard_last = host_.clock().now();
  }
  auto file = host_.files().open("verdicts.log", base::OpenMode::kAppend);
  CHECK(file.is_ok()) << file.status();
  verdicts_ = std::move(*file);
  auto listener = host_.network().listen({"", options_.port});
  CHECK(listener.is_ok()) << listener.status();
  listener_ = std::move(*listener);
  start(accept_loop());
  start(judge_loop());
  for (const auto& [peer, state] : peers_) start(send_loop(peer));
}

void ToyHeartbeat::start(Task<void> task) {
  CHECK(base::spawn(host_.executor(), gate_, std::move(task)).is_ok());
}

Task<void> ToyHeartbeat::accept_loop() {
  while (true) {
    Result<std::unique_ptr<Channel>> channel = co_await listener_->accept(base::kNoDeadline);
    if (!channel.is_ok()) co_return;
    start(receive_loop(std::move(*channel)));
  }
}

Task<void> ToyHeartbeat::receive_loop(std::unique_ptr<Channel> channel) {
  std::array<std::byte, kBeatBytes> message;
  while (true) {
    const Nanos deadline = host_.clock().now() + options_.dead_after * 2;
    const Status received = co_await base::receive_all(*channel, message, deadline);
    if (!received.is_ok() || !on_beat(message).is_ok()) co_return;
  }
}

Task<void> ToyHeartbeat::send_loop(std::string peer) {
  const base::Address address = {peer, options_.port};
  while (true) {
    const Nanos deadline = host_.clock().now() + options_.period;
    Result<std::unique_ptr<Channel>> channel = co_await host_.network().connect(address, deadline);
    if (channel.is_ok()) (void)co_await send_beats(**channel);
    (void)co_await base::sleep_for(host_.clock(), options_.period);
  }
}

// Until the channel breaks.
Task<Status> ToyHeartbeat::send_beats(Channel& channel) {
  std::array<std::byte, kBeatBytes> message;
  for (uint64_t number = 0;; ++number) {
    base::Encoder out{base::MutableByteSpan(message)};
    out.u32(host_.index());
    out.u64(host_.incarnation());
    out.u64(number);
    const Nanos next = host_.clock().now() + options_.period;
    CO_RETURN_IF_ERROR(co_await channel.send(out.bytes(), next));
    ++beats_sent_;
    CO_RETURN_IF_ERROR(co_await base::sleep_until(host_.clock(), next));
  }
}

Status ToyHeartbeat::on_beat(base::ByteSpan message) {
  base::Decoder in(message);
  ASSIGN_OR_RETURN(const uint32_t index, in.u32());
  ASSIGN_OR_RETURN(const uint64_t incarnation, in.u64());
  if (index >= options_.nodes.size()) return base::data_loss("no such node");
  const auto found = peers_.find(options_.nodes[index]);
  if (found == peers_.end()) return base::data_loss("a beat of my own");
  Peer& peer = found->second;
  if (incarnation < peer.incarnation) return base::aborted("a beat of an earlier life");
  peer.incarnation = incarnation;
  peer.heard_last = host_.clock().now();
  ++beats_received_;
  if (peer.is_dead) report(found->first, peer, false);
  return Status::ok();
}

Task<void> ToyHeartbeat::judge_loop() {
  while (true) {
    (void)co_await base::sleep_for(host_.clock(), options_.period / 3);
    for (auto& [name, peer] : peers_) {
      const Nanos silence = host_.clock().now() - peer.heard_last;
      if (!peer.is_dead && silence > options_.dead_after) report(name, peer, true);
    }
  }
}

void ToyHeartbeat::report(const std::string& about, Peer& peer, bool is_dead) {
  peer.is_dead = is_dead;
  const std::string line = about + (is_dead ? " dead\n" : " alive\n");
  if (!verdicts_->append(base::as_byte_span(line)).is_ok() || !verdicts_->sync().is_ok()) return;
  observer_({.by = host_.name(), .about = about, .is_dead = is_dead, .when = host_.clock().now()});
}

}  // namespace perdure::chaos
