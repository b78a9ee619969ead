#include "base/file_system.h"

namespace perdure::base {

std::string_view parent_path(std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return slash == 0 ? path.substr(0, 1) : path.substr(0, slash);
}

Result<std::vector<std::byte>> read_file(FileSystem& files, std::string_view path,
                                         uint64_t size_bytes_max) {
  ASSIGN_OR_RETURN(const std::unique_ptr<File> file, files.open(path, OpenMode::kRead));
  ASSIGN_OR_RETURN(const uint64_t size_bytes, file->size());
  if (size_bytes > size_bytes_max) {
    return resource_exhausted(std::string(path) + ": " + std::to_string(size_bytes) +
                              " bytes, at most " + std::to_string(size_bytes_max) + " expected");
  }
  std::vector<std::byte> contents(size_bytes);
  ASSIGN_OR_RETURN(const size_t read_bytes, file->pread(0, contents));
  contents.resize(read_bytes);
  RETURN_IF_ERROR(file->close());
  return contents;
}

Status replace_file(FileSystem& files, std::string_view path, ByteSpan contents) {
  const std::string temporary = std::string(path) + ".tmp";
  ASSIGN_OR_RETURN(const std::unique_ptr<File> file, files.open(temporary, OpenMode::kTruncate));
  RETURN_IF_ERROR(file->pwrite(0, contents));
  RETURN_IF_ERROR(file->sync());
  RETURN_IF_ERROR(file->close());
  RETURN_IF_ERROR(files.rename({.from = temporary, .to = path}));
  return files.sync_dir(parent_path(path));
}

}  // namespace perdure::base
