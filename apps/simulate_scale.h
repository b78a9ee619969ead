#pragma once
// perdure simulate scale.

#include "apps/commands.h"

namespace perdure::apps {

void add_scale_command(CLI::App& simulate, Action& action);

}  // namespace perdure::apps
