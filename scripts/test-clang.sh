#!/usr/bin/env bash
# Builds the bottom layers with clang++ and runs what must give the same bits there: the random numbers and the trace of
# the simulated world, whose expected hashes are constants of the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

cores=$(nproc)
jobs=${JOBS:-$((cores < 4 ? cores : 4))}
tests=(base_test chaos_test sim_heartbeat_test)
cmake --preset clang
cmake --build build/clang -j "$jobs" --target "${tests[@]}"
for test in "${tests[@]}"; do
  find build/clang/tests -type f -name "$test" -exec {} \;
done
