#include "runtime/job/job_config.h"

#include "base/config.h"

namespace perdure::runtime::job {
namespace {

using base::ConfigSchema;
using base::Status;
using parallel::ComputeType;
using parallel::Embeddings;
using parallel::Family;

void bind_model(ConfigSchema& schema, parallel::ModelConfig& m) {
  schema.add_enum("model.family", &m.family, {{"gpt2", Family::kGpt2}, {"llama", Family::kLlama}},
                  {.help = "gpt2: learned positions, LayerNorm, biases, GELU; llama: rotary "
                           "positions, RMSNorm, SwiGLU"});
  schema.add_int("model.layers", &m.layers, {.min = 1, .help = "transformer blocks"});
  schema.add_int("model.width", &m.width, {.min = 1, .help = "size of the residual stream"});
  schema.add_int("model.heads", &m.heads, {.min = 1, .help = "attention heads"});
  schema.add_int("model.kv_heads", &m.kv_heads,
                 {.min = 0, .help = "key and value heads, llama only; 0: as many as heads"});
  schema.add_int("model.ffn_width", &m.ffn_width,
                 {.min = 0,
                  .help = "inner size of the feed-forward part; 0: 4 x width (gpt2), 8/3 x width "
                          "rounded up to 32 (llama)"});
  schema.add_int("model.vocabulary", &m.vocabulary,
                 {.min = 2, .help = "256 for bytes, 50257 for gpt2 tokens"});
  schema.add_int("model.context", &m.context, {.min = 1, .help = "tokens per sample"});
  schema.add_enum("model.embeddings", &m.embeddings,
                  {{"tied", Embeddings::kTied}, {"untied", Embeddings::kUntied}},
                  {.help = "tied: the output projection is the token table"});
  schema.add_double("model.norm_epsilon", &m.norm_epsilon,
                    {.help = "added to the variance in norms"});
  schema.add_double("model.rope_theta", &m.rope_theta,
                    {.help = "base of the rotary frequencies, llama only"});
}

void bind_data(ConfigSchema& schema, DataConfig& d) {
  schema.add_string("data.path", &d.path, {.help = "directory made by `perdure data prepare`"});
  schema.add_int("data.synthetic_tokens", &d.synthetic_tokens,
                 {.min = 0,
                  .max = uint64_t{1} << 32,
                  .help = "instead of data.path: train on so many tokens made from run.seed"});
  schema.add_string("data.tokenizer", &d.tokenizer,
                    {.help = "when given, the data must have been prepared with this tokenizer"});
}

void bind_batch_and_layout(ConfigSchema& schema, BatchConfig& b, LayoutConfig& l) {
  schema.add_int("batch.micro_batch", &b.micro_batch,
                 {.min = 1, .max = 1 << 20, .help = "samples that are computed together"});
  schema.add_int("batch.micro_batches", &b.micro_batches,
                 {.min = 1,
                  .max = 1 << 20,
                  .help = "micro-batches per step over the whole job, whatever the layout"});
  schema.add_int("layout.pipelines", &l.pipelines,
                 {.min = 1, .max = 1024, .help = "replicas of the model"});
  schema.add_int("layout.stages", &l.stages,
                 {.min = 1, .max = 1024, .help = "workers that share one replica's layers"});
  schema.add_int("layout.threads", &l.threads,
                 {.min = 1, .max = 256, .help = "compute threads per worker; never changes a bit"});
}

void bind_numerics(ConfigSchema& schema, NumericsConfig& n) {
  schema.add_enum("numerics.mode", &n.mode,
                  {{"exact", NumericsMode::kExact}, {"fast", NumericsMode::kFast}},
                  {.help = "exact: gradients are summed in fixed point, the result does not depend "
                           "on the layout; fast: in floating point"});
  schema.add_int("numerics.width", &n.width,
                 {.min = 32, .max = 64, .help = "bits of a fixed-point gradient, 32 or 64"});
  schema.add_int("numerics.block", &n.block,
                 {.min = 0,
                  .max = int64_t{1} << 30,
                  .help = "elements that share an exponent, a power of two from 64; 0: a tensor"});
  schema.add_int("numerics.grain", &n.grain,
                 {.min = 1,
                  .max = 1 << 16,
                  .help = "consecutive micro-batches that stay together, summed in f32 first"});
  schema.add_enum("numerics.compute", &n.compute,
                  {{"fp32", ComputeType::kF32}, {"bf16", ComputeType::kBF16}},
                  {.help = "type of matrix products"});
}

void bind_optimizer(ConfigSchema& schema, OptimizerConfig& o) {
  schema.add_double("optimizer.lr", &o.lr,
                    {.min = 0, .max = 10, .help = "learning rate after warm-up"});
  schema.add_double("optimizer.min_lr_ratio", &o.min_lr_ratio,
                    {.min = 0, .max = 1, .help = "the rate at the end, as a part of optimizer.lr"});
  schema.add_int("optimizer.warmup_steps", &o.warmup_steps,
                 {.min = 0, .help = "steps in which the rate rises"});
  schema.add_int("optimizer.decay_steps", &o.decay_steps,
                 {.min = 0, .help = "step at which the rate has come down; 0: run.steps"});
  schema.add_double("optimizer.beta1", &o.beta1, {.help = "AdamW, first moment"});
  schema.add_double("optimizer.beta2", &o.beta2, {.help = "AdamW, second moment"});
  schema.add_double("optimizer.epsilon", &o.epsilon,
                    {.help = "AdamW, added to the root of the second moment"});
  schema.add_double("optimizer.weight_decay", &o.weight_decay,
                    {.min = 0, .max = 10, .help = "of matrices; norms and biases do not decay"});
  schema.add_double("optimizer.clip_norm", &o.clip_norm,
                    {.min = 0, .max = 1e9, .help = "largest gradient norm; 0: no clipping"});
}

void bind_run(ConfigSchema& schema, RunConfig& r) {
  constexpr uint64_t kStepsMax = uint64_t{1} << 40;
  schema.add_int("run.steps", &r.steps,
                 {.min = 1, .max = kStepsMax, .help = "optimizer steps of the job"});
  schema.add_int("run.seed", &r.seed,
                 {.min = 0, .help = "of initial weights, sample order and synthetic data"});
  schema.add_int("run.eval_every", &r.eval_every,
                 {.min = 0, .max = kStepsMax, .help = "steps between evaluations; 0: never"});
  schema.add_int(
      "run.eval_batches", &r.eval_batches,
      {.min = 1, .max = 1 << 20, .help = "batches of batch.micro_batch samples per evaluation"});
  schema.add_string("run.device", &r.device, {.help = "cpu, cuda or reference"});
  schema.add_enum("run.transport", &r.transport,
                  {{"auto", Transport::kAuto}, {"tcp", Transport::kTcp}, {"shm", Transport::kShm}},
                  {.help = "between workers: shm on one machine, tcp anywhere; auto picks"});
  schema.add_string("run.listen", &r.listen,
                    {.help = "host on which the coordinator listens; 0.0.0.0 lets other machines "
                             "in"});
  schema.add_int("run.port", &r.port, {.min = 0, .help = "of the coordinator; 0: any free one"});
  schema.add_string("run.network_device", &r.network_device,
                    {.help = "network device between workers over tcp; lo: this machine only"});
  schema.add_int("run.step_timeout_s", &r.step_timeout_s,
                 {.min = 1, .max = 86400, .help = "seconds that one step may take"});
}

void bind_checkpoint(ConfigSchema& schema, CheckpointConfig& c) {
  schema.add_int("checkpoint.memory_every", &c.memory_every,
                 {.min = 0,
                  .max = 1000000,
                  .help = "steps between snapshots in the memory of each node; 0: none"});
  schema.add_int("checkpoint.memory_bytes", &c.memory_bytes,
                 {.min = 0,
                  .help = "of the snapshots that a worker keeps (two states); larger ones are "
                          "skipped; 0: no limit"});
}

void bind_recovery(ConfigSchema& schema, RecoveryConfig& r) {
  schema.add_int("recovery.worker_restarts", &r.worker_restarts,
                 {.min = 0,
                  .max = 1000,
                  .help = "times in a row that a dead worker is started again; a minute of life "
                          "counts anew"});
  schema.add_int(
      "recovery.lease_ms", &r.lease_ms,
      {.min = 100, .max = 600000, .help = "silence after which a worker or node counts as lost"});
  schema.add_bool("recovery.grow", &r.grow,
                  {.help = "workers that come while the job runs are taken in"});
}

void bind_job(ConfigSchema& schema, JobConfig& job) {
  bind_model(schema, job.model);
  bind_data(schema, job.data);
  bind_batch_and_layout(schema, job.batch, job.layout);
  bind_numerics(schema, job.numerics);
  bind_optimizer(schema, job.optimizer);
  bind_run(schema, job.run);
  bind_recovery(schema, job.recovery);
  bind_checkpoint(schema, job.checkpoint);
}

}  // namespace

Status load_job(std::string_view toml, std::string_view source,
                const std::vector<std::string>& overrides, JobConfig* job) {
  CHECK(job != nullptr);
  JobConfig loaded;
  ConfigSchema schema;
  bind_job(schema, loaded);
  RETURN_IF_ERROR(schema.load_toml(toml, source));
  for (const std::string& assignment : overrides) RETURN_IF_ERROR(schema.set(assignment));
  const Status checked = check_job(loaded);
  if (!checked.is_ok()) return checked.annotate(source);
  *job = std::move(loaded);
  return Status::ok();
}

std::string describe_job_keys() {
  JobConfig job;
  ConfigSchema schema;
  bind_job(schema, job);
  return schema.describe();
}

}  // namespace perdure::runtime::job
