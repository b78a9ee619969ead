#!/usr/bin/env bash
# Runs the unit and simulation tests under AddressSanitizer + UBSan, and the threaded parts under ThreadSanitizer.
#
#   scripts/test-sanitized.sh [asan|tsan]     default: both
set -euo pipefail
cd "$(dirname "$0")/.."

cores=$(nproc)
jobs=${JOBS:-$((cores < 4 ? cores : 4))}
# OpenMP inside oneDNN and UCX's own threads are not built with ThreadSanitizer, so it sees no order between them.
threaded_tests=(base_test collective_test engine_test)

asan() {
  cmake --preset asan
  cmake --build build/asan -j "$jobs" --target unit_and_sim_tests
  # Of the op conformance suite only the instruction set that this machine uses best: the others are the same source.
  ctest --test-dir build/asan --output-on-failure -L 'unit|sim' -LE slow -E kernels_conformance
  build/asan/tests/kernels/kernels_conformance_test --gtest_filter='*best'
}

tsan() {
  cmake --preset tsan
  cmake --build build/tsan -j "$jobs" --target "${threaded_tests[@]}"
  for test in "${threaded_tests[@]}"; do
    find build/tsan/tests -type f -name "$test" -exec {} \;
  done
}

case "${1:-both}" in
  asan) asan ;;
  tsan) tsan ;;
  both) asan; tsan ;;
  *) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
