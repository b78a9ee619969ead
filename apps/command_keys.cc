// perdure keys: what may stand in a job file.

#include <cstdio>

#include "apps/commands.h"
#include "runtime/job/job_config.h"

namespace perdure::apps {

void add_keys_command(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("keys", "List every key of a job file: type, range, default, meaning");
  command->footer("Example:\n  perdure keys | grep optimizer");
  command->callback([&action] {
    action = [] {
      std::fputs(runtime::job::describe_job_keys().c_str(), stdout);
      return kExitDone;
    };
  });
}

}  // namespace perdure::apps
