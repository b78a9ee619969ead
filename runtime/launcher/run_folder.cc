#include "runtime/launcher/run_folder.h"

#include <sys/stat.h>

#include <nlohmann/json.hpp>

namespace perdure::runtime::launcher {
namespace {

using base::Result;
using base::Status;
using base::StatusCode;
using nlohmann::json;

constexpr uint64_t kSmallFileBytesMax = 1 << 16;

}  // namespace

Status remove_tree(base::FileSystem& files, const std::string& path) {
  ASSIGN_OR_RETURN(const base::FileInfo info, files.stat(path));
  if (info.kind == base::FileKind::kDirectory) {
    ASSIGN_OR_RETURN(const auto names, files.list(path));
    for (const std::string& name : names) RETURN_IF_ERROR(remove_tree(files, path + "/" + name));
  }
  return files.remove(path);
}

Status make_run_folder(const RunFolder& folder, base::FileSystem& files, const std::string& secret,
                       const std::string& job) {
  RETURN_IF_ERROR(files.make_dirs(folder.path()));
  for (const std::string& stale : {folder.control(), folder.fault_log()}) {
    const Status removed = remove_tree(files, stale);
    if (!removed.is_ok() && removed.code() != StatusCode::kNotFound) return removed;
  }
  RETURN_IF_ERROR(files.make_dirs(folder.control()));
  // Before anything is in it.
  if (::chmod(folder.control().c_str(), 0700) != 0) {
    return base::failed_precondition("cannot change the mode of " + folder.control());
  }
  RETURN_IF_ERROR(base::replace_file(files, folder.secret(), base::as_byte_span(secret)));
  if (::chmod(folder.secret().c_str(), 0600) != 0) {
    return base::failed_precondition("cannot change the mode of " + folder.secret());
  }
  return base::replace_file(files, folder.job(), base::as_byte_span(job));
}

Status write_coordinator(const RunFolder& folder, base::FileSystem& files,
                         const CoordinatorPlace& place) {
  const json page = {{"address", place.address.to_string()}, {"pid", place.pid}};
  return base::replace_file(files, folder.coordinator(), base::as_byte_span(page.dump() + "\n"));
}

Result<CoordinatorPlace> read_coordinator(const RunFolder& folder, base::FileSystem& files) {
  ASSIGN_OR_RETURN(const auto bytes,
                   base::read_file(files, folder.coordinator(), kSmallFileBytesMax));
  const json page = json::parse(base::as_text(bytes), nullptr, false);
  if (!page.is_object() || !page.contains("address") || !page["address"].is_string() ||
      !page.contains("pid") || !page["pid"].is_number_unsigned()) {
    return base::data_loss(folder.coordinator() + " does not name a coordinator");
  }
  CoordinatorPlace place;
  ASSIGN_OR_RETURN(place.address, base::Address::parse(page["address"].get<std::string>()));
  place.pid = page["pid"].get<uint64_t>();
  return place;
}

Result<std::string> read_secret(const RunFolder& folder, base::FileSystem& files) {
  ASSIGN_OR_RETURN(const auto bytes, base::read_file(files, folder.secret(), kSmallFileBytesMax));
  return std::string(base::as_text(bytes));
}

}  // namespace perdure::runtime::launcher
