// Client and server over a real socket, in one process: the server's loop runs on a thread.

#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/ip/tcp.hpp>
#include <thread>

#include "base/posix_clock.h"
#include "base/posix_files.h"
#include "runtime/faults/fault_client.h"
#include "runtime/faults/fault_server.h"
#include "runtime/faults/fault_signals.h"
#include "runtime/faults/unix_ask.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::faults {
namespace {

using namespace base::literals;
using base::StatusCode;
using ::perdure::testing::StatusIs;
using ::testing::HasSubstr;

class FaultSocketTest : public ::testing::Test {
 protected:
  FaultSocketTest() {
    folder_ = ::testing::TempDir() + "perdure_faults_" + std::to_string(::getpid());
    CHECK(files_.make_dirs(folder_).is_ok());
    socket_ = folder_ + "/f.sock";
    log_ = folder_ + "/faults.jsonl";
  }
  ~FaultSocketTest() override {
    if (server_ != nullptr) {
      base::post(io_.get_executor(), [this] {
        CHECK(base::spawn(io_.get_executor(), stopping_, server_->stop()).is_ok());
        work_.reset();
      });
      thread_.join();
      EXPECT_NE(::access(socket_.c_str(), F_OK), 0) << "the socket is left";
    }
    (void)files_.remove(log_).is_ok();
    (void)files_.remove(folder_).is_ok();
  }

  void serve(const std::vector<std::string>& faults) {
    auto specs = parse_faults(faults);
    CHECK(specs.is_ok()) << specs.status();
    server_ =
        std::make_unique<FaultServer>(FaultServerOptions{.faults = *specs,
                                                         .socket = socket_,
                                                         .log = log_,
                                                         .start_node =
                                                             [this](uint32_t node) {
                                                               sent_.push_back({-1, (int)node});
                                                             },
                                                         .send_signal =
                                                             [this](int pid, int signal) {
                                                               sent_.push_back({pid, signal});
                                                               return 0;
                                                             }},
                                      files_, clock_, io_.get_executor());
    ASSERT_OK(server_->start());
    thread_ = std::thread([this] { io_.run(); });
  }
  std::unique_ptr<FaultClient> client(ProcessRole role, uint32_t number) {
    auto made =
        FaultClient::connect({.socket = socket_, .role = role, .number = number}, told_clock_);
    CHECK(made.is_ok()) << made.status();
    return std::move(made).value();
  }
  static void reach(FaultClient& client, const char* point, uint64_t step, uint64_t epoch = 1) {
    base::fault_time.step = step;
    base::fault_time.epoch = epoch;
    EXPECT_OK(client.at_fault_point(point, {}));
  }
  std::string log() {
    auto bytes = base::read_file(files_, log_, 1 << 20);
    return bytes.is_ok() ? std::string(base::as_text(*bytes)) : "";
  }

