#include "runtime/agent/outbox.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace perdure::runtime::agent {
namespace {

using protocol::MessageType;

bool is_report(const Outbox::Entry& entry) {
  return !entry.is_control && (entry.message.type == MessageType::kStepReport ||
                               entry.message.type == MessageType::kEvaluationReport);
}

}  // namespace

base::Status Outbox::push(protocol::WorkerMessage message) {
  Entry entry;
  entry.message = std::move(message);
  if (is_report(entry)) {
    if (report_count_ >= limits_.reports_max) drop_oldest_report();
    ++report_count_;
  } else if (entries_.size() - report_count_ >= limits_.others_max) {
    return base::resource_exhausted(std::to_string(limits_.others_max) +
                                    " messages of workers wait for the coordinator");
  }
  entries_.push_back(std::move(entry));
  return base::Status::ok();
}

void Outbox::push_control(rpc::Frame frame) {
  Entry entry;
  entry.is_control = true;
  entry.control = std::move(frame);
  entries_.push_back(std::move(entry));
}

void Outbox::drop_oldest_report() {
  const auto at = std::find_if(entries_.begin(), entries_.end(), is_report);
  if (at == entries_.end()) return;
  entries_.erase(at);
  --report_count_;
  ++dropped_count_;
}

Outbox::Batch Outbox::take() {
  Batch batch;
  size_t bytes = 0;
  while (!entries_.empty()) {
    Entry& next = entries_.front();
    if (!batch.empty() && next.is_control) break;
    bytes += next.message.payload.size();
    if (!batch.empty() && bytes > limits_.batch_bytes_max) break;
    if (is_report(next)) --report_count_;
    batch.push_back(std::move(next));
    entries_.pop_front();
    if (batch.back().is_control) break;
  }
  return batch;
}

void Outbox::put_back(Batch batch) {
  report_count_ += static_cast<size_t>(std::count_if(batch.begin(), batch.end(), is_report));
  entries_.insert(entries_.begin(), std::make_move_iterator(batch.begin()),
                  std::make_move_iterator(batch.end()));
  while (report_count_ > limits_.reports_max) drop_oldest_report();
}

void Outbox::drop_known(const std::vector<protocol::WorkerInfo>& up) {
  std::erase_if(entries_, [&up](const Entry& entry) {
    if (!entry.is_control) return false;
    if (entry.control.type == static_cast<uint16_t>(MessageType::kWorkerUp)) return true;
    const auto down = protocol::from_frame<protocol::WorkerDown>(entry.control);
    return down.is_ok() && std::any_of(up.begin(), up.end(), [&down](const auto& info) {
             return info.worker == down->worker && info.incarnation == down->incarnation;
           });
  });
}

rpc::Frame to_frame(const Outbox::Batch& batch, const rpc::Stamp& stamp) {
  CHECK(!batch.empty());
  if (batch.front().is_control) {
    CHECK_EQ(batch.size(), 1u);
    rpc::Frame frame = batch.front().control;
    frame.stamp = stamp;
    return frame;
  }
  protocol::FromWorkers from;
  for (const Outbox::Entry& entry : batch) {
    CHECK(!entry.is_control);
    from.messages.push_back(entry.message);
  }
  return protocol::to_frame(from, stamp);
}

}  // namespace perdure::runtime::agent
