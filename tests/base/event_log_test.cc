#include "base/event_log.h"

#include <cmath>
#include <filesystem>
#include <limits>

#include "base/ids.h"
#include "base/posix_files.h"
#include "tests/testing/matchers.h"

namespace perdure::base {
namespace {

using ::perdure::testing::StatusIs;
using ::testing::HasSubstr;

class FixedClock final : public Clock {
 public:
  Nanos now() const override { return time; }
  int64_t unix_ms() const override { return 0; }
  TimerId call_at(Nanos, UniqueFunction<void()>) override { return TimerId::kNone; }
  void cancel(TimerId) override {}
  Nanos time = 1500_us;
};

std::string contents(FileSystem& files, const std::string& path) {
  const auto bytes = read_file(files, path, 1_MiB);
  return bytes.is_ok() ? std::string(as_text(*bytes)) : bytes.status().to_string();
}

TEST(EventLogTest, WritesOneJsonLinePerEvent) {
  const std::string path = ::testing::TempDir() + "/perdure_event_log_test.jsonl";
  PosixFiles files;
  (void)files.remove(path);
  FixedClock clock;
  ASSERT_OK_AND_ASSIGN(const auto log, EventLog::open(files, path, clock));
  ASSERT_OK(log->write(Event("epoch.start")
                           .with("epoch", Epoch(3))
                           .with("reason", "node \"2\"\nis gone")
                           .with("delta", -4)
                           .with("large", ~uint64_t{0})));
  clock.time += 1_s;
  ASSERT_OK(log->write(Event("loss")
                           .with("value", 2.5)
                           .with("nan", std::nan(""))
                           .with("inf", std::numeric_limits<double>::infinity())
                           .with("minus", -std::numeric_limits<double>::infinity())
                           .with("ok", true)
                           .with("bytes", std::string("\xff"))));
  EXPECT_OK(log->sync());
  EXPECT_EQ(contents(files, path),
            "{\"seq\":0,\"t_ms\":1.5,\"kind\":\"epoch.start\",\"epoch\":3,"
            "\"reason\":\"node \\\"2\\\"\\nis gone\",\"delta\":-4,\"large\":18446744073709551615}\n"
            "{\"seq\":1,\"t_ms\":1001.5,\"kind\":\"loss\",\"value\":2.5,\"nan\":\"nan\","
            "\"inf\":\"inf\",\"minus\":\"-inf\",\"ok\":true,\"bytes\":\"\xEF\xBF\xBD\"}\n");
  EXPECT_OK(log->close());
  EXPECT_THAT(log->write(Event("late")),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("event log")));
  EXPECT_THAT(log->sync(), StatusIs(StatusCode::kFailedPrecondition));
}

TEST(EventLogTest, TellsWhyItCannotOpen) {
  PosixFiles files;
  FixedClock clock;
  EXPECT_THAT(EventLog::open(files, "/nonexistent/x.jsonl", clock),
              StatusIs(StatusCode::kNotFound));
}

TEST(EventLogDeathTest, AFieldTwiceIsABug) {
  PosixFiles files;
  FixedClock clock;
  auto log = EventLog::open(files, "/dev/null", clock).value();
  EXPECT_DEATH((void)log->write(Event("e").with("a", 1).with("a", 2)), "field twice: a");
}

}  // namespace
}  // namespace perdure::base
