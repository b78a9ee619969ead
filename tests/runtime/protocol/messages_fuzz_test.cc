// Every message: what was written is read; what was cut, lengthened, flipped or made up is refused
// or read as something else, in bounded memory, without a crash.

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "base/random.h"
#include "runtime/protocol/epoch_messages.h"
#include "runtime/protocol/node_messages.h"
#include "runtime/protocol/report_messages.h"
#include "tests/runtime/protocol/heap_meter.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::protocol {
namespace {

using base::StatusCode;
using ::perdure::testing::StatusIs;
using ::perdure::testing::test_seed;

// Fills the fields that a message lists with random values.
class Filler {
 public:
  explicit Filler(base::SeededRandom& random) : random_(random) {}
  template <typename... T>
  void operator()(T&... values) {
    (fill(values), ...);
  }
  template <typename T>
  void fill(T& value) {
    if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) {
      value = static_cast<T>(random_.next_u64());
    } else if constexpr (std::is_same_v<T, double>) {
      value = random_.normal();
    } else if constexpr (rpc::HasVisit<Filler, T>) {
      value.visit(*this);
    } else {
      visit_fields(*this, value);
    }
  }
  template <typename T>
  void fill(std::vector<T>& values) {
    values.resize(random_.uniform_int(4));
    for (T& value : values) fill(value);
  }
  template <typename Tag, typename Int>
  void fill(base::StrongId<Tag, Int>& id) {
    id = base::StrongId<Tag, Int>(static_cast<Int>(random_.next_u64()));
  }
  void fill(std::string& text) {
    text.resize(random_.uniform_int(12));
    for (char& c : text) c = static_cast<char>(random_.next_u64());
  }

 private:
  base::SeededRandom& random_;
};

using rpc::Payload;

// What the tests need of a message, so that they are compiled once and not once per message.
struct MessageCase {
  uint16_t type;
  size_t more_bytes;  // memory that decoding may take whatever the input's length
  Payload (*make)(base::SeededRandom& random);
  base::Result<Payload> (*reencode)(base::ByteSpan bytes);
  base::Status (*decode)(base::ByteSpan bytes);
  rpc::Frame (*frame_of)(base::ByteSpan bytes, const rpc::Stamp& stamp);
  base::Result<Payload> (*unframe)(const rpc::Frame& frame);
};

template <typename M>
MessageCase case_of() {
  return {
      .type = static_cast<uint16_t>(M::kType),
      // A layout travels in short; its limit is 2^16 stages (parallel/layout_runs.h).
      .more_bytes = std::is_same_v<M, Prepare> ? 16u << 20 : 4096u,
      .make =
          [](base::SeededRandom& random) {
            M message{};
            Filler filler(random);
            filler(message);
            return rpc::to_bytes(message);
          },
      .reencode = [](base::ByteSpan bytes) -> base::Result<Payload> {
        ASSIGN_OR_RETURN(const M read, rpc::from_bytes<M>(bytes));
        return rpc::to_bytes(read);
      },
      .decode = [](base::ByteSpan bytes) { return rpc::from_bytes<M>(bytes).status(); },
      .frame_of =
          [](base::ByteSpan bytes, const rpc::Stamp& stamp) {
            return to_frame(rpc::from_bytes<M>(bytes).value(), stamp);
          },
      .unframe = [](const rpc::Frame& frame) -> base::Result<Payload> {
        ASSIGN_OR_RETURN(const M read, from_frame<M>(frame));
        return rpc::to_bytes(read);
      },
  };
}

template <typename... M>
std::vector<MessageCase> cases_of() {
  return {case_of<M>()...};
}

class MessageTest : public ::testing::TestWithParam<MessageCase> {
 protected:
  Payload random_message() { return GetParam().make(random_); }

  // Decodes, and looks at how much memory that takes. The smallest element on the wire is a length
  // of 4 bytes; in memory it is a string of 32, in a vector that doubles.
  static base::Status decode(base::ByteSpan bytes) {
    constexpr size_t kTimes = 32;
    testing::reset_heap_peak();
    const size_t before = testing::heap_bytes();
    const base::Status status = GetParam().decode(bytes);
    EXPECT_LE(testing::heap_peak_bytes() - before, bytes.size() * kTimes + GetParam().more_bytes);
    return status;
  }
  static void expect_read_or_refused(base::ByteSpan bytes) {
    const base::Status status = decode(bytes);
    EXPECT_TRUE(status.is_ok() || status.code() == StatusCode::kDataLoss) << status;
  }

