#pragma once
// What coordinator, agents and workers say to each other after the handshake (runtime/rpc).
//
//   agent                                coordinator
//   NodeJoin ──────────────────────────►              node, what its workers are doing
//            ◄────────────────────────── NodeWelcome  incarnation, lease, the job
//   Beat ──────────────────────────────►              every `beat_ms`
//            ◄────────────────────────── BeatAck      renews the agent's lease
//   WorkerUp, WorkerDown ──────────────►              a process is there, is gone
//   FromWorkers ───────────────────────►              messages of its workers, passed on
//            ◄────────────────────────── ToWorkers    a message for some of its workers
//            ◄────────────────────────── EndWorker    kill this process
//            ◄────────────────────────── Dismiss      the job is over, or the node is not wanted
//
//   worker                               coordinator  (passed on by the agent)
//            ◄────────────────────────── Fence        leave whatever epoch you are in
//   StateTold ─────────────────────────►              what I hold
//            ◄────────────────────────── AskVote      give the result that made your last step
//   VoteTold ──────────────────────────►
//            ◄────────────────────────── ApplyVote    commit the step that is pending, tell state
//            ◄────────────────────────── Restore      bring back older state, tell what is held
//            ◄────────────────────────── Prepare      the plan: make communicators
//   Prepared ──────────────────────────►              address of the data plane
//            ◄────────────────────────── Load         addresses: connect, move and load tensors
//   Loaded ────────────────────────────►              digests of what is loaded
//            ◄────────────────────────── Go           train
//   StepReport, EvaluationReport ──────►              rank 0 only
//            ◄────────────────────────── Hold         stop together at a step's border
//   Stopped ───────────────────────────►              the engine has left its steps, and why
//   Finished ──────────────────────────►
//
// The epoch that a message speaks of is in its stamp (rpc::Stamp); the incarnation there is the
// sender's process (agent to coordinator: the node's; for a worker's message inside FromWorkers:
// the worker's). Every change of meaning raises rpc::kFrameVersion.

#include <cstdint>
#include <string>

#include "base/status.h"
#include "runtime/rpc/message_channel.h"
#include "runtime/rpc/wire.h"

namespace perdure::runtime::protocol {

enum class MessageType : uint16_t {
  kNodeJoin = 16,
  kNodeWelcome = 17,
  kBeat = 18,
  kBeatAck = 19,
  kWorkerUp = 20,
  kWorkerDown = 21,
  kFromWorkers = 22,
  kToWorkers = 23,
  kEndWorker = 24,
  kDismiss = 25,
  kWorkerJob = 26,  // agent -> worker, before anything else

  kFence = 32,
  kStateTold = 33,
  kAskVote = 34,
  kVoteTold = 35,
  kApplyVote = 36,
  kPrepare = 37,
  kPrepared = 38,
  kLoad = 39,
  kLoaded = 40,
  kGo = 41,
  kHold = 42,
  kStopped = 43,
  kStepReport = 44,
  kEvaluationReport = 45,
  kFinished = 46,
  kAskReports = 47,
  kRestore = 48,

  kStatusAsk = 64,
  kStatusTold = 65,
};

// A message as a frame. `budget_ms` 0: it is never too late.
template <typename M>
rpc::Frame to_frame(const M& message, rpc::Stamp stamp) {
  return {
      .type = static_cast<uint16_t>(M::kType), .stamp = stamp, .payload = rpc::to_bytes(message)};
}

// kDataLoss when it is of another type or does not decode.
template <typename M>
base::Result<M> from_frame(const rpc::Frame& frame) {
  if (frame.type != static_cast<uint16_t>(M::kType)) {
    return base::data_loss("message of type " + std::to_string(frame.type) + " where " +
                           std::to_string(static_cast<int>(M::kType)) + " was expected");
  }
  return rpc::from_bytes<M>(frame.payload);
}

}  // namespace perdure::runtime::protocol
