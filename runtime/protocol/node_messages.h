#pragma once
// Between an agent and its coordinator, and the first word of an agent to its worker. The order of
// a run is drawn in message_type.h.

#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "runtime/protocol/message_type.h"

namespace perdure::runtime::protocol {

// What a worker's engine is doing.
enum class Activity : uint8_t {
  kIdle = 0,   // in no epoch; may hold state
  kPreparing,  // between Prepare and Loaded
  kLoaded,     // waits for Go
  kRunning,    // trains
  kStopped,    // left its steps: held, lost a peer, failed
  kFinished,   // all steps are done
};

std::string_view to_string(Activity activity);

struct WorkerInfo {
  base::WorkerId worker;
  base::Incarnation incarnation;
  base::Epoch epoch;  // the newest that it has heard of
  Activity activity = Activity::kIdle;
  std::string device;
  uint64_t pid = 0;
  template <typename V>
  void visit(V& v) {
    v(worker, incarnation, epoch, activity, device, pid);
  }
};

struct NodeJoin {
  static constexpr MessageType kType = MessageType::kNodeJoin;
  base::NodeId node;
  uint64_t pid = 0;
  uint64_t born = 0;                // rises with every start of an agent on this node
  std::string job_id;               // "" when it has not been welcomed yet
  std::vector<WorkerInfo> workers;  // that are up
  template <typename V>
  void visit(V& v) {
    v(node, pid, born, job_id, workers);
  }
};

struct JobText {
  std::string toml;
  std::string source;                  // its name, for messages
  std::vector<std::string> overrides;  // --set key=value
  template <typename V>
  void visit(V& v) {
    v(toml, source, overrides);
  }
};

struct NodeWelcome {
  static constexpr MessageType kType = MessageType::kNodeWelcome;
  base::Incarnation incarnation;  // the node's, from now on
  std::string job_id;
  std::vector<base::WorkerId> workers;  // that this node shall run
  uint32_t lease_ms = 0;
  uint32_t beat_ms = 0;
  JobText job;
  template <typename V>
  void visit(V& v) {
    v(incarnation, job_id, workers, lease_ms, beat_ms, job);
  }
};

struct Beat {
  static constexpr MessageType kType = MessageType::kBeat;
  uint64_t sequence = 0;
  base::Step step;  // newest that any of its workers committed
  template <typename V>
  void visit(V& v) {
    v(sequence, step);
  }
};

struct BeatAck {
  static constexpr MessageType kType = MessageType::kBeatAck;
  uint64_t sequence = 0;
  template <typename V>
  void visit(V& v) {
    v(sequence);
  }
};

struct WorkerUp {
  static constexpr MessageType kType = MessageType::kWorkerUp;
  WorkerInfo info;
  template <typename V>
  void visit(V& v) {
    v(info);
  }
};

struct WorkerDown {
  static constexpr MessageType kType = MessageType::kWorkerDown;
  base::WorkerId worker;
  base::Incarnation incarnation;
  std::string how;  // "signal 9 (Killed)", "no beat for 1 s"
  template <typename V>
  void visit(V& v) {
    v(worker, incarnation, how);
  }
};

// A worker's message on its way through the agent.
struct WorkerMessage {
  base::WorkerId worker;
  base::Incarnation incarnation;
  base::Epoch epoch;
  MessageType type{};
  rpc::Payload payload;
  template <typename V>
  void visit(V& v) {
    v(worker, incarnation, epoch, type, payload);
  }
};

struct FromWorkers {
  static constexpr MessageType kType = MessageType::kFromWorkers;
  std::vector<WorkerMessage> messages;
  template <typename V>
  void visit(V& v) {
    v(messages);
  }
};

struct WorkerTarget {
  base::WorkerId worker;
  base::Incarnation incarnation;  // another process of that number does not get it
  template <typename V>
  void visit(V& v) {
    v(worker, incarnation);
  }
};

struct ToWorkers {
  static constexpr MessageType kType = MessageType::kToWorkers;
  std::vector<WorkerTarget> targets;
  MessageType type{};
  rpc::Payload payload;
  template <typename V>
  void visit(V& v) {
    v(targets, type, payload);
  }
};

struct EndWorker {
  static constexpr MessageType kType = MessageType::kEndWorker;
  WorkerTarget target;
  std::string why;
  template <typename V>
  void visit(V& v) {
    v(target, why);
  }
};

struct Dismiss {
  static constexpr MessageType kType = MessageType::kDismiss;
  uint32_t code = 0;  // base::StatusCode; 0: the job is done
  std::string why;
  template <typename V>
  void visit(V& v) {
    v(code, why);
  }
};

struct WorkerJob {
  static constexpr MessageType kType = MessageType::kWorkerJob;
  uint32_t lease_ms = 0;  // without a word from the agent for so long the worker leaves its epoch
  uint32_t beat_ms = 0;
  JobText job;
  template <typename V>
  void visit(V& v) {
    v(lease_ms, beat_ms, job);
  }
};

struct StatusAsk {
  static constexpr MessageType kType = MessageType::kStatusAsk;
  template <typename V>
  void visit(V&) {}
};

struct StatusTold {
  static constexpr MessageType kType = MessageType::kStatusTold;
  std::string json;
  template <typename V>
  void visit(V& v) {
    v(json);
  }
};

}  // namespace perdure::runtime::protocol
