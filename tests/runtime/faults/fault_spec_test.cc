#include "runtime/faults/fault_spec.h"

#include <utility>

#include "runtime/faults/fault_wire.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::faults {
namespace {

using namespace base::literals;
using base::StatusCode;
using ::perdure::testing::StatusIs;
using ::testing::HasSubstr;

TEST(FaultSpecTest, ReadsAStepFault) {
  ASSERT_OK_AND_ASSIGN(const FaultSpec spec,
                       parse_fault("at=step:20,phase=reduce target=worker:2 do=kill"));
  EXPECT_EQ(spec.moment, FaultMoment::kStep);
  EXPECT_EQ(spec.number, 20u);
  EXPECT_EQ(spec.target, (FaultTarget{TargetKind::kWorker, 2}));
  EXPECT_EQ(spec.deed, FaultDeed::kKill);
  EXPECT_EQ(spec.point(), "step.reduce");
  EXPECT_TRUE(spec.is_reached("step.reduce", 20, 7));
  EXPECT_FALSE(spec.is_reached("step.reduce", 21, 7));
  EXPECT_FALSE(spec.is_reached("step.begin", 20, 7));
}

TEST(FaultSpecTest, ReadsTheOtherMoments) {
  ASSERT_OK_AND_ASSIGN(const FaultSpec begin, parse_fault("do=exit target=job at=step:60"));
  EXPECT_EQ(begin.point(), "step.begin");
  ASSERT_OK_AND_ASSIGN(const FaultSpec prepare,
                       parse_fault("at=epoch:2,phase=prepare  target=coordinator do=stop:1.5"));
  EXPECT_EQ(prepare.point(), "coordinator.prepare");
  EXPECT_EQ(prepare.stop_time, 1500_ms);
  EXPECT_TRUE(prepare.is_reached("coordinator.prepare", 9, 2));
  ASSERT_OK_AND_ASSIGN(const FaultSpec fence, parse_fault("at=epoch:2 target=node:0 do=stop"));
  EXPECT_EQ(fence.point(), "coordinator.fence");
  EXPECT_EQ(fence.stop_time, 0_ms);
  ASSERT_OK_AND_ASSIGN(const FaultSpec source,
                       parse_fault("at=epoch:3,phase=transfer target=source do=kill"));
  EXPECT_EQ(source.point(), "epoch.serve");
  ASSERT_OK_AND_ASSIGN(const FaultSpec time, parse_fault("at=time:1.5s target=node:1 do=start"));
  EXPECT_EQ(time.time, 1500_ms);
  EXPECT_EQ(time.point(), "");
  EXPECT_FALSE(time.is_reached("", 0, 0));
  ASSERT_OK_AND_ASSIGN(const FaultSpec ms, parse_fault("at=time:200ms target=job do=drop"));
  EXPECT_EQ(ms.time, 200_ms);
  ASSERT_OK_AND_ASSIGN(const FaultSpec slow, parse_fault("at=step:4 target=worker:1 do=slow:3"));
  EXPECT_EQ(slow.factor, 3.0);
}

TEST(FaultSpecTest, NamesThePartAndWhatIsAllowed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "all three"},
      {"at=step:1", "all three"},
      {"at=step:1 at=step:2 target=job do=kill", "each part once"},
      {"at=step:1 target=job do=kill why=not", "why=not"},
      {"at=step:x target=job do=kill", "step:N with N from 1"},
      {"at=step:0 target=job do=kill", "step:N with N from 1"},
      {"at=epoch: target=job do=kill", "epoch:N with N from 1"},
      {"at=hour:3 target=job do=kill", "step:N, epoch:N, time:T"},
      {"at=step:1,phase=prepare target=job do=kill", "begin, compute, reduce"},
      {"at=epoch:1,phase=reduce target=job do=kill", "fence, collect, decide"},
      {"at=step:1,faze=reduce target=job do=kill", "phase=P"},
      {"at=step:1,phase=vote,phase=vote target=job do=kill", "one phase"},
      {"at=time:5 target=job do=kill", "time:1.5s"},
      {"at=time:-1s target=job do=kill", "time:1.5s"},
      {"at=time:nans target=job do=kill", "time:1.5s"},
      {"at=time:1s,phase=vote target=job do=kill", "no phase with a time"},
      {"at=step:1 target=worker do=kill", "worker:N"},
      {"at=step:1 target=worker:-1 do=kill", "worker:N"},
      {"at=step:1 target=rank:1 do=kill", "worker:N"},
      {"at=step:1 target=job do=explode", "kill, stop"},
      {"at=step:1 target=job do=stop:0", "stop:SECONDS"},
      {"at=step:1 target=job do=stop:", "stop:SECONDS"},
      {"at=step:1 target=worker:1 do=slow:1", "above 1"},
      {"at=step:1 target=worker:1 do=slow", "above 1"},
      {"at=step:1 target=node:1 do=slow:2", "target=worker:N"},
      {"at=time:1s target=worker:1 do=slow:2", "at=step:N"},
      {"at=step:1 target=coordinator do=start", "target=worker:N and target=node:N"},
      {"at=step:1 target=source do=kill", "phase=transfer"},
      {"at=epoch:1,phase=gate target=source do=kill", "phase=transfer"},
  };
  for (const auto& [text, words] : cases) {
    EXPECT_THAT(parse_fault(text), StatusIs(StatusCode::kInvalidArgument, HasSubstr(words)))
        << text;
  }
  EXPECT_THAT(parse_faults({"at=step:1 target=job do=kill", "x"}),
              StatusIs(StatusCode::kInvalidArgument));
}

