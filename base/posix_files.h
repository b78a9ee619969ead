#pragma once
// PosixFiles: the files of this machine.

#include "base/file_system.h"

namespace perdure::base {

// Stateless: any number may exist, any thread may use one.
class PosixFiles final : public FileSystem {
 public:
  Result<std::unique_ptr<File>> open(std::string_view path, OpenMode mode) override;
  Result<FileInfo> stat(std::string_view path) override;
  Status rename(const RenamePaths& paths) override;
  Status remove(std::string_view path) override;
  Status make_dirs(std::string_view path) override;
  Result<std::vector<std::string>> list(std::string_view path) override;
  Status sync_dir(std::string_view path) override;
};

// The Status for an errno: "open /a/b: No such file or directory", with the code that file_system.h
// names.
Status errno_status(int error, std::string_view action, std::string_view path);

}  // namespace perdure::base
