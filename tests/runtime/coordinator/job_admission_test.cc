// Who is let in. Whoever is not, disturbs nobody.

#include "base/random.h"
#include "tests/runtime/coordinator/coordinator_harness.h"

namespace perdure::runtime::coordinator {
namespace {

using namespace base::literals;
using base::StatusCode;
using ::perdure::testing::StatusIs;

std::vector<std::byte> hello_frame() {
  return rpc::encode_frame(static_cast<uint16_t>(rpc::Hello::kType), hello_of(0).encode());
}

struct StrangerCase {
  std::string name;
  std::function<base::Status(Peer&)> behave;

  friend std::ostream& operator<<(std::ostream& out, const StrangerCase& c) {
    return out << c.name;
  }
};

base::Status say_hello_with_token(Peer& peer, const std::string& token) {
  rpc::Hello hello = hello_of(0);
  hello.job_token = token;
  return peer.send(hello);
}

std::vector<StrangerCase> stranger_cases() {
  return {
      {"WrongToken", [](Peer& p) { return say_hello_with_token(p, "secreT"); }},
      {"ShortToken", [](Peer& p) { return say_hello_with_token(p, "secre"); }},
      {"LongToken", [](Peer& p) { return say_hello_with_token(p, "secret!"); }},
      {"NoToken", [](Peer& p) { return say_hello_with_token(p, ""); }},
      {"UnknownWorker", [](Peer& p) { return p.send(hello_of(2)); }},
      {"HugeWorker", [](Peer& p) { return p.send(hello_of(0xffffffff)); }},
      {"NoHello", [](Peer& p) { return p.send(ready_of(0)); }},
      {"UnknownType", [](Peer& p) { return p.send_frame(0xffff, hello_of(0).encode()); }},
      {"LongHello",
       [](Peer& p) {
         rpc::Payload payload = hello_of(0).encode();
         payload.push_back(std::byte{0});
         return p.send_frame(1, payload);
       }},
      {"Garbage",
       [](Peer& p) {
         base::SeededRandom random(testing::test_seed());
         std::vector<std::byte> bytes(500);
         for (std::byte& b : bytes) b = static_cast<std::byte>(random.next_u64());
         return p.send_bytes(bytes);
       }},
      {"OtherVersion",
       [](Peer& p) {
         std::vector<std::byte> frame = hello_frame();
         frame[4] = std::byte{2};
         return p.send_bytes(frame);
       }},
      {"HugeLength",
       [](Peer& p) {
         std::vector<std::byte> frame = hello_frame();
         frame[11] = std::byte{0x7f};
         return p.send_bytes(frame);
       }},
      {"FlippedBit",
       [](Peer& p) {
         std::vector<std::byte> frame = hello_frame();
         frame.back() ^= std::byte{1};
         return p.send_bytes(frame);
       }},
      {"CutOff",
       [](Peer& p) {
         std::vector<std::byte> frame = hello_frame();
         frame.pop_back();
         return p.send_bytes(frame);
       }},
      {"Silent", [](Peer&) { return base::Status::ok(); }},
  };
}

class StrangerTest : public CoordinatorTest, public ::testing::WithParamInterface<StrangerCase> {
 protected:
  // Tries to get in, and sees its connection closed.
  void be_refused() {
    auto stranger = make_peer("stranger");
    ASSERT_OK(stranger->connect());
    ASSERT_OK(GetParam().behave(*stranger));
    EXPECT_THAT(stranger->receive(), StatusIs(StatusCode::kUnavailable));
  }
  // The same, but leaves without waiting.
  void leave_at_once() {
    auto stranger = make_peer("stranger");
    ASSERT_OK(stranger->connect());
    ASSERT_OK(GetParam().behave(*stranger));
    stranger->close();
  }
};

TEST_P(StrangerTest, IsRefusedAndTheJobGoesOn) {
  start_coordinator(2);
  be_refused();
  leave_at_once();
  ASSERT_NO_FATAL_FAILURE(join_and_be_ready(0));
  be_refused();
  leave_at_once();
  ASSERT_NO_FATAL_FAILURE(join_and_be_ready(1));
  for (auto& worker : workers_) ASSERT_OK(worker->expect<rpc::Start>());
  be_refused();
  ASSERT_OK(workers_[0]->send(rpc::StepReport{.step = base::Step(1)}));
  leave_at_once();
  ASSERT_NO_FATAL_FAILURE(finish_job());
  EXPECT_THAT(journal_.lines, ::testing::ElementsAre("ready 0 fake-0", "ready 1 fake-1", "start",
                                                     "step 1", "finished 0", "finished 1"));
}

INSTANTIATE_TEST_SUITE_P(All, StrangerTest, ::testing::ValuesIn(stranger_cases()),
                         [](const auto& test) { return test.param.name; });

class AdmissionTest : public CoordinatorTest {
 protected:
  void expect_refused(uint32_t worker) {
    auto second = make_peer("stranger");
    ASSERT_OK(second->connect());
    ASSERT_OK(second->send(hello_of(worker)));
    EXPECT_THAT(second->receive(), StatusIs(StatusCode::kUnavailable));
  }
};

TEST_F(AdmissionTest, ASecondWorkerOfTheSameNumberIsRefused) {
  start_coordinator(2);
  ASSERT_NO_FATAL_FAILURE(join(0));
  expect_refused(0);
  ASSERT_OK(workers_[0]->send(ready_of(0)));
  ASSERT_NO_FATAL_FAILURE(join_and_be_ready(1));
  for (auto& worker : workers_) ASSERT_OK(worker->expect<rpc::Start>());
  expect_refused(1);
  ASSERT_NO_FATAL_FAILURE(finish_job());
}

// Both say hello before either has read its assignment.
TEST_F(AdmissionTest, OfTwoAtTheSameTimeOneIsLetIn) {
  start_coordinator(1);
  for (const char* name : {"n0", "stranger"}) {
    world_.network().set_link({.from = "coordinator", .to = name}, {.window_bytes = 16});
  }
  workers_[0] = make_peer("n0");
  auto second = make_peer("stranger");
  ASSERT_OK(workers_[0]->connect());
  ASSERT_OK(second->connect());
  ASSERT_OK(workers_[0]->send(hello_of(0)));
  pass(5_ms);
  ASSERT_OK(second->send(hello_of(0)));
  pass(100_ms);
  EXPECT_THAT(second->receive(), StatusIs(StatusCode::kUnavailable));
  ASSERT_OK(workers_[0]->expect<rpc::Assignment>());
  ASSERT_OK(workers_[0]->send(ready_of(0)));
  ASSERT_OK(workers_[0]->expect<rpc::Start>());
  ASSERT_NO_FATAL_FAILURE(finish_job());
}

// Its number is free again: it was never told its assignment.
TEST_F(AdmissionTest, AWorkerThatBreaksOffWhileItIsLetInMayComeAgain) {
  start_coordinator(1);
  world_.network().set_link({.from = "coordinator", .to = "n0"}, {.window_bytes = 16});
  auto first = make_peer("n0");
  ASSERT_OK(first->connect());
  ASSERT_OK(first->send(hello_of(0)));
  pass(100_ms);
  first->close();
  pass(15_s);
  EXPECT_FALSE(is_over());
  ASSERT_NO_FATAL_FAILURE(join_and_be_ready(0));
  ASSERT_OK(workers_[0]->expect<rpc::Start>());
  ASSERT_NO_FATAL_FAILURE(finish_job());
}

TEST_F(AdmissionTest, AHelloAfterTheEndFindsNobody) {
  start_coordinator(2);
  auto early = make_peer("n0");
  auto late = make_peer("n1");
  ASSERT_OK(early->connect());
  ASSERT_OK(late->connect());
  pass(1_s);
  on_coordinator([](JobCoordinator& coordinator) { coordinator.stop(base::cancelled("enough")); });
  pass(100_ms);
  (void)early->send(hello_of(0)).is_ok();  // within the moment in which reasons are gathered
  pass(300_ms);
  (void)late->send(hello_of(1)).is_ok();
  const base::Nanos begin = world_.now();
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kCancelled, "enough"));
  EXPECT_LT(world_.now() - begin, 1_s);
  EXPECT_THAT(late->receive(), StatusIs(StatusCode::kUnavailable));
}

// The coordinator's host is frozen meanwhile: it accepts and ends in one turn.
TEST_F(AdmissionTest, AConnectionAtTheMomentOfTheEndDoesNotHoldItUp) {
  start_coordinator(1);
  on_coordinator([](JobCoordinator& coordinator) { coordinator.stop(base::cancelled("enough")); });
  world_.host("coordinator").pause();
  auto silent = make_peer("stranger");
  ASSERT_OK(silent->connect());
  pass(1_s);
  world_.host("coordinator").resume();
  const base::Nanos begin = world_.now();
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kCancelled, "enough"));
  EXPECT_LT(world_.now() - begin, 1_s);
}

TEST_F(AdmissionTest, ASilentConnectionDoesNotHoldUpTheEnd) {
  ASSERT_NO_FATAL_FAILURE(start_job(1));
  auto silent = make_peer("stranger");
  ASSERT_OK(silent->connect());
  pass(1_s);
  const base::Nanos begin = world_.now();
  ASSERT_NO_FATAL_FAILURE(finish_job());
  EXPECT_LT(world_.now() - begin, 1_s);
}

}  // namespace
}  // namespace perdure::runtime::coordinator
