#pragma once

namespace perdure::chaos {

// What dies with a simulated host.
enum class Crash {
  kProcess,  // memory; the kernel lives on: connections are closed, written files stay
  kPower,    // also what was not synced; peers hear nothing
};

}  // namespace perdure::chaos
