#pragma once
// RunFolder: where a run's processes find each other.
//
//   DIR/control/            mode 0700
//     coordinator.json      {"address":"127.0.0.1:4711","pid":71}, replaced at each start
//     secret                mode 0600
//     job.toml              the job as it was when it was started
//     journal/              the coordinator's memory
//     faults.sock
//   DIR/faults.jsonl        what was struck

#include <string>

#include "base/file_system.h"
#include "base/network.h"

namespace perdure::runtime::launcher {

class RunFolder {
 public:
  explicit RunFolder(std::string folder) : folder_(std::move(folder)) {}

  const std::string& path() const { return folder_; }
  std::string control() const { return folder_ + "/control"; }
  std::string job() const { return control() + "/job.toml"; }
  std::string secret() const { return control() + "/secret"; }
  std::string coordinator() const { return control() + "/coordinator.json"; }
  std::string journal() const { return control() + "/journal"; }
  std::string fault_socket() const { return control() + "/faults.sock"; }
  std::string fault_log() const { return folder_ + "/faults.jsonl"; }

 private:
  std::string folder_;
};

struct CoordinatorPlace {
  base::Address address;
  uint64_t pid = 0;
};

// Makes the folder for a new run: what an earlier run's control folder held is removed. Errors of
// files.
base::Status make_run_folder(const RunFolder& folder, base::FileSystem& files,
                             const std::string& secret, const std::string& job);
base::Status write_coordinator(const RunFolder& folder, base::FileSystem& files,
                               const CoordinatorPlace& place);
// kNotFound: no coordinator has started yet. kDataLoss: not such a file.
base::Result<CoordinatorPlace> read_coordinator(const RunFolder& folder, base::FileSystem& files);
base::Result<std::string> read_secret(const RunFolder& folder, base::FileSystem& files);
// Removes a folder and all that is in it. kNotFound when it is not there.
base::Status remove_tree(base::FileSystem& files, const std::string& path);

}  // namespace perdure::runtime::launcher
