#!/usr/bin/env bash
# Installs what is needed, builds Perdure, and runs its tests.
#
#   scripts/test.sh               all tests but the slow ones
#   scripts/test.sh --slow        the slow ones too (training runs of minutes, two network namespaces)
#   scripts/test.sh --long        all, also 200 faults in one run (minutes)
#   scripts/test.sh --no-install  with what is installed
#
# Build folder: build/ci. Jobs at a time: JOBS (default: the number of cores, at most 4).
set -euo pipefail
cd "$(dirname "$0")/.."

install=yes
labels=(-LE "slow|long")
for arg in "$@"; do
  case "$arg" in
    --slow) labels=(-LE long) ;;
    --long) labels=() ;;
    --no-install) install=no ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "test.sh: unknown option '$arg' (try --help)" >&2; exit 2 ;;
  esac
done
cores=$(nproc)
jobs=${JOBS:-$((cores < 4 ? cores : 4))}

[ "$install" = no ] || scripts/install-deps.sh
cmake --preset ci
cmake --build build/ci -j "$jobs"
# One test at a time: many of them start several processes or threads of their own.
ctest --test-dir build/ci --output-on-failure "${labels[@]}"
