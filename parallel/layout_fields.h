#pragma once
// The fields of the values that travel, listed for runtime/rpc/wire.h, which reads and writes them.

#include "parallel/layout.h"
#include "parallel/layout_runs.h"
#include "parallel/transfer_plan.h"

namespace perdure::parallel {

template <typename V>
void visit_fields(V& v, TensorMove& m) {
  v(m.tensor, m.from, m.to);
}
template <typename V>
void visit_fields(V& v, StagePlace& m) {
  v(m.rank, m.layer_begin, m.layer_end);
}
template <typename V>
void visit_fields(V& v, PipelinePlace& m) {
  v(m.stages, m.micro_batch_begin, m.micro_batch_end);
}
template <typename V>
void visit_fields(V& v, PipelineRun& m) {
  v(m.first, m.count);
}
template <typename V>
void visit_fields(V& v, LayoutRuns& m) {
  v(m.runs);
}

// Travels as its runs.
template <typename V>
void visit_fields(V& v, Layout& m) {
  if constexpr (requires { V::kWrites; }) {
    v(runs_of(m.pipelines), m.micro_batches);
  } else if constexpr (requires { v.status(); }) {  // reads
    LayoutRuns runs;
    v(runs, m.micro_batches);
    if (v.status().is_ok()) m.pipelines = pipelines_of(runs);
  } else {
    v(m.pipelines, m.micro_batches);
  }
}

}  // namespace perdure::parallel
