#include "runtime/data/token_file_writer.h"

#include <algorithm>

namespace perdure::runtime::data {

using base::Result;
using base::Status;

TokenFileWriter::TokenFileWriter(base::FileSystem& files, TokenFileTarget target)
    : files_(&files), target_(std::move(target)) {
  info_.tokenizer = target_.tokenizer;
  info_.vocabulary = target_.vocabulary;
  info_.token_bytes = target_.vocabulary <= 65536 ? 2 : 4;
}

TokenFileWriter::TokenFileWriter(TokenFileWriter&& other) noexcept
    : files_(other.files_),
      target_(std::move(other.target_)),
      info_(std::move(other.info_)),
      file_(std::move(other.file_)),
      hasher_(other.hasher_),
      encoded_(std::move(other.encoded_)),
      state_(std::exchange(other.state_, State::kMovedFrom)) {}

TokenFileWriter::~TokenFileWriter() {
  if (state_ == State::kFinished || state_ == State::kMovedFrom || file_ == nullptr) return;
  file_.reset();
  // Nothing is lost when this fails: a later writer empties the file.
  (void)files_->remove(temporary());
}

Result<TokenFileWriter> TokenFileWriter::create(base::FileSystem& files, TokenFileTarget target) {
  if (target.tokenizer.empty() || target.tokenizer.size() > kTokenizerNameBytesMax) {
    return base::invalid_argument(target.path + ": the tokenizer's name must have 1 to " +
                                  std::to_string(kTokenizerNameBytesMax) + " bytes");
  }
  TokenFileWriter writer(files, std::move(target));
  ASSIGN_OR_RETURN(writer.file_, files.open(writer.temporary(), base::OpenMode::kTruncate));
  const std::vector<std::byte> placeholder(kTokenFileHeaderBytes);
  RETURN_IF_ERROR(writer.file_->pwrite(0, placeholder));
  return writer;
}

Status TokenFileWriter::fail(Status status) {
  if (!status.is_ok()) state_ = State::kFailed;
  return status;
}

Status TokenFileWriter::append(std::span<const TokenId> tokens) {
  CHECK(state_ == State::kWriting);
  if (tokens.empty()) return Status::ok();
  const TokenId most = *std::max_element(tokens.begin(), tokens.end());
  if (most >= target_.vocabulary) {
    return fail(base::invalid_argument(target_.path + ": token " + std::to_string(most) +
                                       " >= vocabulary " + std::to_string(target_.vocabulary)));
  }
  encoded_.clear();
  append_encoded(tokens, info_.token_bytes, encoded_);
  hasher_.update(encoded_);
  const uint64_t at = kTokenFileHeaderBytes + info_.token_count * info_.token_bytes;
  info_.token_count += tokens.size();
  info_.token_max = std::max(info_.token_max, most);
  return fail(file_->pwrite(at, encoded_));
}

Status TokenFileWriter::finish() {
  CHECK(state_ == State::kWriting);
  info_.payload_hash = hasher_.digest64();
  RETURN_IF_ERROR(fail(publish()));
  state_ = State::kFinished;
  return Status::ok();
}

Status TokenFileWriter::publish() {
  RETURN_IF_ERROR(file_->pwrite(0, encode_token_file_header(info_)));
  RETURN_IF_ERROR(file_->sync());
  RETURN_IF_ERROR(file_->close());
  const std::string from = temporary();
  RETURN_IF_ERROR(files_->rename({.from = from, .to = target_.path}));
  return files_->sync_dir(base::parent_path(target_.path));
}

}  // namespace perdure::runtime::data