TEST(FaultWireTest, LinesSurviveTheRoundTrip) {
  FaultQuestion question{.is_hit = true, .hit = {}};
  question.hit = {.who = {.role = ProcessRole::kWorker, .number = 2, .pid = 71, .group = 60},
                  .point = "step.reduce",
                  .step = 20,
                  .epoch = 1};
  ASSERT_OK_AND_ASSIGN(const FaultQuestion asked, decode_question(encode(question)));
  EXPECT_TRUE(asked.is_hit);
  EXPECT_EQ(asked.hit.who.to_string(), "worker 2 (pid 71)");
  EXPECT_EQ(asked.hit.who.group, 60);
  EXPECT_EQ(asked.hit.point, "step.reduce");
  EXPECT_EQ(asked.hit.step, 20u);
  EXPECT_EQ(asked.hit.epoch, 1u);
  ASSERT_OK_AND_ASSIGN(const FaultReply reply,
                       decode_reply(encode({.answer = FaultAnswer::kSlow, .factor = 2.5})));
  EXPECT_EQ(reply.answer, FaultAnswer::kSlow);
  EXPECT_EQ(reply.factor, 2.5);
  ASSERT_OK_AND_ASSIGN(const auto specs, parse_faults({"at=step:1 target=job do=kill"}));
  ASSERT_OK_AND_ASSIGN(const auto told, decode_list(encode_list(specs)));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].text, specs[0].text);
}

TEST(FaultWireTest, OtherLinesAreRefused) {
  const std::string good = R"({"ask":"hit","role":"worker","number":1,"pid":71,"group":60,)"
                           R"("point":"x","step":1,"epoch":1})";
  ASSERT_OK(decode_question(good));
  const auto without = [&good](const std::string& part, const std::string& by) {
    std::string line = good;
    const size_t at = line.find(part);
    CHECK_LT(at, line.size());
    return line.replace(at, part.size(), by);
  };
  for (const std::string& line :
       {std::string(""), std::string("[]"), std::string("{\"ask\":"), without("worker", "boss"),
        without("\"hit\"", "7"), without("\"number\":1", "\"number\":\"a\""),
        without("\"pid\":71", "\"pid\":-1"), without("\"pid\":71", "\"pid\":1"),
        without("\"group\":60", "\"group\":0"), without("\"x\"", "3"),
        without("\"step\":1", "\"stop\":1"), without("\"epoch\":1", "\"epoch\":null")}) {
    EXPECT_THAT(decode_question(line), StatusIs(StatusCode::kDataLoss)) << line;
  }
  EXPECT_THAT(decode_list("{}"), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(decode_list("{\"faults\":[3]}"), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(decode_list("{\"faults\":[\"x\"]}"), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(decode_reply("{\"answer\":\"maybe\"}"), StatusIs(StatusCode::kDataLoss));
}

}  // namespace
}  // namespace perdure::runtime::faults
