#include "runtime/job/job_config.h"

#include "tests/testing/matchers.h"

namespace perdure::runtime::job {
namespace {

using base::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::StatusIs;

constexpr std::string_view kSmall = R"([model]
family = "llama"
layers = 6
width = 64
heads = 4
vocabulary = 256
context = 32
[data]
synthetic_tokens = 4096
[batch]
micro_batches = 8
)";

constexpr std::string_view kEveryKey = R"([model]
family = "gpt2"
layers = 3
width = 96
heads = 6
kv_heads = 6
ffn_width = 200
vocabulary = 50257
context = 128
embeddings = "untied"
norm_epsilon = 1e-6
rope_theta = 5000.0
[data]
path = "data/x"
tokenizer = "gpt2"
[batch]
micro_batch = 2
micro_batches = 12
[layout]
pipelines = 2
stages = 3
threads = 4
[numerics]
mode = "fast"
width = 32
block = 256
grain = 3
compute = "bf16"
[optimizer]
lr = 0.01
min_lr_ratio = 0.2
warmup_steps = 5
decay_steps = 50
beta1 = 0.8
beta2 = 0.9
epsilon = 1e-7
weight_decay = 0.05
clip_norm = 0.5
[run]
steps = 60
seed = 9
eval_every = 20
eval_batches = 7
device = "reference"
transport = "tcp"
listen = "0.0.0.0"
port = 7001
network_device = "eth0"
step_timeout_s = 5
[recovery]
worker_restarts = 7
lease_ms = 250
grow = false
)";

TEST(JobConfigTest, ReadsEveryKey) {
  JobConfig job;
  ASSERT_OK(load_job(kEveryKey, "job.toml", {}, &job));
  EXPECT_EQ(job.model.family, parallel::Family::kGpt2);
  EXPECT_EQ(job.model.layers, 3);
  EXPECT_EQ(job.model.kv_heads, 6);
  EXPECT_EQ(job.model.ffn_width, 200);
  EXPECT_EQ(job.model.embeddings, parallel::Embeddings::kUntied);
  EXPECT_EQ(job.model.norm_epsilon, 1e-6);
  EXPECT_EQ(job.model.rope_theta, 5000.0);
  EXPECT_EQ(job.data.path, "data/x");
  EXPECT_EQ(job.data.tokenizer, "gpt2");
  EXPECT_EQ(job.samples_per_step(), 24u);
  EXPECT_EQ(job.layout.ranks(), 6u);
  EXPECT_EQ(job.layout.threads, 4);
  EXPECT_EQ(job.numerics.mode, NumericsMode::kFast);
  EXPECT_EQ(job.numerics.width, 32u);
  EXPECT_EQ(job.numerics.block, 256);
  EXPECT_EQ(job.numerics.grain, 3u);
  EXPECT_EQ(job.numerics.compute, parallel::ComputeType::kBF16);
  EXPECT_EQ(job.optimizer.lr, 0.01);
  EXPECT_EQ(job.optimizer.min_lr_ratio, 0.2);
  EXPECT_EQ(job.optimizer.warmup_steps, 5u);
  EXPECT_EQ(job.lr_decay_steps(), 50u);
  EXPECT_EQ(job.optimizer.beta1, 0.8);
  EXPECT_EQ(job.optimizer.beta2, 0.9);
  EXPECT_EQ(job.optimizer.epsilon, 1e-7);
  EXPECT_EQ(job.optimizer.weight_decay, 0.05);
  EXPECT_EQ(job.optimizer.clip_norm, 0.5);
  EXPECT_EQ(job.run.steps, 60u);
  EXPECT_EQ(job.run.seed, 9u);
  EXPECT_EQ(job.run.eval_every, 20u);
  EXPECT_EQ(job.run.eval_batches, 7u);
  EXPECT_EQ(job.run.device, "reference");
  EXPECT_EQ(job.run.transport, Transport::kTcp);
  EXPECT_EQ(job.run.port, 7001);
  EXPECT_EQ(job.run.step_timeout_s, 5u);
  EXPECT_EQ(job.run.listen, "0.0.0.0");
  EXPECT_EQ(job.run.network_device, "eth0");
  EXPECT_EQ(job.recovery.worker_restarts, 7u);
  EXPECT_EQ(job.recovery.lease_ms, 250u);
  EXPECT_FALSE(job.recovery.grow);
}

TEST(JobConfigTest, OverridesWinInTheirOrder) {
  JobConfig job;
  ASSERT_OK(load_job(kSmall, "job.toml",
                     {"layout.pipelines=2", "layout.stages = 3", "layout.pipelines=4"}, &job));
  EXPECT_EQ(job.layout.pipelines, 4u);
  EXPECT_EQ(job.layout.stages, 3u);
  EXPECT_EQ(job.lr_decay_steps(), job.run.steps);
}

