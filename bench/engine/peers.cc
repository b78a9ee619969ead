#include "bench/engine/peers.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>

namespace perdure::bench {
namespace {

// Calls `line` with each line that the shell command prints.
template <typename Line>
void run_command(const std::string& command, Line line) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  if (pipe == nullptr) return;
  std::array<char, 512> buffer;
  while (std::fgets(buffer.data(), buffer.size(), pipe.get()) != nullptr) line(buffer.data());
}

}  // namespace

double torch_tokens_per_s(const std::string& python, int threads) {
  double rate = 0.0;
  const std::string command =
      "env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE MALLOC_MMAP_THRESHOLD_=1073741824 "
      "MALLOC_TRIM_THRESHOLD_=8589934592 MALLOC_TOP_PAD_=268435456 "
      "LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/openblas-openmp OMP_NUM_THREADS=" +
      std::to_string(threads) + " " + python +
      " " PERDURE_SOURCE_DIR "/bench/engine/torch_peer.py " + std::to_string(threads) +
      " 2>/dev/null";
  run_command(command, [&](const char* text) { std::sscanf(text, "tokens_per_s %lf", &rate); });
  return rate;
}

double llmc_step_seconds(const std::string& program, int threads) {
  double best_ms = 0.0;
  run_command("OMP_NUM_THREADS=" + std::to_string(threads) + " " + program, [&](const char* text) {
    const char* took = std::strstr(text, "(took ");
    double ms = 0.0;
    if (took != nullptr && std::sscanf(took, "(took %lf", &ms) == 1)
      best_ms = best_ms == 0.0 ? ms : std::min(best_ms, ms);
  });
  return best_ms / 1e3;
}

}  // namespace perdure::bench
