#pragma once
// Outbox: what an agent still has to tell its coordinator, in order. It lives through a lost
// connection. Pure.
//
// Messages of workers that stand in a row leave as one FromWorkers frame. When too many reports of
// steps wait, the oldest go: rank 0 tells them again when it is asked. All else is kept; it cannot
// grow for long without a coordinator, because only a coordinator moves an epoch on.

#include <cstdint>
#include <deque>

#include "base/status.h"
#include "runtime/protocol/node_messages.h"

namespace perdure::runtime::agent {

struct OutboxLimits {
  size_t reports_max = 1024;
  size_t others_max = 4096;
  size_t batch_bytes_max = 4u << 20;  // of payload, more than one message
};

class Outbox {
 public:
  struct Entry {
    bool is_control = false;
    rpc::Frame control;  // WorkerUp, WorkerDown
    protocol::WorkerMessage message;
  };
  using Batch = std::deque<Entry>;  // one control, or messages

  explicit Outbox(const OutboxLimits& limits = {}) : limits_(limits) {}

  // kResourceExhausted: too many messages wait that must not be dropped; this one is refused.
  base::Status push(protocol::WorkerMessage message);
  void push_control(rpc::Frame frame);

  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  uint64_t dropped_count() const { return dropped_count_; }

  // What goes into the next frame; not empty when the outbox is not.
  Batch take();
  // A batch that could not be sent is the oldest again.
  void put_back(Batch batch);
  // A NodeJoin that is just being sent tells who is up: what was said of that before, of these very
  // processes, is old.
  void drop_known(const std::vector<protocol::WorkerInfo>& up);

 private:
  void drop_oldest_report();

  const OutboxLimits limits_;
  std::deque<Entry> entries_;
  size_t report_count_ = 0;
  uint64_t dropped_count_ = 0;
};

// `batch` is not empty.
rpc::Frame to_frame(const Outbox::Batch& batch, const rpc::Stamp& stamp);

}  // namespace perdure::runtime::agent
