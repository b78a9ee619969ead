#pragma once
// TokenFileWriter: writes a token file piece by piece. The name appears only when all is on disk.

#include <memory>
#include <span>
#include <string>

#include "base/file_system.h"
#include "base/hash.h"
#include "runtime/data/token_file.h"

namespace perdure::runtime::data {

struct TokenFileTarget {
  std::string path;
  std::string tokenizer;
  uint32_t vocabulary = 0;
};

// One thread. Writes to `path`.tmp; destroying an unfinished writer removes that. After an error
// only destroying is allowed (CHECKed). `files` outlives it.
class TokenFileWriter {
 public:
  static base::Result<TokenFileWriter> create(base::FileSystem& files, TokenFileTarget target);

  TokenFileWriter(TokenFileWriter&& other) noexcept;
  TokenFileWriter& operator=(TokenFileWriter&&) = delete;
  ~TokenFileWriter();

  // kInvalidArgument: a token that the vocabulary does not have. Else errors of the file system.
  base::Status append(std::span<const TokenId> tokens);

  // Header, sync, rename, sync of the directory. Afterwards the file is there, whole and durable.
  base::Status finish();

  uint64_t token_count() const { return info_.token_count; }

 private:
  enum class State { kWriting, kFailed, kFinished, kMovedFrom };

  TokenFileWriter(base::FileSystem& files, TokenFileTarget target);
  std::string temporary() const { return target_.path + ".tmp"; }
  base::Status fail(base::Status status);
  base::Status publish();

  base::FileSystem* files_;
  TokenFileTarget target_;
  TokenFileInfo info_;
  std::unique_ptr<base::File> file_;
  base::Hasher hasher_;
  std::vector<std::byte> encoded_;
  State state_ = State::kWriting;
};

}  // namespace perdure::runtime::data
