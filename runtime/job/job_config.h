#pragma once
// JobConfig: everything that a job file says. A key of the file is the path of a field here:
// optimizer.lr is JobConfig::optimizer.lr.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "parallel/model_spec.h"

namespace perdure::runtime::job {

enum class NumericsMode : uint8_t { kExact, kFast };
enum class Transport : uint8_t { kAuto, kTcp, kShm };

struct DataConfig {
  std::string path;               // directory made by `perdure data prepare`; or
  uint64_t synthetic_tokens = 0;  // size of a corpus made from the seed
  std::string tokenizer;          // when given, the data must have been made with it
};

struct BatchConfig {
  int64_t micro_batch = 1;     // samples
  uint32_t micro_batches = 1;  // per step, over the whole job
};

struct LayoutConfig {
  uint32_t pipelines = 1;
  uint32_t stages = 1;
  int threads = 1;  // of each worker's device

  uint32_t ranks() const { return pipelines * stages; }
};

struct NumericsConfig {
  NumericsMode mode = NumericsMode::kExact;
  uint32_t width = 64;  // bits of a fixed-point gradient: 64 or 32
  int64_t block = 0;    // elements that share an exponent; 0: a whole tensor
  uint32_t grain = 1;   // consecutive micro-batches summed in f32 first
  parallel::ComputeType compute = parallel::ComputeType::kF32;
};

struct OptimizerConfig {
  double lr = 1e-3;  // after warm-up
  double min_lr_ratio = 0.1;
  uint64_t warmup_steps = 0;
  uint64_t decay_steps = 0;  // step at which the rate has come down; 0: run.steps
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double clip_norm = 1.0;  // 0: no clipping
};

struct RunConfig {
  uint64_t steps = 100;
  uint64_t seed = 1;
  uint64_t eval_every = 0;     // steps; 0: never
  uint32_t eval_batches = 10;  // of micro_batch samples each
  std::string device = "cpu";
  Transport transport = Transport::kAuto;
  std::string listen = "127.0.0.1";   // where the coordinator listens
  uint16_t port = 0;                  // of the coordinator; 0: any
  std::string network_device = "lo";  // of the data plane
  uint32_t step_timeout_s = 60;
};

struct RecoveryConfig {
  uint32_t worker_restarts = 3;  // of one worker, in a row
  uint32_t lease_ms = 1000;
  bool grow = true;
};

struct CheckpointConfig {
  uint32_t memory_every = 1;  // steps between snapshots in the node's memory; 0: none
  uint64_t memory_bytes = 0;  // of the snapshots of one worker; 0: no limit
};

struct JobConfig {
  parallel::ModelConfig model;
  DataConfig data;
  BatchConfig batch;
  LayoutConfig layout;
  NumericsConfig numerics;
  OptimizerConfig optimizer;
  RunConfig run;
  RecoveryConfig recovery;
  CheckpointConfig checkpoint;

  uint64_t samples_per_step() const {
    return static_cast<uint64_t>(batch.micro_batch) * batch.micro_batches;
  }
  uint64_t lr_decay_steps() const {
    return optimizer.decay_steps == 0 ? run.steps : optimizer.decay_steps;
  }
};

// Reads a job file, then "key=value" overrides in their order, then checks all of it (check_job).
// kInvalidArgument: one line with the place, the key, what is wrong and what is allowed; `job` is
// then unchanged.
base::Status load_job(std::string_view toml, std::string_view source,
                      const std::vector<std::string>& overrides, JobConfig* job);

// What no field can know alone. kInvalidArgument names the keys: "batch.micro_batches (2) must be
// at least layout.pipelines (3) x numerics.grain (1)".
base::Status check_job(const JobConfig& job);

// Every key with its type, range, default and help; one per line.
std::string describe_job_keys();

}  // namespace perdure::runtime::job
