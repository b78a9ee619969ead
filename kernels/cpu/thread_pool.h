#pragma once
// ThreadPool: runs the pieces of one op on a few threads, without barriers.
//
// Pieces are claimed one by one from a shared counter, so a thread that the system has put aside
// (other ranks share the cores) delays only the piece that it holds: the caller takes part and
// finishes the rest. A fork-join barrier, as OpenMP has, would wait for every thread each time,
// working or not.
//
//   one 64-bit word:  [ job number : 32 | pieces left : 32 ]
//   claim = compare-and-swap that takes 1 off while some are left. All that a claim depends on is
//   in the word, so a thread that wakes late for an old job finds none left, or another job's
//   number; what the job is (function, context, size) is read after the claim, when the job cannot
//   end.
//
// Which thread runs a piece is not fixed; what a piece computes must not depend on it. Nothing is
// allocated after construction. One thread at a time calls run(). The destructor stops and joins
// the threads.

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace perdure::kernels::cpu {

class ThreadPool {
 public:
  // `on_start` runs once in each thread that the pool makes.
  ThreadPool(int threads, const std::function<void()>& on_start);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls f(piece, thread) for each piece in [0, pieces); thread in [0, threads()), the caller is
  // 0.
  template <typename Fn>
  void run(int64_t pieces, Fn&& f) {
    using Function = std::remove_reference_t<Fn>;
    run_job(
        pieces,
        [](void* context, int64_t piece, int thread) {
          (*static_cast<Function*>(context))(piece, thread);
        },
        const_cast<void*>(static_cast<const void*>(&f)));
  }

 private:
  using Call = void (*)(void* context, int64_t piece, int thread);

  void run_job(int64_t pieces, Call call, void* context);
  void work(int thread, const std::function<void()>& on_start);
  void take_pieces(uint32_t job, int thread);

  // The job. Written only while no piece is out, read only by who holds a piece.
  std::atomic<Call> call_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<int64_t> pieces_{0};

  alignas(64) std::atomic<uint64_t> claim_{0};
  alignas(64) std::atomic<uint32_t> done_{0};
  alignas(64) std::atomic<uint32_t> wake_{0};  // the job number, for sleepers
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace perdure::kernels::cpu
