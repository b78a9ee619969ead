#include "runtime/launcher/progress.h"

#include <cmath>
#include <cstdio>

namespace perdure::runtime::launcher {
namespace {

std::string format_rate(double tokens_per_s) {
  char buffer[32];
  if (tokens_per_s >= 1e6) {
    std::snprintf(buffer, sizeof buffer, "%.2fM tok/s", tokens_per_s / 1e6);
  } else if (tokens_per_s >= 1e4) {
    std::snprintf(buffer, sizeof buffer, "%.1fk tok/s", tokens_per_s / 1e3);
  } else {
    std::snprintf(buffer, sizeof buffer, "%.0f tok/s", tokens_per_s);
  }
  return buffer;
}

}  // namespace

std::string format_duration(double seconds) {
  const auto total = static_cast<uint64_t>(std::llround(std::fmax(seconds, 0.0)));
  char buffer[48];
  if (total >= 3600) {
    std::snprintf(buffer, sizeof buffer, "%lluh %02llum",
                  static_cast<unsigned long long>(total / 3600),
                  static_cast<unsigned long long>(total / 60 % 60));
  } else if (total >= 60) {
    std::snprintf(buffer, sizeof buffer, "%llum %02llus",
                  static_cast<unsigned long long>(total / 60),
                  static_cast<unsigned long long>(total % 60));
  } else {
    std::snprintf(buffer, sizeof buffer, "%llus", static_cast<unsigned long long>(total));
  }
  return buffer;
}

std::string format_progress(const Progress& p) {
  char buffer[64];
  std::string line = "step " + std::to_string(p.step) + "/" + std::to_string(p.steps);
  std::snprintf(buffer, sizeof buffer, "  loss %.4f", p.loss);
  line += buffer;
  if (p.val_loss >= 0.0) {
    std::snprintf(buffer, sizeof buffer, "  val %.4f", p.val_loss);
    line += buffer;
  }
  line += "  " + format_rate(p.tokens_per_s);
  if (p.step < p.steps)
    line += "  ETA " + format_duration(static_cast<double>(p.steps - p.step) * p.seconds_per_step);
  return line;
}

}  // namespace perdure::runtime::launcher
