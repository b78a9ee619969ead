// How long an epoch change takes in its workers: two ranks in one process over UCX on the loopback.
//
//   bench_epoch [small|gpt2] [rounds]

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/posix_clock.h"
#include "kernels/select/make_device.h"
#include "parallel/layer_cost.h"
#include "runtime/transport/ucx_fabric.h"
#include "runtime/worker/epoch_engine.h"

namespace perdure::bench {
namespace {

using runtime::worker::EngineServices;
using runtime::worker::EpochEngine;
using runtime::worker::FabricRequest;
using Addresses = std::vector<runtime::protocol::RankAddress>;

constexpr uint32_t kRanks = 2;

// With a port made ahead, or without.
class UcxMaker final : public runtime::worker::FabricMaker {
 public:
  base::Result<std::unique_ptr<runtime::collective::MeshFabric>> make(
      const FabricRequest& request) override {
    return source_.make({.rank = request.rank, .ranks = request.ranks, .epoch = request.epoch});
  }
  void get_ready(const FabricRequest&) override {
    if (is_ahead) source_.get_ready({});
  }
  bool is_ahead = true;

 private:
  runtime::transport::UcxFabricSource source_;
};

double ms_of(const std::function<void()>& work) {
  static const base::PosixClock clock;
  const base::Nanos begin = clock.now();
  work();
  return base::to_ms(clock.now() - begin);
}

class Bench {
 public:
  explicit Bench(const runtime::protocol::JobText& text) {
    CHECK(runtime::job::load_job(text.toml, text.source, {}, &job_).is_ok());
    model_ = parallel::make_model_spec(job_.model).value();
    for (Rank& rank : ranks_) start(rank, text);
  }

  // One epoch change of both ranks, to the gate; a line with its times.
  void change(const char* what, bool is_ahead) {
    plan_.epoch = plan_.epoch.next();
    runtime::worker::QuietState held[kRanks];
    double load_seconds = 0.0;
    uint64_t bytes = 0;
    const double fence = ms_of([&] {
      each([&](uint32_t r) {
        ranks_[r].maker.is_ahead = is_ahead;
        ranks_[r].engine->abort(base::aborted("bench"));
        held[r] = ranks_[r].engine->leave();
      });
    });
    make_plan(held);
    if (is_ahead) {
      // As while a job trains.
      each([&](uint32_t r) { ranks_[r].maker.get_ready({}); });
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    Addresses addresses(kRanks);
    const double prepare = ms_of([&] {
      each([&](uint32_t r) {
        addresses[r] = {base::Rank(r),
                        ranks_[r].engine->prepare(plan_, base::Rank(r)).value().address};
      });
    });
    const double load = ms_of([&] {
      each([&](uint32_t r) {
        const auto loaded = ranks_[r].engine->load(addresses).value();
        if (r == 1) bytes = loaded.bytes_received;
        if (r == 1) load_seconds = loaded.seconds;
      });
    });
    std::printf("%-28s fence %7.1f ms  prepare %7.1f ms  load %8.1f ms  received %6.1f MB", what,
                fence, prepare, load, static_cast<double>(bytes) * 1e-6);
    if (bytes > 0) std::printf("  (%.2f GB/s)", static_cast<double>(bytes) * 1e-9 / load_seconds);
    std::printf("\n");
  }

  void replace_second(const runtime::protocol::JobText& text) {
    ranks_[1].engine.reset();
    start(ranks_[1], text);
  }

 private:
  struct Rank {
    base::PosixClock clock;
    UcxMaker maker;
    runtime::worker::NoSnapshots snapshots;
    std::unique_ptr<EpochEngine> engine;
  };

  static void start(Rank& rank, const runtime::protocol::JobText& text) {
    rank.engine =
        std::make_unique<EpochEngine>(EngineServices{.clock = rank.clock,
                                                     .fabrics = rank.maker,
                                                     .snapshots = rank.snapshots,
                                                     .make_device = kernels::select::make_device});
    CHECK(rank.engine->open(text).is_ok());
  }

  static void each(const std::function<void(uint32_t)>& work) {
    std::thread other([&] { work(1); });
    work(0);
    other.join();
  }

  // Two pipelines of one stage; rank 0 gives rank 1 what it lacks.
  void make_plan(const runtime::worker::QuietState (&held)[kRanks]) {
    plan_.layout = parallel::make_layout(
                       model_, {.pipelines = kRanks, .micro_batches = job_.batch.micro_batches},
                       parallel::relative_layer_costs(model_))
                       .value();
    plan_.members = {{.worker = base::WorkerId(0)}, {.worker = base::WorkerId(1)}};
    plan_.moves.clear();
    if (held[0].report.has_state == 0) return;
    plan_.source = recovery::StateSource::kSurvivors;
    plan_.resume = held[0].report.committed;
    if (held[1].report.has_state != 0) return;
    for (const auto& t : held[0].report.tensors) {
      plan_.moves.push_back({t.tensor, base::Rank(0), base::Rank(1)});
    }
  }

  runtime::job::JobConfig job_;
  parallel::ModelSpec model_;
  recovery::EpochPlan plan_;
  Rank ranks_[kRanks];
};

int run(const std::string& model, int rounds) {
  const bool is_gpt2 = model == "gpt2";
  runtime::protocol::JobText text{.source = "bench"};
  text.toml = std::string("[model]\nfamily = \"gpt2\"\n") +
              (is_gpt2 ? "layers = 12\nwidth = 768\nheads = 12\nvocabulary = 50257\ncontext = 128\n"
                       : "layers = 4\nwidth = 128\nheads = 4\nvocabulary = 256\ncontext = 64\n") +
              "[data]\nsynthetic_tokens = 4096\n[batch]\nmicro_batches = 2\n";
  Bench bench(text);
  bench.change("from the seed", true);
  for (int i = 0; i < rounds; ++i) bench.change("no moves, port made ahead", true);
  for (int i = 0; i < rounds; ++i) bench.change("no moves, port made then", false);
  bench.replace_second(text);
  bench.change("all moves, fresh process", true);
  return 0;
}

}  // namespace
}  // namespace perdure::bench

int main(int argc, char** argv) {
  return perdure::bench::run(argc > 1 ? argv[1] : "small", argc > 2 ? std::atoi(argv[2]) : 3);
}
