// perdure data prepare: text into token files.

#include <unistd.h>

#include <cstdio>

#include "apps/commands.h"
#include "base/posix_files.h"
#include "runtime/data/prepare.h"

namespace perdure::apps {
namespace {

using runtime::data::PrepareOptions;
using runtime::data::PrepareProgress;
using runtime::data::PrepareReport;
using runtime::data::TokenizerKind;

int prepare(const PrepareOptions& options) {
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  base::PosixFiles files;
  const auto show = [terminal](const PrepareProgress& p) {
    if (!terminal || p.bytes_total == 0) return;
    std::fprintf(stderr, "\r%3.0f %%  %llu tokens ",
                 100.0 * static_cast<double>(p.bytes_done) / static_cast<double>(p.bytes_total),
                 static_cast<unsigned long long>(p.tokens));
  };
  const base::Result<PrepareReport> report = runtime::data::prepare_data(files, options, show);
  if (terminal) std::fprintf(stderr, "\r\033[K");
  if (!report.is_ok()) return report_error(report.status());
  std::printf("%llu bytes: %llu tokens to train, %llu to validate, vocabulary %u, in %s\n",
              static_cast<unsigned long long>(report->bytes),
              static_cast<unsigned long long>(report->train_tokens),
              static_cast<unsigned long long>(report->val_tokens), report->vocabulary,
              options.out_dir.c_str());
  return kExitDone;
}

}  // namespace

void add_data_command(CLI::App& app, Action& action) {
  CLI::App* data = app.add_subcommand("data", "Prepare training data");
  data->require_subcommand(1);
  CLI::App* command = data->add_subcommand("prepare", "Turn text into token files");
  auto options = std::make_shared<PrepareOptions>();
  command->add_option("text", options->inputs, "Text files, joined in this order")->required();
  command
      ->add_option("--out", options->out_dir, "Folder for train.tokens, val.tokens, dataset.json")
      ->required();
  command
      ->add_option("--tokenizer", options->tokenizer.kind,
                   "byte, or gpt2 (needs the two files below)")
      ->transform(CLI::CheckedTransformer(std::map<std::string, TokenizerKind>{
          {"byte", TokenizerKind::kByte}, {"gpt2", TokenizerKind::kGpt2}}));
  command
      ->add_option("--val-fraction", options->val_fraction,
                   "Part of the text, at its end, kept for validation")
      ->capture_default_str();
  command->add_option("--vocab-bpe", options->tokenizer.vocab_bpe, "GPT-2's vocab.bpe");
  command->add_option("--encoder-json", options->tokenizer.encoder_json, "GPT-2's encoder.json");
  command->footer(
      "Examples:\n"
      "  perdure data prepare corpus.txt --out data/corpus\n"
      "  perdure data prepare --tokenizer gpt2 --vocab-bpe vocab.bpe --encoder-json encoder.json "
      "a.txt b.txt --out data/ab");
  command->callback([options, &action] { action = [options] { return prepare(*options); }; });
}

}  // namespace perdure::apps