TEST(JobConfigTest, AnOverrideMayRepairTheFile) {
  JobConfig job;
  EXPECT_OK(load_job("[data]\nsynthetic_tokens = 1000\n[layout]\npipelines = 2\n", "job.toml",
                     {"batch.micro_batches=2"}, &job));
}

TEST(JobConfigTest, AFailingLoadLeavesTheJobAsItWas) {
  JobConfig job;
  job.run.steps = 77;
  EXPECT_FALSE(load_job(kSmall, "job.toml", {"run.steps=5", "layout.stages=9"}, &job).is_ok());
  EXPECT_EQ(job.run.steps, 77u);
}

TEST(JobConfigTest, SchemaErrorsHavePlaceAndKey) {
  JobConfig job;
  const StatusCode invalid = StatusCode::kInvalidArgument;
  EXPECT_THAT(load_job("[model]\nwidht = 3\n", "a.toml", {}, &job),
              StatusIs(invalid, HasSubstr("a.toml:2: model.widht: unknown key; did you mean "
                                          "'model.width'?")));
  EXPECT_THAT(load_job("[model\n", "a.toml", {}, &job), StatusIs(invalid, HasSubstr("a.toml:1")));
  EXPECT_THAT(load_job(kSmall, "a.toml", {"run.steps=0"}, &job),
              StatusIs(invalid, AllOf(HasSubstr("run.steps"), HasSubstr("out of range"))));
  EXPECT_THAT(load_job(kSmall, "a.toml", {"run.transport=rdma"}, &job),
              StatusIs(invalid, HasSubstr("auto, tcp, shm")));
}

struct Bad {
  std::vector<std::string> overrides;
  const char* message;
};

TEST(JobConfigTest, KeysThatDoNotFitAreNamed) {
  const std::vector<Bad> cases = {
      {{"model.width=66"}, "job.toml: model.width (66) must be a multiple of model.heads (4)"},
      {{"model.kv_heads=3"}, "model.heads (4) must be a multiple of model.kv_heads (3)"},
      {{"model.family=gpt2", "model.kv_heads=2"}, "model.kv_heads (2) must be 0 or equal"},
      {{"model.norm_epsilon=0"}, "model.norm_epsilon"},
      {{"layout.stages=9"}, "layout.stages (9) must be at most 8: model.layers (6) blocks"},
      {{"layout.pipelines=9"},
       "batch.micro_batches (8) must be at least layout.pipelines (9) x numerics.grain (1)"},
      {{"layout.pipelines=3", "numerics.grain=4"},
       "batch.micro_batches (8) must be at least layout.pipelines (3) x numerics.grain (4)"},
      {{"numerics.grain=3"}, "batch.micro_batches (8) must be a multiple of numerics.grain (3)"},
      {{"numerics.width=48"}, "numerics.width (48) must be 32 or 64"},
      {{"numerics.block=32"}, "numerics.block (32) must be 0 or a power of two from 64"},
      {{"numerics.block=96"}, "numerics.block (96) must be 0 or a power of two from 64"},
      {{"data.synthetic_tokens=0"}, "data.path or data.synthetic_tokens must be given"},
      {{"data.path=x"}, "data.path (\"x\") and data.synthetic_tokens (4096) exclude each other"},
      {{"data.synthetic_tokens=32"},
       "data.synthetic_tokens (32) must be at least model.context (32) + 1"},
      {{"data.tokenizer=gpt2"}, "model.vocabulary (256) must be at least 50257"},
      {{"data.tokenizer=byte", "model.vocabulary=128"},
       "model.vocabulary (128) must be at least 256"},
      {{"optimizer.lr=0"}, "optimizer.lr (0) must be above 0"},
      {{"optimizer.beta1=1"}, "optimizer.beta1 (1) must be at least 0 and below 1"},
      {{"optimizer.beta2=-0.5"}, "optimizer.beta2 (-0.5) must be at least 0 and below 1"},
      {{"optimizer.epsilon=0"}, "optimizer.epsilon (0) must be above 0"},
      {{"optimizer.warmup_steps=101"},
       "optimizer.warmup_steps (101) must be at most run.steps (100)"},
      {{"optimizer.warmup_steps=9", "optimizer.decay_steps=8"},
       "optimizer.warmup_steps (9) must be at most optimizer.decay_steps (8)"},
      {{"run.device="}, "run.device must not be empty"},
  };
  for (const Bad& bad : cases) {
    JobConfig job;
    EXPECT_THAT(load_job(kSmall, "job.toml", bad.overrides, &job),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(bad.message)));
  }
}

TEST(JobConfigTest, EveryKeyHasHelp) {
  const std::string text = describe_job_keys();
  size_t keys = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    EXPECT_THAT(line,
                ::testing::ContainsRegex("default (\"[^\"]*\"|[^.]*(\\.[0-9]+)?[^.]*)\\. [^ ]"))
        << line;
    at = end + 1;
    ++keys;
  }
  EXPECT_EQ(keys, 48u);
}

}  // namespace
}  // namespace perdure::runtime::job
