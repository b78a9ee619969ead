#!/usr/bin/env bash
# From nothing to a job that survives: installs the packages, builds Perdure, prepares the King James text that Debian
# ships, and trains a Llama-style model on it with 4 workers on 4 nodes (2 pipelines of 2 stages), first undisturbed, then
# with a worker killed at step 20, a node killed at step 40 and brought back at step 60. Both runs must end with the same
# bits after every step.
#
#   scripts/quickstart.sh [--no-install]
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
  "") scripts/install-deps.sh ;;
  --no-install) ;;
  *) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2 ;;
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

train=(build/release/perdure train examples/kjv.toml --set run.steps=400 --set layout.pipelines=2 --set layout.stages=2
       --nodes 4)
echo "== undisturbed"
"${train[@]}" --out runs/undisturbed
echo "== a worker dies at step 20, a node at step 40; the node comes back at step 60"
"${train[@]}" --out runs/quickstart \
  --fault "at=step:20,phase=reduce target=worker:2 do=kill" \
  --fault "at=step:40 target=node:3 do=kill" \
  --fault "at=step:60 target=node:3 do=start"
if cmp -s runs/undisturbed/digests.csv runs/quickstart/digests.csv; then
  echo "identical to the undisturbed run: yes ($(($(wc -l < runs/quickstart/digests.csv) - 1)) digests)"
else
  echo "identical to the undisturbed run: NO (compare runs/undisturbed/digests.csv and runs/quickstart/digests.csv)"
  exit 1
fi
