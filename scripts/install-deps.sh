#!/usr/bin/env bash
# Installs every package that Perdure builds and runs with, on Debian 12. Safe to run again.
#
#   scripts/install-deps.sh            what the build, the tests and the quickstart need
#   scripts/install-deps.sh --bench    also the peers that bench/ compares with (PyTorch, OpenBLAS, fio)
#
# Needs root, or sudo. Prints one line and does nothing when all is there.
set -euo pipefail

packages=(
  ca-certificates git cmake ninja-build g++ clang lld clang-format python3
  pkg-config
  libboost1.81-dev          # Asio coroutines; 1.74's do not compile with g++ 12 -std=c++20
  libucx-dev ucx-utils      # data plane
  libdnnl-dev               # matrix products
  libxxhash-dev             # digests
  libssl-dev                # HMAC of the handshake
  librocksdb-dev            # the coordinator's journal
  liburing-dev              # checkpoints to disk
  libisal-dev               # parity of checkpoints
  libspdlog-dev libfmt-dev
  libtomlplusplus-dev libcli11-dev nlohmann-json3-dev
  libutf8proc-dev           # Unicode classes for the GPT-2 tokenizer
  libgtest-dev libgmock-dev libbenchmark-dev
  bible-kjv bible-kjv-text  # the text that the quickstart trains on
)
bench_packages=(python3-torch libopenblas-openmp-dev libjemalloc2 fio)

for arg in "$@"; do
  case "$arg" in
    --bench) packages+=("${bench_packages[@]}") ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "install-deps.sh: unknown option '$arg' (try --help)" >&2; exit 2 ;;
  esac
done

if ! command -v apt-get >/dev/null; then
  echo "install-deps.sh: needs apt-get (Debian 12). Install by hand: ${packages[*]}" >&2
  exit 2
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "install-deps: all ${#packages[@]} packages are installed"
  exit 0
fi

run=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install-deps.sh: run as root or install sudo" >&2; exit 2; }
  run=(sudo)
fi
echo "install-deps: installing ${missing[*]}"
"${run[@]}" apt-get update -q
"${run[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -q -y --no-install-recommends "${missing[@]}"
