#include "runtime/agent/child_process.h"

#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <optional>

#include "tests/testing/matchers.h"

namespace perdure::runtime::agent {
namespace {

using ::perdure::testing::StatusIs;

struct Launch {
  boost::asio::io_context io;
  std::optional<ChildExit> exit;
  std::unique_ptr<ChildProcess> child;

  void start(std::vector<std::string> arguments,
             std::vector<std::pair<std::string, std::string>> environment = {}) {
    auto started = ChildProcess::start(io.get_executor(),
                                       {.program = "/bin/sh",
                                        .arguments = std::move(arguments),
                                        .environment = std::move(environment)},
                                       [this](ChildExit e) { exit = e; });
    ASSERT_OK(started);
    child = std::move(started).value();
  }
};

TEST(ChildProcessTest, TellsTheExitCode) {
  Launch run;
  run.start({"-c", "exit 7"});
  run.io.run();
  ASSERT_TRUE(run.exit.has_value());
  EXPECT_EQ(run.exit->code, 7);
  EXPECT_EQ(run.exit->to_string(), "exit code 7");
  EXPECT_FALSE(run.child->is_running());
  run.child->kill(SIGKILL);  // nothing to kill, and nobody else is hit
}

TEST(ChildProcessTest, TellsTheSignal) {
  Launch run;
  run.start({"-c", "exec cat /dev/zero >/dev/null"});
  run.child->kill(SIGKILL);
  run.io.run();
  ASSERT_TRUE(run.exit.has_value());
  EXPECT_EQ(run.exit->signal, SIGKILL);
}

TEST(ChildProcessTest, AddsToTheEnvironment) {
  Launch run;
  run.start({"-c", "test \"$PERDURE_TEST_WORD\" = perdure && test -n \"$PATH\""},
            {{"PERDURE_TEST_WORD", "perdure"}});
  run.io.run();
  EXPECT_EQ(run.exit->code, 0);
}

TEST(ChildProcessTest, AProgramThatCannotBeExecutedIsNamed) {
  boost::asio::io_context io;
  EXPECT_THAT(
      ChildProcess::start(io.get_executor(), {.program = "/no/such/program"}, [](ChildExit) {}),
      StatusIs(base::StatusCode::kInvalidArgument, ::testing::HasSubstr("/no/such/program")));
}

TEST(ChildProcessTest, TheDestructorLeavesNoProcess) {
  pid_t pid = 0;
  {
    Launch run;
    run.start({"-c", "exec cat /dev/zero >/dev/null"});
    pid = run.child->pid();
  }
  EXPECT_EQ(::kill(pid, 0), -1) << "the child is gone and reaped";
}

TEST(ChildProcessTest, AGroupOfItsOwnIsKilledAsOne) {
  boost::asio::io_context io;
  std::optional<ChildExit> exit;
  // The first child ends at once; what it left behind in its group must not outlive it.
  const std::string mark = ::testing::TempDir() + "perdure_group_" + std::to_string(::getpid());
  auto child = ChildProcess::start(
      io.get_executor(),
      {.program = "/bin/sh",
       .arguments = {"-c", "cat /dev/zero >/dev/null & echo $! >" + mark + "; exit 5"},
       .group = ProcessGroup::kOwn},
      [&exit](ChildExit e) { exit = e; });
  ASSERT_OK(child);
  EXPECT_NE(::getpgrp(), (*child)->pid());
  io.run();
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 5);
  int left = 0;
  std::ifstream(mark) >> left;
  ASSERT_GT(left, 0);
  std::string state = "R";
  for (int tries = 0; tries < 10000 && state != "Z" && !state.empty(); ++tries) {
    std::string pid, name;
    state.clear();
    std::ifstream("/proc/" + std::to_string(left) + "/stat") >> pid >> name >> state;
  }
  EXPECT_TRUE(state.empty() || state == "Z") << state;
  ::unlink(mark.c_str());
}

}  // namespace
}  // namespace perdure::runtime::agent
