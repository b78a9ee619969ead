// What a save and a load cost, one JSON object per line. checkpoint_bench.py runs it between runs
// of fio and prints ratios.
//
//   bench_checkpoint memory                    copies, hashes, parity: each beside memcpy
//   bench_checkpoint write --file F --gib 2    one file; a recycled one when F is there
//   bench_checkpoint read --file F --gib 2

#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/hash.h"
#include "base/random.h"
#include "checkpoint/block_files.h"
#include "checkpoint/copy_and_hash.h"
#include "checkpoint/manifest.h"
#include "checkpoint/parity/reed_solomon.h"

namespace perdure::bench {
namespace {

using namespace base::literals;

constexpr int kRounds = 9;

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu_seconds() {
  rusage usage = {};
  CHECK_EQ(::getrusage(RUSAGE_SELF, &usage), 0);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Contender {
  std::string name;
  double bytes = 0;
  std::function<void()> run;
  std::vector<double> seconds = {};
};

// In turns, so that what else the machine does strikes all alike. `ratio`: median time of each
// beside that of the first.
void race(std::vector<Contender> contenders) {
  for (int round = 0; round <= kRounds; ++round) {
    for (Contender& c : contenders) {
      const double begin = now_seconds();
      c.run();
      if (round > 0) c.seconds.push_back(now_seconds() - begin);
    }
  }
  double first = 0;
  for (Contender& c : contenders) {
    std::sort(c.seconds.begin(), c.seconds.end());
    const double median = c.seconds[c.seconds.size() / 2] / c.bytes;
    if (first == 0) first = median;
    std::printf("{\"name\": \"%s\", \"gbytes_per_s\": %.2f, \"best\": %.2f, \"ratio\": %.3f}\n",
                c.name.c_str(), 1e-9 / median, 1e-9 * c.bytes / c.seconds[0], median / first);
  }
  std::fflush(stdout);
}

base::MutableByteSpan filled(base::Arena& arena, size_t bytes) {
  const base::MutableByteSpan memory = arena.allocate(bytes, 4096).value();
  base::SeededRandom random(1);
  const uint64_t add = random.next_u64() | 1;
  uint64_t word = random.next_u64();
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    word = word * 6364136223846793005u + add;
    std::memcpy(memory.data() + i, &word, 8);
  }
  return memory;
}

void bench_copies(base::MutableByteSpan from, base::MutableByteSpan to) {
  const double bytes = static_cast<double>(from.size());
  std::vector<uint64_t> hashes(from.size() / checkpoint::kPieceBytes);
  const auto hash_pieces = [&](base::ByteSpan memory) {
    for (size_t i = 0; i < hashes.size(); ++i) {
      hashes[i] =
          base::hash64(memory.subspan(i * checkpoint::kPieceBytes, checkpoint::kPieceBytes));
    }
  };
  race(
      {{"memcpy", bytes, [&] { std::memcpy(to.data(), from.data(), from.size()); }},
       {"copy_and_hash", bytes, [&] { checkpoint::copy_and_hash(from, to.data(), hashes.data()); }},
       {"memcpy, then hash", bytes,
        [&] {
          std::memcpy(to.data(), from.data(), from.size());
          hash_pieces(to);
        }},
       {"hash", bytes, [&] { hash_pieces(from); }}});
}

// Rates count the bytes of the data stripes.
void bench_parity(base::MutableByteSpan data, base::MutableByteSpan rest, uint32_t k, uint32_t p) {
  using checkpoint::parity::LostStripe;
  using checkpoint::parity::ReedSolomon;
  const ReedSolomon code = ReedSolomon::create({.data = k, .parity = p}).value();
  const size_t length = data.size() / k;
  std::vector<base::ByteSpan> stripes;
  for (uint32_t i = 0; i < k; ++i) stripes.push_back(data.subspan(i * length, length));
  std::vector<base::MutableByteSpan> parity;
  std::vector<LostStripe> lost;
  for (uint32_t i = 0; i < p; ++i) {
    parity.push_back(rest.subspan(i * length, length));
    lost.push_back({.index = i, .to = rest.subspan((p + i) * length, length)});
  }
  const std::vector<base::ByteSpan> of_data = stripes;
  stripes.insert(stripes.end(), parity.begin(), parity.end());
  const std::string name = std::to_string(k) + "+" + std::to_string(p);
  const double bytes = static_cast<double>(data.size());
  race({{"memcpy", bytes, [&] { std::memcpy(rest.data(), data.data(), data.size()); }},
        {"parity " + name, bytes, [&] { CHECK(code.encode(of_data, parity).is_ok()); }},
        {"rebuild " + name, bytes, [&] { CHECK(code.rebuild(stripes, lost).is_ok()); }}});
  for (uint32_t i = 0; i < p; ++i) {
    CHECK_EQ(std::memcmp(lost[i].to.data(), of_data[i].data(), length), 0);
  }
}

void bench_memory() {
  base::Arena arena = base::Arena::create(1_GiB + 16_MiB).value();
  const base::MutableByteSpan from = filled(arena, 512_MiB), to = filled(arena, 512_MiB);
  bench_copies(from, to);
  for (const uint32_t k : {4, 8}) {
    for (const uint32_t p : {1, 2}) bench_parity(from, to, k, p);
  }
}

struct DiskOptions {
  std::string file;
  size_t gib = 2;
  size_t block_mib = 0;  // 0: as the product does
  size_t in_flight = 0;
  bool blocking = false;
};

int bench_disk(const DiskOptions& options, bool write) {
  checkpoint::BlockOptions block_options;
  if (options.block_mib > 0) block_options.block_bytes = options.block_mib << 20;
  if (options.in_flight > 0) block_options.blocks_in_flight = options.in_flight;
  const auto files = options.blocking ? checkpoint::make_blocking_files(block_options)
                                      : checkpoint::make_block_files(block_options);
  const size_t bytes = options.gib << 30;
  base::Arena arena = base::Arena::create(bytes + 4_MiB).value();
  const base::MutableByteSpan image = filled(arena, bytes);
  const checkpoint::ReadRange all = {.offset = 0, .to = image};
  const double begin = now_seconds(), cpu_begin = cpu_seconds();
  const base::Status status =
      write ? files->write({.path = options.file, .image = image, .file_bytes = bytes})
            : files->read(options.file, {&all, 1}, nullptr);
  const double seconds = now_seconds() - begin, cpu = cpu_seconds() - cpu_begin;
  if (!status.is_ok()) {
    std::fprintf(stderr, "bench_checkpoint: %s\n", status.to_string().c_str());
    return 1;
  }
  std::printf("{\"name\": \"%s\", \"gbytes_per_s\": %.3f, \"cores\": %.3f, \"mode\": \"%s\"}\n",
              write ? "write" : "read", static_cast<double>(bytes) * 1e-9 / seconds, cpu / seconds,
              files->mode().c_str());
  return 0;
}

}  // namespace
}  // namespace perdure::bench

int main(int argc, char** argv) {
  CLI::App app("Checkpoints: copies, hashes, parity, files.");
  app.require_subcommand(1);
  perdure::bench::DiskOptions options;
  CLI::App* memory = app.add_subcommand("memory", "copies, hashes and parity beside memcpy");
  CLI::App* write = app.add_subcommand("write", "one file, in place when it is there");
  CLI::App* read = app.add_subcommand("read", "one file, whole");
  for (CLI::App* disk : {write, read}) {
    disk->add_option("--file", options.file)->required();
    disk->add_option("--gib", options.gib);
    disk->add_option("--block-mib", options.block_mib);
    disk->add_option("--in-flight", options.in_flight);
    disk->add_flag("--blocking", options.blocking, "without io_uring");
  }
  CLI11_PARSE(app, argc, argv);
  if (memory->parsed()) {
    perdure::bench::bench_memory();
    return 0;
  }
  return perdure::bench::bench_disk(options, write->parsed());
}
