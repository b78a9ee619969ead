// perdure ckpt: looks at checkpoints, verifies, compares and removes them.

#include <cstdio>
#include <memory>
#include <optional>

#include "apps/ckpt_find.h"
#include "apps/ckpt_print.h"
#include "apps/ckpt_remove.h"
#include "apps/ckpt_verify.h"
#include "apps/commands.h"
#include "apps/text_table.h"
#include "base/posix_files.h"
#include "checkpoint/checkpoint_diff.h"

namespace perdure::apps {
namespace {

using checkpoint::CheckpointFolder;
using checkpoint::Manifest;
using checkpoint::SaveId;

struct CkptArguments {
  std::string root;
  std::optional<uint64_t> step;
  bool tensors = false;    // show
  bool all = false;        // verify
  uint64_t with = 0;       // diff
  std::string other_root;  // diff; "": the same
  bool force = false;      // rm
};

int ls(const CkptArguments& arguments) {
  base::PosixFiles files;
  const auto scan = scan_checkpoints(files, arguments.root);
  if (!scan.is_ok()) return report_not_found(scan.status());
  std::fputs(print_scan(*scan).c_str(), stdout);
  return kExitDone;
}

base::Result<Manifest> find_manifest(base::FileSystem& files, const std::string& root,
                                     std::optional<uint64_t> step) {
  ASSIGN_OR_RETURN(const SaveId id, find_checkpoint(files, root, step));
  return CheckpointFolder(files, root).read(id);
}

int show(const CkptArguments& arguments) {
  base::PosixFiles files;
  const auto manifest = find_manifest(files, arguments.root, arguments.step);
  if (!manifest.is_ok()) return report_not_found(manifest.status());
  const SaveId id = {manifest->step, manifest->epoch, manifest->attempt};
  const std::string path = CheckpointFolder(files, arguments.root).path(id);
  std::fputs(print_manifest(*manifest, path).c_str(), stdout);
  if (arguments.tensors) std::printf("\n%s", print_tensors(*manifest).c_str());
  return kExitDone;
}

int verify(const CkptArguments& arguments) {
  base::PosixFiles files;
  const auto scan = scan_checkpoints(files, arguments.root);
  if (!scan.is_ok()) return report_not_found(scan.status());
  const VerifyWhich which = arguments.all    ? VerifyWhich::kAll
                            : arguments.step ? VerifyWhich::kStep
                                             : VerifyWhich::kNewest;
  const auto entries = to_verify(*scan, arguments.root, which, arguments.step.value_or(0));
  if (!entries.is_ok()) return report_not_found(entries.status());
  return verify_checkpoints(files, arguments.root, *entries) == 0 ? kExitDone : kExitBad;
}

int diff(const CkptArguments& arguments) {
  base::PosixFiles files;
  const std::string& other_root =
      arguments.other_root.empty() ? arguments.root : arguments.other_root;
  const auto first = find_manifest(files, arguments.root, arguments.step);
  if (!first.is_ok()) return report_not_found(first.status());
  const auto second = find_manifest(files, other_root, arguments.with);
  if (!second.is_ok()) return report_not_found(second.status());
  const auto difference = checkpoint::diff_manifests(*first, *second);
  for (const auto& tensor : difference.tensors) {
    std::printf("%s", printable(checkpoint::to_string(tensor)).c_str());
    if (tensor.differing_bytes > 0) {
      std::printf(", at most %s", human_size(tensor.differing_bytes).c_str());
    }
    std::printf("\n");
  }
  const std::string equal = counted(difference.equal_tensors, "tensor");
  if (difference.tensors.empty()) {
    std::printf("equal to the last bit: %s\n", equal.c_str());
    return kExitDone;
  }
  std::printf("%s; %s equal to the last bit\n",
              counted(difference.tensors.size(), "difference").c_str(), equal.c_str());
  return kExitBad;
}

int rm(const CkptArguments& arguments) {
  base::PosixFiles files;
  const base::Status status = remove_step(
      files,
      {.root = arguments.root, .step = arguments.step.value_or(0), .force = arguments.force});
  return status.is_ok() ? kExitDone : report_not_found(status);
}

struct Subcommand {
  CLI::App* command = nullptr;
  std::shared_ptr<CkptArguments> arguments = std::make_shared<CkptArguments>();
  CLI::Option* step = nullptr;
};

using Run = int (*)(const CkptArguments&);

Subcommand add_one(CLI::App& ckpt, Action& action, const char* name, const char* what, Run run) {
  Subcommand added;
  added.command = ckpt.add_subcommand(name, what);
  added.command->add_option("folder", added.arguments->root, "Folder of the checkpoints")
      ->required();
  added.command->callback([arguments = added.arguments, run, &action] {
    action = [arguments, run] { return run(*arguments); };
  });
  return added;
}

Subcommand add_one_with_step(CLI::App& ckpt, Action& action, const char* name, const char* what,
                             Run run) {
  Subcommand added = add_one(ckpt, action, name, what, run);
  // Without the check, -1 would be the largest step.
  added.step = added.command->add_option("--step", added.arguments->step, "Step of the checkpoint")
                   ->check(CLI::NonNegativeNumber);
  return added;
}

void add_verify(CLI::App& ckpt, Action& action) {
  const Subcommand added = add_one_with_step(ckpt, action, "verify",
                                             "Read all of a checkpoint, name what is bad", verify);
  added.command->add_flag("--all", added.arguments->all, "Each one that there is")
      ->excludes(added.step);
  added.command->footer(
      "Without --step or --all: the newest one, and damaged ones that are newer.\n"
      "Exit codes: 0 all good, 1 something is bad.\n"
      "\n"
      "Examples:\n"
      "  perdure ckpt verify runs/kjv/ckpt\n"
      "  perdure ckpt verify runs/kjv/ckpt --all");
}

void add_diff(CLI::App& ckpt, Action& action) {
  const Subcommand added = add_one_with_step(
      ckpt, action, "diff", "What differs between two checkpoints, by their hashes", diff);
  added.step->required();
  added.command->add_option("--with", added.arguments->with, "Step of the other checkpoint")
      ->check(CLI::NonNegativeNumber)
      ->required();
  added.command->add_option("--other", added.arguments->other_root,
                            "Folder of the other checkpoint, when it is another one");
  added.command->footer(
      "Reads the manifests only: `verify` tells whether the files are what these say.\n"
      "Exit codes: 0 equal to the last bit, 1 different, or not known to be equal.\n"
      "\n"
      "Examples:\n"
      "  perdure ckpt diff runs/kjv/ckpt --step 100 --with 120\n"
      "  perdure ckpt diff runs/kjv/ckpt --step 120 --with 120 --other runs/again/ckpt");
}

}  // namespace

void add_ckpt_command(CLI::App& app, Action& action) {
  CLI::App* ckpt = app.add_subcommand("ckpt", "Look at checkpoints, verify, compare, remove them");
  ckpt->require_subcommand(1);
  ckpt->footer(
      "Examples:\n"
      "  perdure ckpt ls runs/kjv/ckpt\n"
      "  perdure ckpt verify runs/kjv/ckpt --all");
  add_one(*ckpt, action, "ls", "List the checkpoints of a folder, unfinished and damaged ones too",
          ls)
      .command->footer("Example:\n  perdure ckpt ls runs/kjv/ckpt");
  const Subcommand show_one = add_one_with_step(
      *ckpt, action, "show", "What one checkpoint is: the newest, or that of a step", show);
  show_one.command->add_flag("--tensors", show_one.arguments->tensors,
                             "Each tensor too: type, shape, where its chunks are");
  show_one.command->footer(
      "Examples:\n"
      "  perdure ckpt show runs/kjv/ckpt\n"
      "  perdure ckpt show runs/kjv/ckpt --step 120 --tensors");
  add_verify(*ckpt, action);
  add_diff(*ckpt, action);
  const Subcommand rm_one =
      add_one_with_step(*ckpt, action, "rm", "Remove the checkpoint of a step", rm);
  rm_one.step->required();
  rm_one.command->add_flag("--force", rm_one.arguments->force,
                           "Also the newest committed one, or an unfinished save");
  rm_one.command->footer("Example:\n  perdure ckpt rm runs/kjv/ckpt --step 100");
}

}  // namespace perdure::apps
