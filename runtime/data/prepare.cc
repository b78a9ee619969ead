#include "runtime/data/prepare.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "runtime/data/token_file.h"
#include "runtime/data/token_file_writer.h"

namespace perdure::runtime::data {
namespace {

using base::Result;
using base::Status;
using base::operator""_MiB;

constexpr size_t kReadBytes = 1_MiB;
// Text without any place to cut (one word of this length) is cut anyway.
constexpr size_t kPendingBytesMax = 256_MiB;

// The inputs as one text.
class Corpus {
 public:
  static Result<Corpus> open(base::FileSystem& files, const std::vector<std::string>& paths) {
    Corpus corpus;
    for (const std::string& path : paths) {
      ASSIGN_OR_RETURN(std::unique_ptr<base::File> file, files.open(path, base::OpenMode::kRead));
      ASSIGN_OR_RETURN(const uint64_t size_bytes, file->size());
      corpus.parts_.push_back({std::move(file), path, corpus.size_bytes_, size_bytes});
      corpus.size_bytes_ += size_bytes;
    }
    return corpus;
  }

  uint64_t size_bytes() const { return size_bytes_; }

  // Appends bytes [offset, offset + size), which are there.
  Status read(uint64_t offset, uint64_t size, std::string& out) {
    CHECK_LE(offset + size, size_bytes_);
    for (const Part& part : parts_) {
      if (size == 0) break;
      if (offset >= part.begin + part.size_bytes) continue;
      const uint64_t inside = offset - part.begin;
      const uint64_t take = std::min(size, part.size_bytes - inside);
      const size_t at = out.size();
      out.resize(at + take);
      ASSIGN_OR_RETURN(
          const size_t got,
          part.file->pread(inside, std::as_writable_bytes(std::span(out).subspan(at, take))));
      if (got != take) return base::data_loss(part.path + ": became shorter while it was read");
      offset += take;
      size -= take;
    }
    return Status::ok();
  }

 private:
  struct Part {
    std::unique_ptr<base::File> file;
    std::string path;
    uint64_t begin;
    uint64_t size_bytes;
  };
  std::vector<Part> parts_;
  uint64_t size_bytes_ = 0;
};

// Moves a cut back to the start of a UTF-8 character.
Result<uint64_t> align_cut(Corpus& corpus, uint64_t cut) {
  constexpr uint64_t kContinuationBytesMax = 3;
  for (uint64_t back = 0; back <= kContinuationBytesMax && back < cut; ++back) {
    if (cut == corpus.size_bytes()) return cut;
    std::string byte;
    RETURN_IF_ERROR(corpus.read(cut - back, 1, byte));
    if ((static_cast<unsigned char>(byte[0]) & 0xC0) != 0x80) return cut - back;
  }
  return cut;  // not UTF-8
}

// One run of prepare_data.
class Preparation {
 public:
  Preparation(base::FileSystem& files, const PrepareOptions& options,
              const std::function<void(const PrepareProgress&)>& progress)
      : files_(files), options_(options), progress_(progress) {}

  Result<PrepareReport> run() {
    RETURN_IF_ERROR(check_options());
    ASSIGN_OR_RETURN(tokenizer_, make_tokenizer(files_, options_.tokenizer));
    ASSIGN_OR_RETURN(Corpus corpus, Corpus::open(files_, options_.inputs));
    const uint64_t total = corpus.size_bytes();
    if (total == 0)
      return base::invalid_argument(options_.inputs.front() + ": the corpus is empty");
    const double train_part = static_cast<double>(total) * (1.0 - options_.val_fraction);
    ASSIGN_OR_RETURN(const uint64_t cut,
                     align_cut(corpus, static_cast<uint64_t>(std::floor(train_part))));
    if (cut == 0 || (cut == total && options_.val_fraction > 0.0)) {
      return base::invalid_argument("the corpus has " + std::to_string(total) +
                                    " bytes: too small for a val fraction of " +
                                    std::to_string(options_.val_fraction));
    }
    RETURN_IF_ERROR(files_.make_dirs(options_.out_dir));
    report_ = {.bytes = total, .vocabulary = tokenizer_->vocabulary()};
    ASSIGN_OR_RETURN(report_.train_tokens, write_part(corpus, {"train.tokens", 0, cut}));
    if (options_.val_fraction > 0.0) {
      ASSIGN_OR_RETURN(report_.val_tokens, write_part(corpus, {"val.tokens", cut, total}));
    }
    if (options_.val_fraction == 0.0) RETURN_IF_ERROR(remove_old(out_path("val.tokens")));
    RETURN_IF_ERROR(write_description());
    return report_;
  }

