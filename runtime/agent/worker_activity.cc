#include "runtime/agent/worker_activity.h"

namespace perdure::runtime::agent {

using protocol::Activity;
using protocol::MessageType;

bool goes_to_workers(MessageType type) {
  switch (type) {
    case MessageType::kFence:
    case MessageType::kAskVote:
    case MessageType::kApplyVote:
    case MessageType::kRestore:
    case MessageType::kPrepare:
    case MessageType::kLoad:
    case MessageType::kGo:
    case MessageType::kHold:
    case MessageType::kAskReports:
      return true;
    default:
      return false;
  }
}

bool comes_from_workers(MessageType type) {
  switch (type) {
    case MessageType::kStateTold:
    case MessageType::kVoteTold:
    case MessageType::kPrepared:
    case MessageType::kLoaded:
    case MessageType::kStopped:
    case MessageType::kStepReport:
    case MessageType::kEvaluationReport:
    case MessageType::kFinished:
      return true;
    default:
      return false;
  }
}

void note_sent(protocol::WorkerInfo& info, MessageType type, base::Epoch epoch) {
  if (epoch < info.epoch) return;
  info.epoch = epoch;
  if (type == MessageType::kFence) info.activity = Activity::kIdle;
  if (type == MessageType::kPrepare) info.activity = Activity::kPreparing;
  if (type == MessageType::kGo) info.activity = Activity::kRunning;
}

void note_received(protocol::WorkerInfo& info, MessageType type, base::Epoch epoch) {
  if (epoch < info.epoch) return;
  info.epoch = epoch;
  if (type == MessageType::kLoaded) info.activity = Activity::kLoaded;
  if (type == MessageType::kStopped) info.activity = Activity::kStopped;
  if (type == MessageType::kFinished) info.activity = Activity::kFinished;
}

}  // namespace perdure::runtime::agent
