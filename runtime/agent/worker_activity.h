#pragma once
// What a worker is doing, as the messages tell that pass its agent. Pure.

#include "runtime/protocol/node_messages.h"

namespace perdure::runtime::agent {

// A message of the coordinator (or of the agent itself: Fence) goes to the worker. One of an epoch
// that is older than the worker's newest changes nothing.
void note_sent(protocol::WorkerInfo& info, protocol::MessageType type, base::Epoch epoch);
// A message of the worker came.
void note_received(protocol::WorkerInfo& info, protocol::MessageType type, base::Epoch epoch);

// The two directions of worker messages.
bool goes_to_workers(protocol::MessageType type);
bool comes_from_workers(protocol::MessageType type);

}  // namespace perdure::runtime::agent
