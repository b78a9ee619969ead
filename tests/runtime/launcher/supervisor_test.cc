// Real processes: shell scripts in place of coordinator and agents.

#include "runtime/launcher/supervisor.h"

#include <signal.h>
#include <unistd.h>

#include <fstream>

#include "base/posix_clock.h"
#include "base/posix_files.h"
#include "base/sleep.h"
#include "runtime/launcher/process_starter.h"
#include "runtime/launcher/run_folder.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::launcher {
namespace {

using namespace base::literals;
using base::StatusCode;
using ::perdure::testing::StatusIs;
using ::testing::HasSubstr;

class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorTest() {
    folder_ = ::testing::TempDir() + "perdure_supervisor_" + std::to_string(::getpid());
    CHECK(files_.make_dirs(folder_).is_ok());
    options_.program = "/bin/sh";
    options_.environment = {{"D", folder_}};
    options_.leave_timeout = 300_ms;
    options_.on_exit = [this](int pid) { exited_.push_back(pid); };
  }
  ~SupervisorTest() override { (void)remove_tree(files_, folder_).is_ok(); }

  void coordinator(const std::string& script) { options_.coordinator_arguments = {"-c", script}; }
  // In it $1 is the node.
  void agents(uint32_t nodes, const std::string& script) {
    options_.nodes = nodes;
    options_.agent_arguments = {"-c", script};
  }
  base::Result<JobEnd> run() {
    supervisor_ = std::make_unique<Supervisor>(options_, clock_, io_.get_executor());
    std::optional<base::Result<JobEnd>> end;
    base::Gate gate;
    CHECK(
        base::spawn(io_.get_executor(), gate, base::store_result(supervisor_->run(), end)).is_ok());
    io_.restart();
    io_.run();
    CHECK(end.has_value());
    return *end;
  }
  std::string read(const std::string& name) {
    std::ifstream file(folder_ + "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void check_gone(const std::string& name) {
    std::ifstream file(folder_ + "/" + name);
    int pid = 0;
    while (file >> pid) EXPECT_EQ(::kill(pid, 0), -1) << pid << " of " << name << " is left";
  }

  std::string folder_;
  base::PosixFiles files_;
  boost::asio::io_context io_;
  base::PosixClock clock_{io_.get_executor()};
  SupervisorOptions options_;
  std::vector<int> exited_;
  std::unique_ptr<Supervisor> supervisor_;
};

constexpr const char* kWait = "while :; do read x <$D/never || exit 1; done";

TEST_F(SupervisorTest, EndsAsTheCoordinatorEnds) {
  for (const int code : {kJobDone, kJobWrongInput, kJobFailure}) {
    coordinator("exit " + std::to_string(code));
    agents(2, "echo $1 >>$D/nodes");
    ASSERT_OK_AND_ASSIGN(const JobEnd end, run());
    EXPECT_EQ(end.exit_code, code);
    EXPECT_EQ(end.why, "");
  }
  EXPECT_EQ(exited_.size(), 9u);
}

TEST_F(SupervisorTest, StartsACoordinatorAgainThatDied) {
  ASSERT_EQ(::system(("mkfifo " + folder_ + "/never").c_str()), 0);
  coordinator(
      "echo x >>$D/lives; n=$(wc -l <$D/lives); [ $n = 1 ] && kill -9 $$; [ $n = 2 ] && exit 1; "
      "exit 0");
  agents(1, std::string("echo $$ >>$D/agents; ") + kWait);
  ASSERT_OK_AND_ASSIGN(const JobEnd end, run());
  EXPECT_EQ(end.exit_code, kJobDone);
  EXPECT_EQ(read("lives"), "x\nx\nx\n");
  check_gone("agents");
}

TEST_F(SupervisorTest, ACoordinatorThatDiesAgainAndAgainEndsTheJob) {
  ASSERT_EQ(::system(("mkfifo " + folder_ + "/never").c_str()), 0);
  coordinator("echo x >>$D/lives; exit 1");
  agents(1, kWait);
  ASSERT_OK_AND_ASSIGN(const JobEnd end, run());
  EXPECT_EQ(end.exit_code, kJobFailure);
  EXPECT_THAT(end.why, HasSubstr("again and again: exit code 1"));
  EXPECT_EQ(read("lives").size(), 2u * 11);
}

TEST_F(SupervisorTest, WhatDoesNotLeaveIsKilledWithItsNode) {
  ASSERT_EQ(::system(("mkfifo " + folder_ + "/never").c_str()), 0);
  coordinator("until [ -s $D/pids ]; do :; done; exit 0");
  agents(1, "trap '' TERM; cat $D/never & echo $! >$D/worker; echo $$ >$D/pids; wait");
  ASSERT_OK_AND_ASSIGN(const JobEnd end, run());
  EXPECT_EQ(end.exit_code, kJobDone);
  check_gone("pids");
  // Its parent is gone too, so somebody else reaps it: it may still show as a zombie.
  int worker = 0;
  std::ifstream(folder_ + "/worker") >> worker;
  ASSERT_GT(worker, 0);
  std::string state = "R";
  for (int tries = 0; tries < 10000 && state != "Z" && !state.empty(); ++tries) {
    std::string pid, name;
    state.clear();
    std::ifstream("/proc/" + std::to_string(worker) + "/stat") >> pid >> name >> state;
  }
  EXPECT_TRUE(state.empty() || state == "Z") << state;
}

TEST_F(SupervisorTest, WithoutNodesThereIsNoJob) {
  ASSERT_EQ(::system(("mkfifo " + folder_ + "/never").c_str()), 0);
  coordinator(std::string("trap 'exit 3' TERM; ") + kWait);
  agents(2, "kill -9 $$");
  ASSERT_OK_AND_ASSIGN(const JobEnd end, run());
  EXPECT_EQ(end.exit_code, kJobFailure);
  EXPECT_THAT(end.why, HasSubstr("no node is left: the last ended by signal 9"));
}

TEST_F(SupervisorTest, ADismissedNodeBesideADeadOneIsTheCoordinatorsAffair) {
  coordinator("until [ -e $D/left ]; do :; done; i=0; while [ $i -lt 300 ]; do i=$((i+1)); done");
  agents(2, "[ $1 = 0 ] && kill -9 $$; touch $D/left; exit 0");
  ASSERT_OK_AND_ASSIGN(const JobEnd end, run());
  EXPECT_EQ(end.exit_code, kJobDone) << end.why;
}

base::Task<void> bring_back(Supervisor& supervisor, base::Clock& clock, std::string folder) {
  base::PosixFiles files;
  for (int tries = 0; tries < 500; ++tries) {
    (void)co_await base::sleep_for(clock, 10_ms);
    if (files.stat(folder + "/first").is_ok()) break;
  }
  supervisor.start_node(0);  // it may still run: nothing then
  supervisor.start_node(7);  // there is none
}

TEST_F(SupervisorTest, ANodeThatMayComeBackIsWaitedFor) {
  ASSERT_EQ(::system(("mkfifo " + folder_ + "/never").c_str()), 0);
  coordinator("until [ -e $D/second ]; do :; done; exit 0");
  agents(1, "[ -e $D/first ] && { touch $D/second; exit 0; }; touch $D/first; kill -9 $$");
  options_.may_come_back = [] { return true; };
  supervisor_ = std::make_unique<Supervisor>(options_, clock_, io_.get_executor());
  std::optional<base::Result<JobEnd>> end;
  base::Gate gate;
  const base::Executor executor = io_.get_executor();
  ASSERT_OK(base::spawn(executor, gate, base::store_result(supervisor_->run(), end)));
  ASSERT_OK(base::spawn(executor, gate, bring_back(*supervisor_, clock_, folder_)));
  io_.run_for(std::chrono::seconds(20));
  ASSERT_TRUE(end.has_value());
  ASSERT_OK(*end);
  EXPECT_EQ((*end)->exit_code, kJobDone);
}

TEST_F(SupervisorTest, AnInterruptAsksTheCoordinator) {
  ASSERT_EQ(::system(("mkfifo " + folder_ + "/never").c_str()), 0);
  coordinator("trap 'echo asked >$D/asked; exit 3' TERM; touch $D/ready; while :; do :; done");
  agents(1, kWait);
  supervisor_ = std::make_unique<Supervisor>(options_, clock_, io_.get_executor());
  std::optional<base::Result<JobEnd>> end;
  base::Gate gate;
  const base::Executor executor = io_.get_executor();
  ASSERT_OK(base::spawn(executor, gate, base::store_result(supervisor_->run(), end)));
  for (int tries = 0; tries < 2000 && read("asked").empty() && !end.has_value(); ++tries) {
    io_.restart();
    io_.run_for(std::chrono::milliseconds(5));
    if (tries >= 0 && files_.stat(folder_ + "/ready").is_ok() && read("asked").empty()) {
      supervisor_->interrupt();
      break;
    }
  }
  io_.restart();
  io_.run_for(std::chrono::seconds(20));
  ASSERT_TRUE(end.has_value());
  ASSERT_OK(*end);
  EXPECT_EQ((*end)->exit_code, kJobFailure);
  EXPECT_EQ(read("asked"), "asked\n");
}

TEST_F(SupervisorTest, AProgramThatCannotStartIsNamed) {
  options_.program = "/no/such/program";
  coordinator("exit 0");
  EXPECT_THAT(run(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("/no/such/program")));
}

TEST(RestartBudgetTest, CountsInAWindow) {
  RestartBudget budget(2, 60_s);
  EXPECT_TRUE(budget.take(0_s));
  EXPECT_TRUE(budget.take(30_s));
  EXPECT_FALSE(budget.take(59_s));
  EXPECT_TRUE(budget.take(60_s));
  EXPECT_FALSE(budget.take(89_s));
  EXPECT_TRUE(budget.take(90_s));
}

TEST_F(SupervisorTest, WorkersAreStartedAsTheirAgentSays) {
  const std::string script = folder_ + "/worker.sh";
  std::ofstream(script) << "#!/bin/sh\necho \"$@\" $PERDURE_JOB_SECRET $UCX_LOG_LEVEL >" << folder_
                        << "/said\nexit 4\n";
  ASSERT_EQ(::system(("chmod +x " + script).c_str()), 0);
  ProcessStarter starter({.program = script, .secret = "s3"}, io_.get_executor());
  std::string how;
  auto worker = starter.start({.worker = base::WorkerId(5),
                               .incarnation = base::Incarnation(70),
                               .agent = base::Address("127.0.0.1", 99),
                               .node_workers = {base::WorkerId(4), base::WorkerId(5)}},
                              [&how](std::string text) { how = std::move(text); });
  ASSERT_OK(worker);
  EXPECT_GT((*worker)->pid(), 1u);
  io_.run();
  EXPECT_EQ(how, "exit code 4");
  EXPECT_FALSE((*worker)->is_running());
  EXPECT_THAT(read("said"),
              ::testing::MatchesRegex("worker --agent 127.0.0.1:99 --worker 5 --incarnation 70"
                                      "( --slot /proc/[0-9]+/fd/[0-9]+){2}"
                                      " --reports /proc/[0-9]+/fd/[0-9]+"
                                      "( --other-slot /proc/[0-9]+/fd/[0-9]+){2} s3 error\n"));
  ProcessStarter broken({.program = "/no/such", .secret = ""}, io_.get_executor());
  EXPECT_THAT(broken.start({}, [](std::string) {}), StatusIs(StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace perdure::runtime::launcher
