#include "runtime/engine/stage_executor.h"

#include "parallel/sample_mark.h"

namespace perdure::runtime::engine {
namespace {

using collective::Channel;
using kernels::Tensor;
using parallel::Action;
using parallel::Activation;
using parallel::Instruction;

std::span<std::byte> bytes_of(const Tensor& t) {
  CHECK(t.is_dense());
  return {static_cast<std::byte*>(t.data()),
          static_cast<size_t>(t.elements()) * kernels::size_bytes(t.dtype())};
}

std::span<int32_t> tokens_of(const Tensor& t) {
  return {t.as<int32_t>(), static_cast<size_t>(t.elements())};
}

}  // namespace

StageExecutor::StageExecutor(const ExecutorContext& context) : c_(context) {
  for (uint32_t l = c_.place.layer_begin; l < c_.place.layer_end; ++l) {
    layers_.push_back(make_layer(c_.layers, base::LayerId(l)));
  }
  traffic_.resize(c_.memory.slots());
}

base::Status StageExecutor::run(const Instruction& i) {
  const uint32_t last = c_.place.layer_end - 1;
  switch (i.action) {
    case Action::kForward:
      if (c_.topology.is_first()) RETURN_IF_ERROR(free_slot(i.slot));
      forward(i);
      return base::Status::ok();
    case Action::kBackward:
      backward_input(i);
      backward_weight(i);
      return base::Status::ok();
    case Action::kBackwardInput:
      backward_input(i);
      return base::Status::ok();
    case Action::kBackwardWeight:
      backward_weight(i);
      return base::Status::ok();
    case Action::kReceiveActivation:
      RETURN_IF_ERROR(free_slot(i.slot));
      return receive(*c_.topology.previous, Channel::kActivation, i, c_.memory.stage_input(i.slot));
    case Action::kSendActivation:
      return send(*c_.topology.next, Channel::kActivation, i, c_.memory.output(i.slot, last),
                  traffic_[i.slot].activation);
    case Action::kReceiveGradient:
      return receive(*c_.topology.next, Channel::kGradient, i, c_.memory.boundary(i.slot).residual);
    case Action::kSendGradient:
      return send(*c_.topology.previous, Channel::kGradient, i, c_.memory.boundary(i.slot).residual,
                  traffic_[i.slot].gradient);
    case Action::kReduce:
    case Action::kVote:
    case Action::kApply:
      break;
  }
  CHECK(false) << "not an instruction of the executor: " << parallel::to_string(i);
  return base::Status::ok();
}

LayerCall StageExecutor::call(const Instruction& i, uint32_t layer) const {
  return {.activations = c_.memory.activations(i.slot, layer),
          .boundary = c_.memory.boundary(i.slot),
          .output = c_.memory.output(i.slot, layer),
          .loss = c_.memory.loss(i.micro_batch.value() - info_.micro_batch_begin)};
}

// The first stage needs the tokens, the last the targets.
void StageExecutor::load(const Instruction& i) {
  if (!c_.topology.is_first() && !c_.topology.is_last()) return;
  const Boundary& boundary = c_.memory.boundary(i.slot);
  const auto samples = static_cast<uint64_t>(c_.layers.batch.micro_batch);
  const uint64_t first = info_.first_sample + i.micro_batch.value() * samples;
  info_.source->fill(first, c_.layers.batch.micro_batch, tokens_of(boundary.tokens),
                     tokens_of(boundary.targets));
  if (c_.topology.is_first()) sample_sum_ += parallel::sample_marks(first, samples);
}

void StageExecutor::forward(const Instruction& i) {
  load(i);
  for (size_t l = 0; l < layers_.size(); ++l) {
    layers_[l]->forward(call(i, c_.place.layer_begin + static_cast<uint32_t>(l)));
  }
}

void StageExecutor::loss_only(const Instruction& i) {
  CHECK(is_last());
  layers_.back()->loss_only(call(i, c_.place.layer_end - 1));
}

// When backward is fused, both halves of a layer run before the next layer, so that one set of
// activation gradients serves all layers; backward_weight then has nothing left to do.
void StageExecutor::backward_input(const Instruction& i) {
  for (size_t l = layers_.size(); l-- > 0;) {
    const uint32_t layer = c_.place.layer_begin + static_cast<uint32_t>(l);
    const ActivationGradSet& grads = c_.memory.grads(i.slot, layer);
    layers_[l]->backward_input(call(i, layer), grads);
    if (i.action == Action::kBackward) layers_[l]->backward_weight(call(i, layer), grads);
  }
}

void StageExecutor::backward_weight(const Instruction& i) {
  if (i.action == Action::kBackwardWeight) {
    for (size_t l = layers_.size(); l-- > 0;) {
      const uint32_t layer = c_.place.layer_begin + static_cast<uint32_t>(l);
      layers_[l]->backward_weight(call(i, layer), c_.memory.grads(i.slot, layer));
    }
  }
  c_.router.finish_micro_batch(c_.layers.ops, c_.layers.stream, i.micro_batch);
}

base::Status StageExecutor::free_slot(uint32_t slot) {
  for (std::optional<collective::Ticket>* ticket :
       {&traffic_[slot].activation, &traffic_[slot].gradient}) {
    if (!ticket->has_value()) continue;
    const base::Status status = c_.fabric.wait(**ticket, c_.timeout);
    ticket->reset();
    RETURN_IF_ERROR(status);
  }
  return base::Status::ok();
}

base::Status StageExecutor::finish() {
  base::Status result;
  for (uint32_t slot = 0; slot < traffic_.size(); ++slot) {
    for (int side = 0; side < 2; ++side) {  // a failed wait must not leave the other ticket open
      const base::Status status = free_slot(slot);
      if (result.is_ok()) result = status;
    }
  }
  return result;
}

base::Status StageExecutor::send(base::Rank to, Channel channel, const Instruction& i,
                                 const Tensor& from, std::optional<collective::Ticket>& ticket) {
  // On a device that computes asynchronously the result must be there before it leaves.
  RETURN_IF_ERROR(c_.layers.stream.synchronize());
  const collective::Tag tag{channel, info_.step, info_.tag_offset + i.micro_batch.value()};
  ticket = c_.fabric.post_send(to, tag, bytes_of(from));
  return base::Status::ok();
}

base::Status StageExecutor::receive(base::Rank from, Channel channel, const Instruction& i,
                                    const Tensor& into) {
  const collective::Ticket ticket = c_.fabric.post_receive(
      from, {channel, info_.step, info_.tag_offset + i.micro_batch.value()}, bytes_of(into));
  return c_.fabric.wait(ticket, c_.timeout);
}

}  // namespace perdure::runtime::engine
