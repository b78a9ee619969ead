#include "kernels/cpu/thread_pool.h"

#include <array>
#include <atomic>
#include <thread>

#include "base/random.h"
#include "tests/testing/matchers.h"

namespace perdure::kernels::cpu {
namespace {

// Short jobs of changing size, one right after the other: a thread that is late for one job must
// neither take a piece of it nor of the next. Each piece runs exactly once, and before run()
// returns.
void run_many_jobs(int threads, int jobs, uint64_t seed) {
  ThreadPool pool(threads, [] {});
  base::SeededRandom random(seed);
  std::array<std::atomic<int>, 16> runs{};
  for (int job = 0; job < jobs; ++job) {
    const auto pieces = static_cast<int64_t>(1 + random.uniform_int(12));
    for (auto& count : runs) count.store(0, std::memory_order_relaxed);
    pool.run(pieces, [&](int64_t piece, int thread) {
      ASSERT_TRUE(piece >= 0 && piece < pieces && thread >= 0 && thread < threads);
      runs[static_cast<size_t>(piece)].fetch_add(1, std::memory_order_relaxed);
    });
    for (int64_t piece = 0; piece < 16; ++piece) {
      ASSERT_EQ(runs[static_cast<size_t>(piece)].load(), piece < pieces ? 1 : 0)
          << "job " << job << " of " << pieces << " pieces, piece " << piece;
    }
  }
}

TEST(ThreadPoolTest, EachPieceRunsOnceWhateverComesNext) {
  run_many_jobs(2, 300'000, ::perdure::testing::test_seed());
  run_many_jobs(4, 100'000, ::perdure::testing::test_seed() + 1);
}

TEST(ThreadPoolTest, SurvivesABusyMachine) {
  std::atomic<bool> stop{false};
  std::thread others[2];
  for (std::thread& t : others) {
    t = std::thread([&] {
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
  }
  run_many_jobs(3, 20'000, ::perdure::testing::test_seed() + 2);
  stop.store(true);
  for (std::thread& t : others) t.join();
}

TEST(ThreadPoolTest, NoPiecesIsNoWork) {
  ThreadPool pool(2, [] {});
  pool.run(0, [](int64_t, int) { FAIL(); });
}

}  // namespace
}  // namespace perdure::kernels::cpu
