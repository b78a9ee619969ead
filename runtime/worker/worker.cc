#include "runtime/worker/worker.h"

#include "base/log.h"

namespace perdure::runtime::worker {
namespace {

constexpr base::Nanos kConnectTimeout = std::chrono::seconds(10);
constexpr base::Nanos kMessageTimeout = std::chrono::seconds(10);
constexpr base::Nanos kStartTimeout =
    std::chrono::seconds(120);  // the slowest worker's preparation
constexpr collective::Timeout kMeshTimeout{30000};
constexpr size_t kOutgoingMax = 4096;

}  // namespace

// Called on the engine thread; hands the reports to the component.
class Worker::Reporter : public TrainListener {
 public:
  explicit Reporter(Worker& worker) : worker_(worker) {}
  void on_step(const rpc::StepReport& report) override {
    post(rpc::StepReport::kType, report.encode());
  }
  void on_evaluation(const rpc::EvaluationReport& report) override {
    post(rpc::EvaluationReport::kType, report.encode());
  }

 private:
  void post(rpc::MessageType type, rpc::Payload payload) {
    // Not `this`: the last reports run after the engine thread, and with it the reporter, has
    // ended.
    base::post(worker_.services_.executor,
               [worker = &worker_, type, payload = std::move(payload)]() mutable {
                 const base::Status queued = worker->outgoing_.try_push({type, std::move(payload)});
                 if (!queued.is_ok())
                   LOG_WARNING("worker", "report dropped", KV("why", queued.to_string()));
               });
  }
  Worker& worker_;
};

Worker::Worker(const WorkerOptions& options, const WorkerServices& services)
    : options_(options), services_(services), outgoing_(kOutgoingMax, services.clock) {}

// Not a coroutine, and never given a temporary: g++ 12 destroys an aggregate made inside a co_await
// expression twice.
template <typename Message>
base::Task<base::Status> Worker::send(const Message& message) {
  return channel_->send(static_cast<uint16_t>(Message::kType), message.encode(),
                        services_.clock.now() + kMessageTimeout);
}

base::Task<base::Result<rpc::Frame>> Worker::expect(rpc::MessageType type, base::Nanos deadline) {
  CO_ASSIGN_OR_RETURN(rpc::Frame frame, co_await channel_->receive(deadline));
  if (frame.type != static_cast<uint16_t>(type)) {
    co_return base::data_loss("message of type " + std::to_string(frame.type) + " where " +
                              std::to_string(static_cast<int>(type)) + " was expected");
  }
  co_return frame;
}

base::Task<base::Status> Worker::run() {
  base::Status status = co_await join();
  if (status.is_ok()) {
    status = co_await prepare();
    if (status.is_ok()) status = co_await train();
    if (!status.is_ok()) {
      // Best effort: without it the coordinator still sees the process end.
      const rpc::Failed failed{.code = static_cast<uint32_t>(status.code()),
                               .text = status.message()};
      const base::Status told = co_await send(failed);
      if (!told.is_ok()) LOG_WARNING("worker", "failure not reported", KV("why", told.to_string()));
    }
  }
  outgoing_.close();
  if (channel_ != nullptr) channel_->close();
  co_await gate_.close();
  if (fabric_ != nullptr) fabric_->close();
  co_return status;
}

base::Task<base::Status> Worker::join() {
  CO_ASSIGN_OR_RETURN(auto channel,
                      co_await services_.network.connect(options_.coordinator,
                                                         services_.clock.now() + kConnectTimeout));
  channel_ = std::make_unique<rpc::MessageChannel>(std::move(channel));
  const rpc::Hello hello{
      .job_token = options_.job_token, .worker = options_.worker, .pid = options_.pid};
  CO_RETURN_IF_ERROR(co_await send(hello));
  CO_ASSIGN_OR_RETURN(
      const rpc::Frame frame,
      co_await expect(rpc::MessageType::kAssignment, services_.clock.now() + kMessageTimeout));
  CO_ASSIGN_OR_RETURN(assignment_, rpc::Assignment::decode(frame.payload));
  co_return base::Status::ok();
}

// Everything that can fail alone is done before Ready, so that a job starts whole or not at all.
base::Task<base::Status> Worker::prepare() {
  TrainerOptions options{.rank = assignment_.rank};
  CO_RETURN_IF_ERROR(job::load_job(assignment_.job_toml, assignment_.job_source,
                                   assignment_.overrides, &options.job));
  if (options.job.layout.ranks() != assignment_.ranks) {
    co_return base::invalid_argument("assignment for " + std::to_string(assignment_.ranks) +
                                     " ranks, the job has " +
                                     std::to_string(options.job.layout.ranks()));
  }
  CO_ASSIGN_OR_RETURN(options.plan, job::make_job_plan(options.job));
  CO_ASSIGN_OR_RETURN(device_, services_.make_device(options.job.run.device,
                                                     {.threads = options.job.layout.threads}));
  CO_ASSIGN_OR_RETURN(fabric_, services_.make_fabric({.rank = assignment_.rank,
                                                      .ranks = assignment_.ranks,
                                                      .epoch = assignment_.epoch,
                                                      .transport = options.job.run.transport}));
  const uint64_t planned_bytes = planned_memory(options, *device_).total();
  CO_ASSIGN_OR_RETURN(trainer_,
                      Trainer::create(std::move(options), *device_, *fabric_, services_.clock));
  LOG_INFO("worker", "ready", KV("rank", assignment_.rank), KV("device", device_->description()));
  const rpc::Ready ready{.address = fabric_->address(),
                         .device = device_->description(),
                         .planned_bytes = planned_bytes};
  CO_RETURN_IF_ERROR(co_await send(ready));
  CO_ASSIGN_OR_RETURN(
      const rpc::Frame frame,
      co_await expect(rpc::MessageType::kStart, services_.clock.now() + kStartTimeout));
  CO_ASSIGN_OR_RETURN(const rpc::Start start, rpc::Start::decode(frame.payload));
  if (start.addresses.size() != assignment_.ranks)
    co_return base::data_loss("start lacks addresses");
  co_return fabric_->connect(start.addresses, kMeshTimeout);
}

void Worker::engine_thread() {
  Reporter reporter(*this);
  base::Status status = trainer_->run(reporter);
  base::post(services_.executor,
             [this, status = std::move(status)]() mutable { engine_done(std::move(status)); });
}

void Worker::engine_done(base::Status status) {
  engine_running_ = false;
  engine_status_ = std::move(status);
  if (!engine_status_.is_ok())
    fabric_->abort(engine_status_);  // the peers must not wait for this rank
  outgoing_.close();
  engine_changed_.notify_all();
}

base::Task<void> Worker::send_loop() {
  while (true) {
    base::Result<Outgoing> next = co_await outgoing_.pop(base::kNoDeadline);
    if (!next.is_ok()) co_return;
    const base::Status sent =
        co_await channel_->send(static_cast<uint16_t>(next->type), std::move(next->payload),
                                services_.clock.now() + kMessageTimeout);
    if (!sent.is_ok()) {
      fabric_->abort(sent.annotate("coordinator lost"));
      co_return;
    }
  }
}

base::Task<void> Worker::watch_coordinator() {
  base::Result<rpc::Frame> frame = co_await channel_->receive(base::kNoDeadline);
  if (frame.is_ok() && frame->type == static_cast<uint16_t>(rpc::MessageType::kGoodbye)) {
    dismissed_ = true;
  } else if (engine_running_) {
    const base::Status why = frame.is_ok() ? base::data_loss("unexpected message") : frame.status();
    fabric_->abort(why.annotate("coordinator lost"));
  }
  left_ = true;
  engine_changed_.notify_all();
}

base::Task<base::Status> Worker::train() {
  engine_running_ = true;
  CO_RETURN_IF_ERROR(base::spawn(services_.executor, gate_, watch_coordinator()));
  thread_ = std::make_unique<base::NamedThread>("engine", [this] { engine_thread(); });
  co_await send_loop();
  while (engine_running_) co_await engine_changed_.wait();
  thread_->join();
  CO_RETURN_IF_ERROR(engine_status_);
  const rpc::Finished finished = trainer_->finished();
  CO_RETURN_IF_ERROR(co_await send(finished));
  while (!left_) co_await engine_changed_.wait();
  co_return dismissed_ ? base::Status::ok()
                       : base::unavailable("the coordinator left without a goodbye");
}

}  // namespace perdure::runtime::worker
