#pragma once
// The fault points of an epoch change in a worker (base/fault_point.h). base::fault_time.epoch is
// the epoch that is being made. All are on the engine thread.

#include <string_view>

namespace perdure::runtime::worker {

// The old epoch is aborted, nothing is cleaned up yet.
inline constexpr std::string_view kEpochFence = "epoch.fence";
// Told to bring back older state; nothing is dropped or read yet.
inline constexpr std::string_view kEpochRestore = "epoch.restore";
// Of a step: a snapshot is being taken, the one that was in its place is gone.
inline constexpr std::string_view kStepSnapshot = "step.snapshot";
// It is complete.
inline constexpr std::string_view kStepKept = "step.kept";
// Before communicators are made. Can fail.
inline constexpr std::string_view kEpochPrepare = "epoch.prepare";
// Communicators are connected, no tensor has moved: on every member, also when nothing will move.
// Can fail.
inline constexpr std::string_view kEpochTransfer = "epoch.transfer";
// On a rank that sends tensors, before its first chunk. Can fail.
inline constexpr std::string_view kEpochServe = "epoch.serve";
// Each chunk on its source, after its checksum was taken. Its bytes may be changed.
inline constexpr std::string_view kEpochChunk = "epoch.chunk";
// All is loaded, the coordinator has not been told. Can fail.
inline constexpr std::string_view kEpochGate = "epoch.gate";
// Told to train, before the first step.
inline constexpr std::string_view kEpochGo = "epoch.go";

}  // namespace perdure::runtime::worker
