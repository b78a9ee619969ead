#pragma once
// The fields of the values that travel, listed for runtime/rpc/wire.h, which reads and writes them.

#include "parallel/layout_fields.h"
#include "recovery/epoch_types.h"

namespace perdure::recovery {

template <typename V>
void visit_fields(V& v, CommittedState& m) {
  v(m.step, m.samples_consumed, m.applied_steps, m.calibrated, m.skipped_in_a_row);
}
template <typename V>
void visit_fields(V& v, TensorDigest& m) {
  v(m.tensor, m.digest);
}
template <typename V>
void visit_fields(V& v, VoteId& m) {
  v(m.epoch, m.attempt);
}
template <typename V>
void visit_fields(V& v, StateOffer& m) {
  v(m.tier, m.committed, m.tensors);
}
template <typename V>
void visit_fields(V& v, StateReport& m) {
  v(m.has_state, m.committed, m.vote, m.pending, m.tensors, m.offers);
}
template <typename V>
void visit_fields(V& v, VoteValue& m) {
  v(m.step, m.id, m.words);
}
template <typename V>
void visit_fields(V& v, PlanMember& m) {
  v(m.worker, m.incarnation, m.node);
}
template <typename V>
void visit_fields(V& v, EpochPlan& m) {
  v(m.epoch, m.source, m.resume, m.layout, m.members, m.moves);
}

}  // namespace perdure::recovery