  std::string folder_, socket_, log_;
  base::PosixFiles files_;
  boost::asio::io_context io_;
  std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> work_{
      io_.get_executor()};
  base::PosixClock clock_{io_.get_executor()};
  base::PosixClock told_clock_;
  base::Gate stopping_;
  std::unique_ptr<FaultServer> server_;
  // Of the server's thread; read after a client had its answer.
  std::vector<std::pair<int, int>> sent_;
  std::thread thread_;
};

TEST_F(FaultSocketTest, ASignalIsSentBeforeTheAnswer) {
  serve({"at=step:3,phase=vote target=worker:1 do=kill"});
  const auto bystander = client(ProcessRole::kWorker, 0);
  const auto target = client(ProcessRole::kWorker, 1);
  struct stat info {};
  ASSERT_EQ(::stat(socket_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  reach(*bystander, "step.vote", 3);
  reach(*target, "step.vote", 2);
  EXPECT_TRUE(sent_.empty());
  reach(*target, "step.vote", 3);
  reach(*target, "step.vote", 3);
  EXPECT_EQ(sent_, (std::vector<std::pair<int, int>>{{::getpid(), SIGKILL}}));
  EXPECT_THAT(log(), HasSubstr("\"whom\":\"worker 1 (pid"));
  EXPECT_THAT(log(), HasSubstr("\"point\":\"step.vote\",\"step\":3"));
}

TEST_F(FaultSocketTest, TheCoordinatorStrikesAnother) {
  serve({"at=epoch:2,phase=gate target=node:0 do=stop",
         "at=epoch:2,phase=go target=node:1 do=start"});
  const auto agent = client(ProcessRole::kAgent, 0);
  const auto coordinator = client(ProcessRole::kCoordinator, 0);
  reach(*coordinator, "coordinator.gate", 9, 2);
  reach(*coordinator, "coordinator.go", 9, 2);
  EXPECT_EQ(sent_, (std::vector<std::pair<int, int>>{{-::getpgrp(), SIGSTOP}, {-1, 1}}));
}

TEST_F(FaultSocketTest, ASlowWorkerDelaysItsReduce) {
  serve({"at=step:1 target=worker:0 do=slow:10"});
  const auto worker = client(ProcessRole::kWorker, 0);
  const base::Nanos before = told_clock_.now();
  reach(*worker, "step.begin", 1);
  const base::Nanos begun = told_clock_.now();
  while (told_clock_.now() - begun < 5_ms) {
  }
  reach(*worker, "step.reduce", 1);
  EXPECT_GE(told_clock_.now() - before, 49_ms);
}

TEST_F(FaultSocketTest, ADroppedProcessLosesItsTcpConnections) {
  serve({"at=step:1 target=worker:0 do=drop"});
  const auto worker = client(ProcessRole::kWorker, 0);
  namespace ip = boost::asio::ip;
  boost::asio::io_context io;
  ip::tcp::acceptor acceptor(io, ip::tcp::endpoint(ip::address_v4::loopback(), 0));
  ip::tcp::socket one(io);
  one.connect(acceptor.local_endpoint());
  ip::tcp::socket other = acceptor.accept();
  reach(*worker, "step.begin", 1);
  char byte = 0;
  boost::system::error_code error;
  one.read_some(boost::asio::buffer(&byte, 1), error);
  EXPECT_EQ(error, boost::asio::error::eof);
  ip::tcp::socket later(io);
  later.connect(acceptor.local_endpoint());  // the listener is still there
  EXPECT_TRUE(sent_.empty());
}

TEST_F(FaultSocketTest, ASignalDropsConnectionsToo) {
  handle_fault_signals();
  namespace ip = boost::asio::ip;
  boost::asio::io_context io;
  ip::tcp::acceptor acceptor(io, ip::tcp::endpoint(ip::address_v4::loopback(), 0));
  ip::tcp::socket one(io);
  one.connect(acceptor.local_endpoint());
  ASSERT_EQ(::raise(drop_signal()), 0);
  char byte = 0;
  boost::system::error_code error;
  one.read_some(boost::asio::buffer(&byte, 1), error);
  EXPECT_EQ(error, boost::asio::error::eof);
}

TEST_F(FaultSocketTest, AnExitIsAnExitWithCode0) {
  handle_fault_signals();
  EXPECT_EXIT(::raise(exit_signal()), ::testing::ExitedWithCode(0), "");
}

TEST_F(FaultSocketTest, TimesCountFromTheStart) {
  serve({"at=time:1ms target=coordinator do=kill", "at=step:9 target=job do=kill"});
  const auto worker = client(ProcessRole::kWorker, 0);
  for (int tries = 0; tries < 100000 && log().empty(); ++tries) {
  }
  EXPECT_THAT(log(), HasSubstr("at=time:1ms"));
}

TEST_F(FaultSocketTest, NonsenseIsNotAnswered) {
  serve({"at=step:1 target=worker:0 do=kill"});
  EXPECT_THAT(ask_unix(socket_, "{}\n"), StatusIs(StatusCode::kUnavailable));
  EXPECT_OK(ask_unix(socket_,
                     encode(FaultQuestion{.is_hit = false,
                                          .hit = {.who = {.pid = 70, .group = 60}, .point = {}}})));
}

TEST_F(FaultSocketTest, WithoutAServerAProcessGoesOn) {
  EXPECT_THAT(FaultClient::connect({.socket = socket_}, told_clock_),
              StatusIs(StatusCode::kUnavailable));
  EXPECT_THAT(ask_unix(std::string(200, 'x'), "\n"),
              StatusIs(StatusCode::kUnavailable, HasSubstr("too long")));
}

TEST_F(FaultSocketTest, APlaceThatCannotBeUsedIsNamed) {
  FaultServer no_log({.faults = {}, .socket = socket_, .log = "/nowhere/at/all"}, files_, clock_,
                     io_.get_executor());
  EXPECT_THAT(no_log.start(), StatusIs(StatusCode::kNotFound));
  FaultServer no_socket({.faults = {}, .socket = "/nowhere/at/all", .log = log_}, files_, clock_,
                        io_.get_executor());
  EXPECT_THAT(no_socket.start(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("/nowhere")));
  FaultServer too_long({.faults = {}, .socket = std::string(200, 'x'), .log = log_}, files_, clock_,
                       io_.get_executor());
  EXPECT_THAT(too_long.start(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("too long")));
}

}  // namespace
}  // namespace perdure::runtime::faults
