#pragma once
// A file mapped into memory for reading. With token_file_mmap.cc the one place under runtime/ that
// opens a file without base/file_system.h: a mapping has no equal there.

#include <string>

#include "base/status.h"
#include "base/units.h"

namespace perdure::runtime::data {

// Owns the mapping. Any number of threads may read it. The file must not be truncated meanwhile
// (the system would kill the reader): writers replace files by rename, which is safe.
class MappedFile {
 public:
  // kNotFound, kFailedPrecondition (rights), kInvalidArgument (a directory), kResourceExhausted.
  static base::Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  base::ByteSpan bytes() const { return bytes_; }

 private:
  explicit MappedFile(base::ByteSpan bytes) : bytes_(bytes) {}

  base::ByteSpan bytes_;
};

}  // namespace perdure::runtime::data
