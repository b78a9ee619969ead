// bench_engine: the training step beside its limits and its peers, each pair measured in the same
// run.
//
//   bench_engine gpt2     GPT-2 124M, B=4 T=64, f32: beside sgemm of this machine (and llm.c's
//   program, if given) bench_engine small    4 layers, width 256, T=256, B=8, V=256, f32 and bf16:
//   beside PyTorch, if there bench_engine ops      every op's share of both steps, and its fraction
//   of the FMA or memory limit bench_engine exact    step time of exact over fast, 256 ... 8192
//   tokens per micro-batch bench_engine width    64 bits, 32-bit blocks, grains: time, bytes,
//   re-runs, loss after N steps
//
// Options: --threads N (2)  --steps N  --llmc PROGRAM  --python PROGRAM

#include <CLI/CLI.hpp>
#include <cstdio>

#include "bench/engine/bench_job.h"
#include "bench/engine/limits.h"
#include "bench/engine/peers.h"
#include "bench/engine/sum_error.h"
#include "kernels/metered_device.h"
#include "kernels/select/make_device.h"

namespace perdure::bench {
namespace {

using parallel::ComputeType;
using runtime::engine::SumMode;

struct Arguments {
  int threads = 2;
  int steps = 6;
  std::string llmc;
  std::string python = "/usr/bin/python3";
  int learn_steps = 500;
};

BenchJob gpt2_job() {
  BenchJob job{.name = "GPT-2 124M, B=4 T=64"};
  job.model = {.family = parallel::Family::kGpt2,
               .layers = 12,
               .width = 768,
               .heads = 12,
               .kv_heads = 12,
               .vocabulary = 50257,
               .context = 64};
  job.micro_batch = 4;
  return job;
}

BenchJob small_job(ComputeType compute) {
  BenchJob job{.name = "4 layers, width 256, T=256, B=8, V=256"};
  job.model = {.family = parallel::Family::kGpt2,
               .layers = 4,
               .width = 256,
               .heads = 4,
               .kv_heads = 4,
               .vocabulary = 256,
               .context = 256};
  job.micro_batch = 8;
  job.compute = compute;
  return job;
}

std::unique_ptr<kernels::Device> device_of(const Arguments& a) {
  return kernels::select::make_device("cpu", {.threads = a.threads}).value();
}

double run_best(const BenchJob& job, kernels::Device& device, int steps) {
  return BenchRun(job, device).best_of(steps);
}

void bench_gpt2(const Arguments& a) {
  const auto device = device_of(a);
  const double sgemm = best_sgemm_gflops(*device, a.threads);
  const BenchJob job = gpt2_job();
  BenchJob fast = job;
  fast.numerics.mode = SumMode::kFast;
  const double exact_s = run_best(job, *device, a.steps);
  const double fast_s = run_best(fast, *device, a.steps);
  const double gflops = step_flops(job) / exact_s / 1e9;
  std::printf("%s, f32, %d threads, %s\n", job.name.c_str(), a.threads,
              device->description().c_str());
  std::printf("  exact  %7.0f ms  %7.1f tok/s  %6.1f GFLOP/s\n", exact_s * 1e3,
              static_cast<double>(step_tokens(job)) / exact_s, gflops);
  std::printf("  fast   %7.0f ms  %7.1f tok/s  %6.1f GFLOP/s\n", fast_s * 1e3,
              static_cast<double>(step_tokens(job)) / fast_s, step_flops(job) / fast_s / 1e9);
  std::printf("  sgemm of this machine %.1f GFLOP/s: step / sgemm = %.2f  (goal 0.55)\n", sgemm,
              gflops / sgemm);
  if (a.llmc.empty()) {
    std::printf("  llm.c: not measured (give --llmc PROGRAM, run in a folder with its data)\n");
    return;
  }
  const double llmc_s = llmc_step_seconds(a.llmc, a.threads);
  std::printf("  llm.c %.0f ms, %.1f tok/s: perdure / llm.c = %.2f  (goal 4)\n", llmc_s * 1e3,
              256.0 / llmc_s, llmc_s / exact_s);
}

void bench_small(const Arguments& a) {
  const auto device = device_of(a);
  const BenchJob f32 = small_job(ComputeType::kF32);
  const double torch = torch_tokens_per_s(a.python, a.threads);
  const double tokens = static_cast<double>(step_tokens(f32));
  const double f32_rate = tokens / run_best(f32, *device, a.steps);
  const double bf16_rate = tokens / run_best(small_job(ComputeType::kBF16), *device, a.steps);
  std::printf("%s, %d threads\n", f32.name.c_str(), a.threads);
  std::printf("  f32   %8.0f tok/s  %6.1f GFLOP/s\n", f32_rate,
              step_flops(f32) * f32_rate / tokens / 1e9);
  std::printf("  bf16  %8.0f tok/s  bf16 / f32 = %.2f  (goal > 1)\n", bf16_rate,
              bf16_rate / f32_rate);
  if (torch > 0.0) {
    std::printf("  torch %8.0f tok/s  f32 / torch = %.2f  (goal 1.0)\n", torch, f32_rate / torch);
  } else {
    std::printf("  torch: not measured (%s has no torch)\n", a.python.c_str());
  }
}

void print_ops(const BenchJob& job, kernels::Device& device, const Limits& limits, int steps) {
  kernels::MeteredDevice timed(device, now_seconds);
  BenchRun run(job, timed);
  run.step();
  run.step();
  timed.clear();
  double seconds = 0.0;
  for (int i = 0; i < steps; ++i) seconds += run.step();
  std::printf("%s, %s: %.1f ms a step\n", job.name.c_str(),
              job.compute == ComputeType::kF32 ? "f32" : "bf16", seconds / steps * 1e3);
  std::printf("  %-24s %7s %9s %9s %8s\n", "op", "share", "GFLOP/s", "GB/s", "of limit");
  double named = 0.0;
  for (const auto& [name, t] : timed.totals()) {
    named += t.amount;
    const double fma = job.compute == ComputeType::kF32 ? limits.f32_gflops : limits.bf16_gflops;
    const double of_limit = t.flops > 0.0 ? t.flops / t.amount / 1e9 / fma
                                          : t.bytes / t.amount / 1e9 / limits.gbytes_per_s;
    if (t.calls == 0) continue;
    std::printf("  %-24s %6.1f%% %9.1f %9.1f %8.2f\n", std::string(name).c_str(),
                100.0 * t.amount / seconds, t.flops / t.amount / 1e9, t.bytes / t.amount / 1e9,
                of_limit);
  }
  std::printf("  %-24s %6.1f%%\n", "outside of ops", 100.0 * (seconds - named) / seconds);
}

void bench_ops(const Arguments& a) {
  const auto device = device_of(a);
  const Limits limits = measure_limits(*device, a.threads);
  std::printf(
      "limits: f32 product %.0f GFLOP/s, bf16 product %.0f GFLOP/s, memory %.1f GB/s (%d "
      "threads)\n",
      limits.f32_gflops, limits.bf16_gflops, limits.gbytes_per_s, a.threads);
  print_ops(gpt2_job(), *device, limits, a.steps);
  print_ops(small_job(ComputeType::kF32), *device, limits, a.steps);
  print_ops(small_job(ComputeType::kBF16), *device, limits, a.steps);
}

void bench_exact(const Arguments& a) {
  const auto device = device_of(a);
  std::printf(
      "exact / fast step time, 4 layers of width 512, V=2048, 2 micro-batches a step, %d threads\n",
      a.threads);
  std::printf("  %7s %10s %10s %7s %10s %7s\n", "tokens", "fast ms", "64 ms", "ratio", "32 ms",
              "ratio");
  for (const int64_t batch : {1, 2, 4, 8, 16, 32}) {
    BenchJob job;
    job.model = {.family = parallel::Family::kGpt2,
                 .layers = 4,
                 .width = 512,
                 .heads = 8,
                 .kv_heads = 8,
                 .vocabulary = 2048,
                 .context = 256};
    job.micro_batch = batch;
    job.micro_batches = 2;
    BenchJob fast = job, narrow = job;
    fast.numerics.mode = SumMode::kFast;
    narrow.numerics.width_bits = 32;
    narrow.numerics.block_elements = 256;
    // Interleaved, so that what else the machine does hits all alike.
    BenchRun runs[] = {{fast, *device}, {job, *device}, {narrow, *device}};
    double best[3] = {1e9, 1e9, 1e9};
    for (BenchRun& run : runs) run.best_of(1);
    for (int i = 0; i < a.steps; ++i) {
      for (int k = 0; k < 3; ++k) best[k] = std::min(best[k], runs[k].step());
    }
    std::printf("  %7lld %10.1f %10.1f %7.3f %10.1f %7.3f\n", static_cast<long long>(batch * 256),
                best[0] * 1e3, best[1] * 1e3, best[1] / best[0], best[2] * 1e3, best[2] / best[0]);
  }
  std::printf("  goal: <= 1.05 from 2048 tokens on\n");
}

void bench_width(const Arguments& a) {
  const auto device = device_of(a);
  struct Choice {
    const char* name;
    runtime::engine::Numerics numerics;
  };
  const Choice choices[] = {
      {"64 bits per tensor", {}},
      {"32 bits, blocks of 256", {.width_bits = 32, .block_elements = 256}},
      {"32 bits, blocks of 1024", {.width_bits = 32, .block_elements = 1024}},
      {"32 bits per tensor", {.width_bits = 32}},
      {"32, blocks of 256, grain 2", {.width_bits = 32, .block_elements = 256, .grain = 2}},
      {"32, blocks of 256, grain 4", {.width_bits = 32, .block_elements = 256, .grain = 4}},
      {"64 bits, grain 4", {.grain = 4}},
      {"f32 sums (fast)", {.mode = SumMode::kFast}}};
  std::printf(
      "sums of gradients: 4 layers of width 128, 8 micro-batches of 4 x 64 tokens, %d steps\n",
      a.learn_steps);
  std::printf("  %-28s %9s %7s %8s %12s %12s\n", "", "ms/step", "bytes", "re-runs", "loss at end",
              "sum error");
  for (const Choice& choice : choices) {
    BenchJob job;
    job.model = {.family = parallel::Family::kGpt2,
                 .layers = 4,
                 .width = 128,
                 .heads = 4,
                 .kv_heads = 4,
                 .vocabulary = 256,
                 .context = 64};
    job.micro_batch = 4;
    job.micro_batches = 8;
    job.numerics = choice.numerics;
    BenchRun run(job, *device);
    double best = 1e9;
    for (int i = 0; i < a.learn_steps; ++i) best = std::min(best, run.step());
    std::printf("  %-28s %9.2f %7lld %8llu %12.8f %12.2e\n", choice.name, best * 1e3,
                static_cast<long long>(choice.numerics.accumulator_bytes()),
                static_cast<unsigned long long>(run.attempts_again()), run.loss(),
                sum_error(*device, choice.numerics));
  }
}

}  // namespace
}  // namespace perdure::bench

int main(int argc, char** argv) {
  using namespace perdure::bench;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // lines appear as they are measured
  CLI::App app("The training step beside its limits and its peers.");
  Arguments a;
  app.add_option("--threads", a.threads, "compute threads")->capture_default_str();
  app.add_option("--steps", a.steps, "measured steps")->capture_default_str();
  app.add_option("--learn-steps", a.learn_steps, "steps of `width`")->capture_default_str();
  app.add_option("--llmc", a.llmc, "llm.c's CPU program, built with its own Makefile");
  app.add_option("--python", a.python, "a Python that has torch")->capture_default_str();
  app.fallthrough();  // options may stand after the subcommand
  app.require_subcommand(1);
  app.add_subcommand("gpt2")->callback([&] { bench_gpt2(a); });
  app.add_subcommand("small")->callback([&] { bench_small(a); });
  app.add_subcommand("ops")->callback([&] { bench_ops(a); });
  app.add_subcommand("exact")->callback([&] { bench_exact(a); });
  app.add_subcommand("width")->callback([&] { bench_width(a); });
  CLI11_PARSE(app, argc, argv);
  return 0;
}
