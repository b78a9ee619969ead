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

template <typename M>
M random_message(base::SeededRandom& random) {
  M message{};
  Filler filler(random);
  filler(message);
  return message;
}

using rpc::Payload;

// Decodes, and looks at how much memory that takes. The smallest element on the wire is a length of
// 4 bytes; in memory it is a string of 32, in a vector that doubles.
template <typename M>
base::Status decode(base::ByteSpan bytes) {
  constexpr size_t kTimes = 32;
  // A layout travels in short; its limit is 2^16 stages (parallel/layout_runs.h).
  constexpr size_t kMore = std::is_same_v<M, Prepare> ? 16 << 20 : 4096;
  testing::reset_heap_peak();
  const size_t before = testing::heap_bytes();
  const base::Status status = rpc::from_bytes<M>(bytes).status();
  EXPECT_LE(testing::heap_peak_bytes() - before, bytes.size() * kTimes + kMore);
  return status;
}

template <typename M>
class MessageTest : public ::testing::Test {
 protected:
  base::SeededRandom random_{test_seed(), static_cast<uint64_t>(M::kType)};
};

using Messages =
    ::testing::Types<NodeJoin, NodeWelcome, Beat, BeatAck, WorkerUp, WorkerDown, FromWorkers,
                     ToWorkers, EndWorker, Dismiss, WorkerJob, Fence, StateTold, AskVote, VoteTold,
                     ApplyVote, Prepare, Prepared, Load, Loaded, Go, Hold, Stopped, StepReport,
                     EvaluationReport, Finished, AskReports, StatusAsk, StatusTold>;
TYPED_TEST_SUITE(MessageTest, Messages);

TYPED_TEST(MessageTest, WhatWasWrittenIsReadAndNothingElse) {
  for (int round = 0; round < 50; ++round) {
    const Payload bytes = rpc::to_bytes(random_message<TypeParam>(this->random_));
    ASSERT_OK_AND_ASSIGN(const TypeParam read, rpc::from_bytes<TypeParam>(bytes));
    EXPECT_EQ(rpc::to_bytes(read), bytes);
    for (size_t cut = 0; cut < bytes.size(); ++cut) {
      EXPECT_THAT(decode<TypeParam>(std::span(bytes).first(cut)), StatusIs(StatusCode::kDataLoss));
    }
    Payload longer = bytes;
    longer.push_back(std::byte{0});
    EXPECT_THAT(decode<TypeParam>(longer), StatusIs(StatusCode::kDataLoss));
  }
}

TYPED_TEST(MessageTest, FlippedBitsNeverDoMoreThanFail) {
  for (int round = 0; round < 5; ++round) {
    const Payload bytes = rpc::to_bytes(random_message<TypeParam>(this->random_));
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      Payload flipped = bytes;
      flipped[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      const base::Status status = decode<TypeParam>(flipped);
      EXPECT_TRUE(status.is_ok() || status.code() == StatusCode::kDataLoss) << status;
    }
  }
}

// Any four bytes may be a length.
TYPED_TEST(MessageTest, HugeLengthsTakeNoMemory) {
  for (int round = 0; round < 5; ++round) {
    const Payload bytes = rpc::to_bytes(random_message<TypeParam>(this->random_));
    for (size_t at = 0; at + 4 <= bytes.size(); ++at) {
      for (const uint32_t length : {0xffffffffu, 0x7fffffffu, 0x00400000u, 0x00010000u}) {
        Payload huge = bytes;
        for (size_t i = 0; i < 4; ++i) huge[at + i] = static_cast<std::byte>(length >> (8 * i));
        const base::Status status = decode<TypeParam>(huge);
        EXPECT_TRUE(status.is_ok() || status.code() == StatusCode::kDataLoss) << status;
      }
    }
  }
}

TYPED_TEST(MessageTest, RandomBytesNeverDoMoreThanFail) {
  for (int round = 0; round < 2000; ++round) {
    Payload bytes(this->random_.uniform_int(200));
    const bool is_sparse = this->random_.bernoulli(0.5);  // small lengths lead further in
    for (std::byte& b : bytes) {
      b = static_cast<std::byte>(is_sparse ? this->random_.uniform_int(3)
                                           : this->random_.next_u64());
    }
    const base::Status status = decode<TypeParam>(bytes);
    EXPECT_TRUE(status.is_ok() || status.code() == StatusCode::kDataLoss) << status;
  }
}

// A megabyte of zeros is as many elements as there can be.
TYPED_TEST(MessageTest, ALargePayloadTakesBoundedMemory) {
  Payload bytes(1u << 20);
  for (size_t i = 2; i < 64; i += 4) bytes[i] = std::byte{4};
  (void)decode<TypeParam>(bytes).is_ok();
  (void)decode<TypeParam>(Payload(1u << 20)).is_ok();
}

TYPED_TEST(MessageTest, AFrameCarriesItUnderItsTypeOnly) {
  const TypeParam message = random_message<TypeParam>(this->random_);
  const rpc::Stamp stamp{.epoch = base::Epoch(4), .incarnation = base::Incarnation(2)};
  rpc::Frame frame = to_frame(message, stamp);
  EXPECT_EQ(frame.stamp.epoch, base::Epoch(4));
  EXPECT_EQ(frame.type, static_cast<uint16_t>(TypeParam::kType));
  ASSERT_OK_AND_ASSIGN(const TypeParam read, from_frame<TypeParam>(frame));
  EXPECT_EQ(rpc::to_bytes(read), frame.payload);
  ++frame.type;
  EXPECT_THAT(from_frame<TypeParam>(frame), StatusIs(StatusCode::kDataLoss));
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
