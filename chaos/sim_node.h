#pragma once
// What a simulated disk is made of. Only for sim_files.cc and sim_disk.cc.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "chaos/sim_files.h"

namespace perdure::chaos {

// A file or a directory, as programs see it and as it would be after the power goes.
struct SimFiles::Node {
  explicit Node(base::FileKind k) : kind(k) {}

  const base::FileKind kind;
  bool is_linked = true;  // a removed file may still be open; it takes no space
  std::vector<std::byte> data;
  std::vector<std::byte> durable_data;
  std::set<uint64_t> dirty_sectors;  // written since the last sync
  std::map<std::string, NodePtr> children;
  std::map<std::string, NodePtr> durable_children;
};

}  // namespace perdure::chaos
