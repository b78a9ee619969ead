#pragma once
// Messages between the coordinator of a job and its workers, in the order of a run:
//
//   worker                         coordinator
//   Hello ───────────────────────►
//         ◄─────────────────────── Assignment      rank, epoch, the job
//   Ready ───────────────────────►                 address of the data plane
//         ◄─────────────────────── Start           addresses of all ranks
//   StepReport, EvaluationReport ►  (rank 0)
//   Finished | Failed ───────────►
//         ◄─────────────────────── Goodbye         everybody has finished: leave
//
// Each message: encode() gives a payload, decode() refuses what is short, long or out of range with
// kDataLoss.

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "base/units.h"

namespace perdure::runtime::rpc {

enum class MessageType : uint16_t {
  kHello = 1,
  kAssignment = 2,
  kReady = 3,
  kStart = 4,
  kStepReport = 5,
  kEvaluationReport = 6,
  kFinished = 7,
  kFailed = 8,
  kGoodbye = 9,
};

using Payload = std::vector<std::byte>;

struct Hello {
  static constexpr MessageType kType = MessageType::kHello;
  std::string job_token;  // shows that the worker was started for this job
  base::WorkerId worker;
  uint64_t pid = 0;
  Payload encode() const;
  static base::Result<Hello> decode(base::ByteSpan payload);
};

struct Assignment {
  static constexpr MessageType kType = MessageType::kAssignment;
  base::Rank rank;
  uint32_t ranks = 0;
  base::Epoch epoch;
  std::string job_toml;                // text of the job file
  std::string job_source;              // its name, for messages
  std::vector<std::string> overrides;  // --set key=value
  Payload encode() const;
  static base::Result<Assignment> decode(base::ByteSpan payload);
};

struct Ready {
  static constexpr MessageType kType = MessageType::kReady;
  std::vector<std::byte> address;
  std::string device;          // Device::description()
  uint64_t planned_bytes = 0;  // memory that the plan predicted
  Payload encode() const;
  static base::Result<Ready> decode(base::ByteSpan payload);
};

struct Start {
  static constexpr MessageType kType = MessageType::kStart;
  std::vector<std::vector<std::byte>> addresses;  // by rank
  Payload encode() const;
  static base::Result<Start> decode(base::ByteSpan payload);
};

struct StepReport {
  static constexpr MessageType kType = MessageType::kStepReport;
  base::Step step;  // committed steps, this one included
  double loss = 0.0;
  double grad_norm = 0.0;
  double learning_rate = 0.0;
  uint32_t attempts = 1;
  uint8_t applied = 1;
  uint64_t digest_before = 0;
  double step_ms = 0.0;
  Payload encode() const;
  static base::Result<StepReport> decode(base::ByteSpan payload);
};

struct EvaluationReport {
  static constexpr MessageType kType = MessageType::kEvaluationReport;
  base::Step step;
  double loss = 0.0;
  Payload encode() const;
  static base::Result<EvaluationReport> decode(base::ByteSpan payload);
};

struct Finished {
  static constexpr MessageType kType = MessageType::kFinished;
  base::Step step;
  uint64_t state_digest = 0;
  uint64_t params_digest = 0;
  uint64_t peak_bytes = 0;           // most memory that the process ever had
  uint64_t faults_after_warmup = 0;  // page faults in the steps after the second
  double compute_seconds = 0.0;
  Payload encode() const;
  static base::Result<Finished> decode(base::ByteSpan payload);
};

struct Failed {
  static constexpr MessageType kType = MessageType::kFailed;
  uint32_t code = 0;  // StatusCode
  std::string text;
  Payload encode() const;
  static base::Result<Failed> decode(base::ByteSpan payload);
};

struct Goodbye {
  static constexpr MessageType kType = MessageType::kGoodbye;
  Payload encode() const { return {}; }
  static base::Result<Goodbye> decode(base::ByteSpan payload);
};

}  // namespace perdure::runtime::rpc
