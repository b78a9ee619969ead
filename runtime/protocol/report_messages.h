#pragma once
// What a running worker tells: steps, evaluations, its end.

#include "base/ids.h"
#include "runtime/protocol/message_type.h"

namespace perdure::runtime::protocol {

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
  base::Epoch epoch;          // in which it was committed
  uint64_t first_sample = 0;  // the step consumed samples [first, first + count) ...
  uint64_t sample_count = 0;
  uint64_t sample_sum = 0;  // ... and this is the sum of sample_mark() over those really read
  template <typename V>
  void visit(V& v) {
    v(step, loss, grad_norm, learning_rate, attempts, applied, digest_before, step_ms, epoch,
      first_sample, sample_count, sample_sum);
  }
};

struct EvaluationReport {
  static constexpr MessageType kType = MessageType::kEvaluationReport;
  base::Step step;
  double loss = 0.0;
  template <typename V>
  void visit(V& v) {
    v(step, loss);
  }
};

struct Finished {
  static constexpr MessageType kType = MessageType::kFinished;
  base::Step step;
  uint64_t state_digest = 0;
  uint64_t params_digest = 0;
  uint64_t peak_bytes = 0;           // most memory that the process ever had
  uint64_t faults_after_warmup = 0;  // page faults in the steps after the second of this epoch
  double compute_seconds = 0.0;      // of the newest epoch, snapshots included
  // Of this process: snapshots taken and skipped, their seconds in the newest epoch, and the bytes
  // of the last one.
  uint64_t snapshots_taken = 0;
  uint64_t snapshots_skipped = 0;
  double snapshot_seconds = 0.0;
  uint64_t snapshot_bytes = 0;
  template <typename V>
  void visit(V& v) {
    v(step, state_digest, params_digest, peak_bytes, faults_after_warmup, compute_seconds,
      snapshots_taken, snapshots_skipped, snapshot_seconds, snapshot_bytes);
  }
};

}  // namespace perdure::runtime::protocol
