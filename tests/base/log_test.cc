#include "base/log.h"

#include <thread>

#include "base/ids.h"
#include "tests/testing/matchers.h"

namespace perdure::base {
namespace {

using ::perdure::testing::StatusIs;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class LogTest : public ::testing::Test {
 protected:
  ~LogTest() override { set_all_log_levels(LogLevel::kInfo); }

  template <typename F>
  static std::string captured(F run) {
    ::testing::internal::CaptureStderr();
    run();
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(LogTest, WritesKeysAndValues) {
  const std::string line = captured([] {
    LOG_INFO("engine", "step committed", KV("step", Step(3)), KV("loss", 2.5), KV("ok", true),
             KV("why", "a \"b\"\n"), KV("count", uint8_t{7}), KV("path", std::string("/tmp/x")),
             KV("error", unavailable("gone")), KV("empty", ""));
  });
  EXPECT_THAT(line,
              EndsWith("I engine: step committed step=3 loss=2.5 ok=true why=\"a \\\"b\\\"\\n\" "
                       "count=7 path=/tmp/x error=\"unavailable: gone\" empty=\"\"\n"));
}

TEST_F(LogTest, ADisabledLineEvaluatesNothing) {
  int evaluated = 0;
  const auto run = [&evaluated] { LOG_DEBUG("quiet", "text", KV("n", ++evaluated)); };
  EXPECT_EQ(captured(run), "");
  EXPECT_EQ(evaluated, 0);
  set_log_level("quiet", LogLevel::kDebug);
  EXPECT_THAT(captured(run), EndsWith("D quiet: text n=1\n"));
}

TEST_F(LogTest, LevelsAreSetFromText) {
  ASSERT_OK(set_log_levels("error,loud=debug"));
  const std::string text = captured([] {
    LOG_WARNING("other", "hidden");
    LOG_DEBUG("loud", "seen");
    LOG_ERROR("other", "seen too");
  });
  EXPECT_THAT(text, HasSubstr("D loud: seen\n"));
  EXPECT_THAT(text, EndsWith("E other: seen too\n"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("hidden")));
}

TEST_F(LogTest, WrongLevelsChangeNothing) {
  for (const char* spec : {"", "loud", "info,rpc=chatty", "=info", "info,"}) {
    EXPECT_THAT(set_log_levels(spec), StatusIs(StatusCode::kInvalidArgument, HasSubstr(spec)));
  }
  EXPECT_TRUE(log_module("rpc").is_enabled(LogLevel::kInfo));
}

TEST_F(LogTest, LinesOfThreadsDoNotMix) {
  const std::string text = captured([] {
    const auto work = [] {
      for (int i = 0; i < 500; ++i) LOG_INFO("threads", "abcdefghij", KV("k", "v"));
    };
    std::thread other(work);
    work();
    other.join();
  });
  size_t lines = 0;
  for (size_t first = 0; first < text.size(); ++lines) {
    const size_t end = text.find('\n', first);
    ASSERT_THAT(text.substr(first, end - first), EndsWith("I threads: abcdefghij k=v"));
    first = end + 1;
  }
  EXPECT_EQ(lines, 1000u);
}

}  // namespace
}  // namespace perdure::base
