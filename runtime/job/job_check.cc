#include <bit>
#include <cmath>
#include <sstream>

#include "runtime/job/job_config.h"

namespace perdure::runtime::job {
namespace {

using base::Status;

// "batch.micro_batches (2)"
template <typename T>
std::string named(const char* key, T value) {
  std::ostringstream text;
  text << key << " (" << value << ")";
  return text.str();
}

Status bad(const std::string& what) { return base::invalid_argument(what); }

Status check_layout(const JobConfig& job) {
  const uint64_t layers = static_cast<uint64_t>(job.model.layers) + 2;
  if (job.layout.stages > layers) {
    return bad(named("layout.stages", job.layout.stages) + " must be at most " +
               std::to_string(layers) + ": " + named("model.layers", job.model.layers) +
               " blocks, the embedding and the head");
  }
  const uint64_t grain = job.numerics.grain;
  if (job.batch.micro_batches % grain != 0) {
    return bad(named("batch.micro_batches", job.batch.micro_batches) + " must be a multiple of " +
               named("numerics.grain", grain));
  }
  if (job.batch.micro_batches / grain < job.layout.pipelines) {
    return bad(named("batch.micro_batches", job.batch.micro_batches) + " must be at least " +
               named("layout.pipelines", job.layout.pipelines) + " x " +
               named("numerics.grain", grain));
  }
  return Status::ok();
}

Status check_numerics(const NumericsConfig& n) {
  if (n.width != 32 && n.width != 64) {
    return bad(named("numerics.width", n.width) + " must be 32 or 64");
  }
  if (n.block != 0 && (n.block < 64 || !std::has_single_bit(static_cast<uint64_t>(n.block)))) {
    return bad(named("numerics.block", n.block) + " must be 0 or a power of two from 64");
  }
  return Status::ok();
}

Status check_data(const JobConfig& job) {
  const DataConfig& d = job.data;
  if (d.path.empty() && d.synthetic_tokens == 0) {
    return bad("data.path or data.synthetic_tokens must be given");
  }
  if (!d.path.empty() && d.synthetic_tokens != 0) {
    return bad("data.path (\"" + d.path + "\") and " +
               named("data.synthetic_tokens", d.synthetic_tokens) + " exclude each other");
  }
  const uint64_t sample = static_cast<uint64_t>(job.model.context) + 1;
  if (d.path.empty() && d.synthetic_tokens < sample) {
    return bad(named("data.synthetic_tokens", d.synthetic_tokens) + " must be at least " +
               named("model.context", job.model.context) + " + 1");
  }
  if ((d.tokenizer == "byte" && job.model.vocabulary < 256) ||
      (d.tokenizer == "gpt2" && job.model.vocabulary < 50257)) {
    return bad(named("model.vocabulary", job.model.vocabulary) + " must be at least " +
               (d.tokenizer == "byte" ? "256" : "50257") + " with data.tokenizer = \"" +
               d.tokenizer + "\"");
  }
  return Status::ok();
}

Status check_optimizer(const JobConfig& job) {
  const OptimizerConfig& o = job.optimizer;
  if (!(o.lr > 0.0)) return bad(named("optimizer.lr", o.lr) + " must be above 0");
  for (const auto& [key, beta] :
       {std::pair{"optimizer.beta1", o.beta1}, std::pair{"optimizer.beta2", o.beta2}}) {
    if (!(beta >= 0.0 && beta < 1.0)) {
      return bad(named(key, beta) + " must be at least 0 and below 1");
    }
  }
  if (!(std::isfinite(o.epsilon) && o.epsilon > 0.0)) {
    return bad(named("optimizer.epsilon", o.epsilon) + " must be above 0");
  }
  if (o.warmup_steps > job.lr_decay_steps()) {
    return bad(named("optimizer.warmup_steps", o.warmup_steps) + " must be at most " +
               (o.decay_steps == 0 ? named("run.steps", job.run.steps)
                                   : named("optimizer.decay_steps", o.decay_steps)));
  }
  return Status::ok();
}

}  // namespace

Status check_job(const JobConfig& job) {
  const base::Result<parallel::ModelSpec> model = parallel::make_model_spec(job.model);
  if (!model.is_ok()) return model.status();
  RETURN_IF_ERROR(check_numerics(job.numerics));
  RETURN_IF_ERROR(check_layout(job));
  RETURN_IF_ERROR(check_data(job));
  RETURN_IF_ERROR(check_optimizer(job));
  if (job.run.device.empty()) return bad("run.device must not be empty");
  return Status::ok();
}

}  // namespace perdure::runtime::job