  base::SeededRandom random_{test_seed(), GetParam().type};
};

INSTANTIATE_TEST_SUITE_P(
    Every, MessageTest,
    ::testing::ValuesIn(
        cases_of<NodeJoin, NodeWelcome, Beat, BeatAck, WorkerUp, WorkerDown, FromWorkers, ToWorkers,
                 EndWorker, Dismiss, WorkerJob, Fence, StateTold, AskVote, VoteTold, ApplyVote,
                 Prepare, Prepared, Load, Loaded, Go, Hold, Stopped, StepReport, EvaluationReport,
                 Finished, AskReports, Restore, StatusAsk, StatusTold>()),
    [](const auto& test) { return "type" + std::to_string(test.param.type); });

TEST_P(MessageTest, WhatWasWrittenIsReadAndNothingElse) {
  for (int round = 0; round < 50; ++round) {
    const Payload bytes = random_message();
    ASSERT_OK_AND_ASSIGN(const Payload again, GetParam().reencode(bytes));
    EXPECT_EQ(again, bytes);
    for (size_t cut = 0; cut < bytes.size(); ++cut) {
      EXPECT_THAT(decode(std::span(bytes).first(cut)), StatusIs(StatusCode::kDataLoss));
    }
    Payload longer = bytes;
    longer.push_back(std::byte{0});
    EXPECT_THAT(decode(longer), StatusIs(StatusCode::kDataLoss));
  }
}

TEST_P(MessageTest, FlippedBitsNeverDoMoreThanFail) {
  for (int round = 0; round < 5; ++round) {
    const Payload bytes = random_message();
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      Payload flipped = bytes;
      flipped[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      expect_read_or_refused(flipped);
    }
  }
}

// Any four bytes may be a length.
TEST_P(MessageTest, HugeLengthsTakeNoMemory) {
  for (int round = 0; round < 5; ++round) {
    const Payload bytes = random_message();
    for (size_t at = 0; at + 4 <= bytes.size(); ++at) {
      for (const uint32_t length : {0xffffffffu, 0x7fffffffu, 0x00400000u, 0x00010000u}) {
        Payload huge = bytes;
        for (size_t i = 0; i < 4; ++i) huge[at + i] = static_cast<std::byte>(length >> (8 * i));
        expect_read_or_refused(huge);
      }
    }
  }
}

TEST_P(MessageTest, RandomBytesNeverDoMoreThanFail) {
  for (int round = 0; round < 2000; ++round) {
    Payload bytes(random_.uniform_int(200));
    const bool is_sparse = random_.bernoulli(0.5);  // small lengths lead further in
    for (std::byte& b : bytes) {
      b = static_cast<std::byte>(is_sparse ? random_.uniform_int(3) : random_.next_u64());
    }
    expect_read_or_refused(bytes);
  }
}

// A megabyte of zeros is as many elements as there can be.
TEST_P(MessageTest, ALargePayloadTakesBoundedMemory) {
  Payload bytes(1u << 20);
  for (size_t i = 2; i < 64; i += 4) bytes[i] = std::byte{4};
  expect_read_or_refused(bytes);
  expect_read_or_refused(Payload(1u << 20));
}

TEST_P(MessageTest, AFrameCarriesItUnderItsTypeOnly) {
  const Payload bytes = random_message();
  const rpc::Stamp stamp{.epoch = base::Epoch(4), .incarnation = base::Incarnation(2)};
  rpc::Frame frame = GetParam().frame_of(bytes, stamp);
  EXPECT_EQ(frame.stamp.epoch, base::Epoch(4));
  EXPECT_EQ(frame.type, GetParam().type);
  EXPECT_EQ(frame.payload, bytes);
  ASSERT_OK_AND_ASSIGN(const Payload read, GetParam().unframe(frame));
  EXPECT_EQ(read, bytes);
  ++frame.type;
  EXPECT_THAT(GetParam().unframe(frame), StatusIs(StatusCode::kDataLoss));
}

TEST(ActivityTest, EveryOneHasAName) {
  for (const auto& [activity, name] :
       {std::pair(Activity::kIdle, "idle"), std::pair(Activity::kPreparing, "preparing"),
        std::pair(Activity::kLoaded, "loaded"), std::pair(Activity::kRunning, "running"),
        std::pair(Activity::kStopped, "stopped"), std::pair(Activity::kFinished, "finished"),
        std::pair(static_cast<Activity>(99), "unknown")}) {
    EXPECT_EQ(to_string(activity), name);
  }
}

}  // namespace
}  // namespace perdure::runtime::protocol
