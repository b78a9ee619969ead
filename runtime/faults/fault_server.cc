#include "runtime/faults/fault_server.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <utility>

#include "base/log.h"
#include "base/sleep.h"
#include "runtime/faults/fault_signals.h"

namespace perdure::runtime::faults {
namespace {

using base::Status;
using base::Task;
using boost::asio::local::stream_protocol;
using ErrorCode = boost::system::error_code;

constexpr auto kAwait = boost::asio::as_tuple(boost::asio::use_awaitable);

int signal_of(FaultAct::Kind kind) {
  switch (kind) {
    case FaultAct::Kind::kKill:
      return SIGKILL;
    case FaultAct::Kind::kStop:
      return SIGSTOP;
    case FaultAct::Kind::kExit:
      return exit_signal();
    case FaultAct::Kind::kDrop:
      return drop_signal();
    case FaultAct::Kind::kStartWorkers:
      return start_signal();
    case FaultAct::Kind::kStartNode:
      break;
  }
  return 0;
}

}  // namespace

FaultServer::FaultServer(FaultServerOptions options, base::FileSystem& files, base::Clock& clock,
                         const base::Executor& executor)
    : options_(std::move(options)),
      files_(files),
      clock_(clock),
      executor_(executor),
      book_(options_.faults) {}

FaultServer::~FaultServer() = default;

Status FaultServer::start() {
  ASSIGN_OR_RETURN(log_, base::EventLog::open(files_, options_.log, clock_));
  acceptor_ = std::make_unique<stream_protocol::acceptor>(executor_);
  ::unlink(options_.socket.c_str());
  if (options_.socket.size() >= 108) {
    return base::failed_precondition("path of the fault socket is too long: " + options_.socket);
  }
  ErrorCode error;
  acceptor_->open(stream_protocol(), error);
  if (!error) acceptor_->bind(stream_protocol::endpoint(options_.socket), error);
  if (!error) acceptor_->listen(boost::asio::socket_base::max_listen_connections, error);
  if (error) {
    return base::failed_precondition("fault socket " + options_.socket + ": " + error.message());
  }
  ::chmod(options_.socket.c_str(), 0600);
  started_ = clock_.now();
  RETURN_IF_ERROR(base::spawn(executor_, gate_, accept_loop()));
  return base::spawn(executor_, gate_, time_loop());
}

Task<void> FaultServer::stop() {
  is_stopped_ = true;
  stop_.request_stop();
  if (acceptor_ != nullptr) {
    ErrorCode ignored;
    acceptor_->close(ignored);
  }
  co_await gate_.close();
  ::unlink(options_.socket.c_str());
}

Task<void> FaultServer::accept_loop() {
  while (!is_stopped_) {
    auto socket = std::make_shared<Socket>(executor_);
    const auto [error] = co_await acceptor_->async_accept(*socket, kAwait);
    if (error == boost::asio::error::operation_aborted || is_stopped_) co_return;
    if (error) {
      LOG_WARNING("faults", "accept failed", KV("error", error.message()));
      const Status slept =
          co_await base::sleep_for(clock_, std::chrono::milliseconds(100), stop_.token());
      if (!slept.is_ok()) co_return;
      continue;
    }
    (void)base::spawn(executor_, gate_, serve(socket)).is_ok();
  }
}

Task<void> FaultServer::serve(std::shared_ptr<Socket> socket) {
  const base::StopCallback on_stop(stop_.token(), [&socket] {
    ErrorCode ignored;
    socket->close(ignored);
  });
  std::string line;
  std::array<char, 4096> buffer;
  while (line.empty() || line.back() != '\n') {
    const auto [error, count] =
        co_await socket->async_read_some(boost::asio::buffer(buffer), kAwait);
    if (error || line.size() + count > kFaultLineBytesMax) co_return;
    line.append(buffer.data(), count);
  }
  const std::string reply = answer(line);
  if (reply.empty()) co_return;
  const auto [error, count] =
      co_await boost::asio::async_write(*socket, boost::asio::buffer(reply), kAwait);
  // A process that was just killed does not read it.
  if (error) LOG_DEBUG("faults", "answer not read", KV("bytes", count));
}

std::string FaultServer::answer(const std::string& line) {
  const base::Result<FaultQuestion> question = decode_question(line);
  if (!question.is_ok()) {
    LOG_WARNING("faults", "refused", KV("why", question.status()));
    return "";
  }
  const FaultHit& hit = question.value().hit;
  book_.add(hit.who);
  if (!question.value().is_hit) return encode_list(book_.specs());
  const std::vector<Strike> strikes = book_.on_hit(hit);
  carry_out(strikes, &hit);
  FaultReply reply;
  for (const Strike& strike : strikes) {
    if (strike.answer == FaultAnswer::kGoOn) continue;
    reply = {.answer = strike.answer, .factor = strike.factor};
  }
  return encode(reply);
}

void FaultServer::carry_out(const std::vector<Strike>& strikes, const FaultHit* hit) {
  for (const Strike& strike : strikes) {
    const FaultSpec& spec = book_.specs()[strike.index];
    base::Event event("fault");
    event.with("fault", spec.text).with("whom", strike.whom);
    if (hit != nullptr) {
      event.with("reached_by", hit->who.to_string()).with("point", hit->point);
      event.with("step", hit->step).with("epoch", hit->epoch);
    }
    // Before the deed: it may end this process too.
    const Status written = log_->write(event);
    if (!written.is_ok()) LOG_WARNING("faults", "log not written", KV("why", written));
    for (const FaultAct& one : strike.acts) act(one);
  }
}

void FaultServer::act(const FaultAct& act) {
  if (act.kind == FaultAct::Kind::kStartNode) {
    if (options_.start_node) options_.start_node(act.node);
    return;
  }
  // Numbers below 2 would be everybody's.
  CHECK_GT(act.group, 1);
  CHECK(act.pid > 1 || act.pid == -act.group);
  const auto send = [this](int pid, int signal) {
    return options_.send_signal ? options_.send_signal(pid, signal) : ::kill(pid, signal);
  };
  if (!options_.send_signal && act.pid > 0 && ::getpgid(act.pid) != act.group) {
    LOG_WARNING("faults", "target has gone", KV("pid", act.pid));
    return;
  }
  if (send(act.pid, signal_of(act.kind)) != 0) {
    LOG_WARNING("faults", "signal not sent", KV("pid", act.pid));
    return;
  }
  if (act.kind == FaultAct::Kind::kStop && act.resume_after > base::Nanos(0)) {
    (void)base::spawn(executor_, gate_, resume_later(act.pid, act.resume_after)).is_ok();
  }
}

Task<void> FaultServer::resume_later(int pid, base::Nanos delay) {
  // At a stop of the server too: nothing stays stopped.
  (void)co_await base::sleep_for(clock_, delay, stop_.token());
  if (options_.send_signal) {
    options_.send_signal(pid, SIGCONT);
  } else {
    ::kill(pid, SIGCONT);
  }
}

Task<void> FaultServer::time_loop() {
  while (true) {
    const base::Nanos due = base::saturating_add(started_, book_.next_time());
    if (book_.next_time() == base::kNoDeadline) co_return;
    const Status slept = co_await base::sleep_until(clock_, due, stop_.token());
    if (!slept.is_ok()) co_return;
    carry_out(book_.on_time(clock_.now() - started_), nullptr);
  }
}

}  // namespace perdure::runtime::faults
