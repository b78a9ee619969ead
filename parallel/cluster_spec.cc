#include "parallel/cluster_spec.h"

#include <cmath>
#include <initializer_list>
#include <sstream>

namespace perdure::parallel {
namespace {

using base::Status;

template <typename T>
Status bad_field(const char* key, T value, const char* rule) {
  std::ostringstream text;
  text << "cluster." << key << " (" << value << ") must be " << rule;
  return base::invalid_argument(text.str());
}

struct NamedLink {
  const char* rate_key;
  const char* latency_key;
  const LinkSpec& link;
};

}  // namespace

double LinkSpec::transfer_seconds(int64_t bytes) const {
  CHECK_GE(bytes, 0);
  CHECK_GT(bytes_per_second, 0.0);
  return latency_seconds + static_cast<double>(bytes) / bytes_per_second;
}

base::NodeId ClusterSpec::node_of(base::Rank rank) const {
  CHECK_LT(rank.value(), devices());
  return base::NodeId(rank.value() / devices_per_node);
}

const LinkSpec& ClusterSpec::link(base::Rank a, base::Rank b) const {
  return node_of(a) == node_of(b) ? inside_node : between_nodes;
}

Status check_cluster(const ClusterSpec& c) {
  constexpr uint32_t kDevicesMax = 1u << 20;
  if (c.nodes < 1) return bad_field("nodes", c.nodes, "at least 1");
  if (c.devices_per_node < 1) {
    return bad_field("devices_per_node", c.devices_per_node, "at least 1");
  }
  if (c.nodes > kDevicesMax / c.devices_per_node) {
    return bad_field("nodes", c.nodes, "fewer: at most 1048576 devices in all");
  }
  for (const NamedLink& l : std::initializer_list<NamedLink>{
           {"inside_node.bytes_per_second", "inside_node.latency_seconds", c.inside_node},
           {"between_nodes.bytes_per_second", "between_nodes.latency_seconds", c.between_nodes}}) {
    if (!std::isfinite(l.link.bytes_per_second) || l.link.bytes_per_second <= 0.0) {
      return bad_field(l.rate_key, l.link.bytes_per_second, "above 0");
    }
    if (!std::isfinite(l.link.latency_seconds) || l.link.latency_seconds < 0.0) {
      return bad_field(l.latency_key, l.link.latency_seconds, "0 or above");
    }
  }
  if (!std::isfinite(c.device_flops_per_second) || c.device_flops_per_second <= 0.0) {
    return bad_field("device_flops_per_second", c.device_flops_per_second, "above 0");
  }
  if (c.device_memory_bytes < 1) {
    return bad_field("device_memory_bytes", c.device_memory_bytes, "at least 1");
  }
  return Status::ok();
}

}  // namespace perdure::parallel
