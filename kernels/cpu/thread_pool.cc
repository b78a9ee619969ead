#include "kernels/cpu/thread_pool.h"

#include <limits>

#include "base/check.h"

namespace perdure::kernels::cpu {
namespace {

// About 10 us: longer than the gap between two ops, shorter than what a sleeping rank would miss.
constexpr int kSpins = 300;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads, const std::function<void()>& on_start) {
  CHECK_GE(threads, 1);
  workers_.reserve(static_cast<size_t>(threads - 1));
  for (int i = 1; i < threads; ++i) {
    workers_.emplace_back([this, i, on_start] { work(i, on_start); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  wake_.fetch_add(1);
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_job(int64_t pieces, Call call, void* context) {
  CHECK(pieces >= 0 && pieces < std::numeric_limits<int32_t>::max()) << pieces << " pieces";
  if (pieces == 0) return;
  if (pieces == 1 || workers_.empty()) {
    for (int64_t piece = 0; piece < pieces; ++piece) call(context, piece, 0);
    return;
  }
  call_.store(call, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  pieces_.store(pieces, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  const uint32_t job = static_cast<uint32_t>(claim_.load(std::memory_order_relaxed) >> 32) + 1;
  claim_.store(uint64_t{job} << 32 | static_cast<uint64_t>(pieces), std::memory_order_release);
  wake_.store(job, std::memory_order_seq_cst);
  wake_.notify_all();

  take_pieces(job, 0);
  const auto all = static_cast<uint32_t>(pieces);
  for (int spin = 0;;) {
    const uint32_t done = done_.load(std::memory_order_acquire);
    if (done == all) return;
    if (++spin < kSpins) {
      pause();
    } else {
      done_.wait(done, std::memory_order_acquire);
    }
  }
}

void ThreadPool::take_pieces(uint32_t job, int thread) {
  uint64_t word = claim_.load(std::memory_order_acquire);
  for (;;) {
    const auto left = static_cast<int64_t>(word & 0xffffffffu);
    if (static_cast<uint32_t>(word >> 32) != job || left == 0) return;
    if (!claim_.compare_exchange_weak(word, word - 1, std::memory_order_acq_rel)) continue;
    // From here to done_ the job cannot end, so what is read of it is of this job.
    const int64_t pieces = pieces_.load(std::memory_order_relaxed);
    const Call call = call_.load(std::memory_order_relaxed);
    call(context_.load(std::memory_order_relaxed), pieces - left, thread);
    const uint32_t done = done_.fetch_add(1, std::memory_order_acq_rel) + 1;
    if (done == static_cast<uint32_t>(pieces) && thread != 0) done_.notify_all();
    word = claim_.load(std::memory_order_acquire);
  }
}

void ThreadPool::work(int thread, const std::function<void()>& on_start) {
  on_start();
  uint32_t seen = 0;
  for (;;) {
    uint32_t job = wake_.load(std::memory_order_acquire);
    for (int spin = 0; job == seen && spin < kSpins; ++spin) {
      pause();
      job = wake_.load(std::memory_order_acquire);
    }
    if (job == seen) {
      wake_.wait(seen, std::memory_order_acquire);
      continue;
    }
    if (stopping_.load()) return;
    seen = job;
    take_pieces(job, thread);
  }
}

}  // namespace perdure::kernels::cpu
