#!/usr/bin/env bash
# From nothing to a training job: installs the packages, builds Perdure, prepares the King James text that Debian
# ships, and trains a Llama-style model on it with 4 workers (2 pipelines of 2 stages).
#
#   scripts/quickstart.sh [--no-install]
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
  "") scripts/install-deps.sh ;;
  --no-install) ;;
  *) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
cores=$(nproc)
jobs=${JOBS:-$((cores < 4 ? cores : 4))}

cmake --preset release
cmake --build build/release -j "$jobs" --target perdure

mkdir -p data
if [ ! -s data/kjv.txt ]; then
  bible -f 'Gen1:1-Rev22:21' > data/kjv.txt.tmp
  mv data/kjv.txt.tmp data/kjv.txt
fi
[ -e data/kjv/dataset.json ] || build/release/perdure data prepare --tokenizer byte data/kjv.txt --out data/kjv
build/release/perdure train examples/kjv.toml --set layout.pipelines=2 --set layout.stages=2 --out runs/quickstart