 private:
  struct Part {
    const char* file;
    uint64_t begin;
    uint64_t end;
  };

  Status check_options() const {
    if (options_.inputs.empty()) return base::invalid_argument("no corpus file is given");
    if (options_.out_dir.empty()) return base::invalid_argument("no output directory (--out)");
    if (!(options_.val_fraction >= 0.0 && options_.val_fraction < 1.0)) {
      return base::invalid_argument("val fraction " + std::to_string(options_.val_fraction) +
                                    " must be at least 0 and below 1");
    }
    return Status::ok();
  }

  std::string out_path(const char* file) const { return options_.out_dir + "/" + file; }

  // What an earlier preparation left must not be taken for a part of this one.
  Status remove_old(const std::string& path) const {
    const Status status = files_.remove(path);
    return status.code() == base::StatusCode::kNotFound ? Status::ok() : status;
  }

  // Encodes a part of the text into a file of its own; gives the count of tokens.
  Result<uint64_t> write_part(Corpus& corpus, const Part& part) {
    const std::string path = out_path(part.file);
    ASSIGN_OR_RETURN(TokenFileWriter writer,
                     TokenFileWriter::create(files_, {path, std::string(tokenizer_->name()),
                                                      tokenizer_->vocabulary()}));
    std::string pending;
    std::vector<TokenId> tokens;
    for (uint64_t at = part.begin; at < part.end;) {
      const uint64_t take = std::min<uint64_t>(kReadBytes, part.end - at);
      RETURN_IF_ERROR(corpus.read(at, take, pending));
      at += take;
      const bool is_all = at == part.end || pending.size() >= kPendingBytesMax;
      const size_t cut = is_all ? pending.size() : tokenizer_->safe_cut(pending);
      tokens.clear();
      tokenizer_->encode(std::string_view(pending).substr(0, cut), tokens);
      pending.erase(0, cut);
      RETURN_IF_ERROR(writer.append(tokens));
      tokens_done_ += tokens.size();
      if (progress_) progress_({at, report_.bytes, tokens_done_});
    }
    const uint64_t count = writer.token_count();
    RETURN_IF_ERROR(writer.finish());
    ASSIGN_OR_RETURN(const TokenFile written, TokenFile::open(path));
    RETURN_IF_ERROR(written.verify());
    CHECK_EQ(written.info().token_count, count);
    return count;
  }

  // For people and scripts; training reads the token files alone.
  Status write_description() const {
    nlohmann::ordered_json json;
    json["format"] = 1;
    json["tokenizer"] = tokenizer_->name();
    json["vocabulary"] = report_.vocabulary;
    json["corpus"] = options_.inputs;
    json["corpus_bytes"] = report_.bytes;
    json["val_fraction"] = options_.val_fraction;
    json["train"] = {{"file", "train.tokens"}, {"tokens", report_.train_tokens}};
    if (options_.val_fraction > 0.0) {
      json["val"] = {{"file", "val.tokens"}, {"tokens", report_.val_tokens}};
    }
    const std::string text =
        json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    return base::replace_file(files_, out_path("dataset.json"), base::as_byte_span(text));
  }

  base::FileSystem& files_;
  const PrepareOptions& options_;
  const std::function<void(const PrepareProgress&)>& progress_;
  std::unique_ptr<Tokenizer> tokenizer_;
  PrepareReport report_;
  uint64_t tokens_done_ = 0;
};

}  // namespace

Result<PrepareReport> prepare_data(base::FileSystem& files, const PrepareOptions& options,
                                   const std::function<void(const PrepareProgress&)>& progress) {
  return Preparation(files, options, progress).run();
}

}  // namespace perdure::runtime::data
