#pragma once
// The machines that a plan is made for, in the few numbers that planning needs.

#include <cstdint>

#include "base/ids.h"
#include "base/status.h"

namespace perdure::parallel {

struct LinkSpec {
  double bytes_per_second = 0.0;
  double latency_seconds = 0.0;
  double transfer_seconds(int64_t bytes) const;
};

struct ClusterSpec {
  uint32_t nodes = 1;  // failure domains
  uint32_t devices_per_node = 1;
  LinkSpec inside_node{2e9, 20e-6};
  LinkSpec between_nodes{1e9, 50e-6};
  double device_flops_per_second = 50e9;  // sustained by matrix products of training sizes
  int64_t device_memory_bytes = int64_t{8} << 30;

  uint32_t devices() const { return nodes * devices_per_node; }
  // Ranks fill node after node.
  base::NodeId node_of(base::Rank rank) const;
  const LinkSpec& link(base::Rank a, base::Rank b) const;
};

// kInvalidArgument names the field: "cluster.nodes (0) must be at least 1".
base::Status check_cluster(const ClusterSpec& cluster);

}  // namespace perdure::parallel
