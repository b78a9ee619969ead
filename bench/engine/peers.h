#pragma once
// Other programs, run and timed beside ours. Neither is part of Perdure; where one is missing, the
// result is 0.

#include <string>

namespace perdure::bench {

// Tokens per second of bench/engine/torch_peer.py with the settings that make PyTorch fastest on a
// CPU.
double torch_tokens_per_s(const std::string& python, int threads);

// Seconds of the fastest step of llm.c's CPU program. `program` is a shell command that prints
// "step N: train loss L (took T ms)" lines.
double llmc_step_seconds(const std::string& program, int threads);

}  // namespace perdure::bench
