// perdure: one binary, a subcommand for each thing to do.

#include <cstdio>

#include "apps/commands.h"

namespace perdure::apps {

int report_wrong_input(const base::Status& status) {
  std::fflush(stdout);
  std::fprintf(stderr, "perdure: %s\n", status.message().c_str());
  return kExitWrongInput;
}

int report_error(const base::Status& status) {
  report_wrong_input(status);
  switch (status.code()) {
    case base::StatusCode::kInvalidArgument:
    case base::StatusCode::kNotFound:
    case base::StatusCode::kAlreadyExists:
    case base::StatusCode::kFailedPrecondition:
      return kExitWrongInput;
    default:
      return kExitFailure;
  }
}

}  // namespace perdure::apps

int main(int argc, char** argv) {
  using namespace perdure::apps;
  CLI::App app(
      "Perdure trains language models over many worker processes; how they are laid out changes no "
      "bit of the result.");
  app.name("perdure");
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  perdure data prepare --tokenizer byte corpus.txt --out data/corpus\n"
      "  perdure train examples/tiny.toml\n"
      "  perdure train examples/kjv.toml --set layout.pipelines=2 --set layout.stages=2 --out "
      "runs/kjv\n"
      "  perdure status runs/kjv\n"
      "  perdure ckpt ls runs/kjv/ckpt\n"
      "\n"
      "Exit codes: 0 done, 1 bad or different (ckpt verify, ckpt diff), 2 wrong input, 3 stopped "
      "by "
      "a failure.");
  Action action;
  add_train_command(app, action);
  add_data_command(app, action);
  add_ckpt_command(app, action);
  add_keys_command(app, action);
  add_simulate_command(app, action);
  add_status_command(app, action);
  add_agent_command(app, action);
  add_coordinator_command(app, action);
  add_worker_command(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? kExitDone : kExitWrongInput;
  }
  return action();
}
