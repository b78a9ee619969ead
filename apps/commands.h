#pragma once
// The subcommands of `perdure`. Each adds itself to the command line and runs when it was chosen.
// Results are exit codes: 0 done, 1 what was looked at is bad, 2 wrong input, 3 stopped by failure.

#include <CLI/CLI.hpp>
#include <functional>

#include "base/status.h"

namespace perdure::apps {

inline constexpr int kExitDone = 0;
inline constexpr int kExitBad = 1;
inline constexpr int kExitWrongInput = 2;
inline constexpr int kExitFailure = 3;

// Set by the chosen subcommand.
using Action = std::function<int()>;

void add_agent_command(CLI::App& app, Action& action);
void add_ckpt_command(CLI::App& app, Action& action);
void add_coordinator_command(CLI::App& app, Action& action);
void add_data_command(CLI::App& app, Action& action);
void add_status_command(CLI::App& app, Action& action);
void add_train_command(CLI::App& app, Action& action);
void add_worker_command(CLI::App& app, Action& action);
void add_simulate_command(CLI::App& app, Action& action);
void add_keys_command(CLI::App& app, Action& action);

// Prints "perdure: <text>" and gives the exit code that the status stands for.
int report_error(const base::Status& status);
// The same for what was found before anything was started: whatever its kind, the input is wrong.
int report_wrong_input(const base::Status& status);

}  // namespace perdure::apps
