#pragma once
// The payloads of the journal's records that are not values of other folders
// (docs/formats/journal.md).

#include <cstdint>
#include <string>

#include "base/ids.h"

namespace perdure::runtime::coordinator {

struct JobRecord {
  std::string job_id;
  uint64_t fingerprint = 0;  // of the job's text
  template <typename V>
  void visit(V& v) {
    v(job_id, fingerprint);
  }
};

struct NodeRecord {
  base::NodeId node;
  base::Incarnation incarnation;
  uint64_t born = 0;
  template <typename V>
  void visit(V& v) {
    v(node, incarnation, born);
  }
};

}  // namespace perdure::runtime::coordinator
