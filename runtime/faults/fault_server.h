#pragma once
// FaultServer: lives in the launcher; processes of the job ask it at fault points, it strikes them.
//
//   process ── at a point ──► server ── kill(2) ... ──► target
//           ◄── answer ──────    └── faults.jsonl: time, what, whom, at
//
// Threads: the component's; its executor's loop outlives it.

#include <boost/asio/local/stream_protocol.hpp>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/event_log.h"
#include "base/gate.h"
#include "base/stop_token.h"
#include "base/task.h"
#include "runtime/faults/fault_book.h"
#include "runtime/faults/fault_wire.h"

namespace perdure::runtime::faults {

struct FaultServerOptions {
  std::vector<FaultSpec> faults;
  std::string socket;  // path; made with mode 0600
  std::string log;     // path of faults.jsonl
  // Brings a killed node back.
  std::function<void(uint32_t node)> start_node;
  // kill(2), replaced in tests.
  std::function<int(int pid, int signal)> send_signal;
};

class FaultServer {
 public:
  FaultServer(FaultServerOptions options, base::FileSystem& files, base::Clock& clock,
              const base::Executor& executor);
  ~FaultServer();

  // Listens; times of faults count from now. kFailedPrecondition: the socket or the log cannot be
  // made.
  base::Status start();
  // A process that the launcher watches has ended.
  void on_exit(int pid) { book_.remove(pid); }
  std::vector<std::string> unused() const { return book_.unused(); }
  bool has_unused_start() const { return book_.has_unused_start(); }
  base::Task<void> stop();

 private:
  using Socket = boost::asio::local::stream_protocol::socket;

  base::Task<void> accept_loop();
  base::Task<void> serve(std::shared_ptr<Socket> socket);
  base::Task<void> time_loop();
  base::Task<void> resume_later(int pid, base::Nanos delay);
  std::string answer(const std::string& line);
  void carry_out(const std::vector<Strike>& strikes, const FaultHit* hit);
  void act(const FaultAct& act);

  const FaultServerOptions options_;
  base::FileSystem& files_;
  base::Clock& clock_;
  const base::Executor executor_;
  FaultBook book_;
  std::unique_ptr<base::EventLog> log_;
  std::unique_ptr<boost::asio::local::stream_protocol::acceptor> acceptor_;
  base::Gate gate_;
  base::StopSource stop_;
  base::Nanos started_{0};
  bool is_stopped_ = false;
};

}  // namespace perdure::runtime::faults
