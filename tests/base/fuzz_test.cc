// Random input for everything in base/ that reads what others wrote. Nothing may crash, hang or
// read out of bounds (run it under ASan); errors have the promised codes. The seed is printed
// first; --seed repeats a run.

#include <cstring>
#include <string>
#include <vector>

#include "base/codec.h"
#include "base/config.h"
#include "base/log.h"
#include "base/network.h"
#include "base/random.h"
#include "tests/testing/matchers.h"

namespace perdure::base {
namespace {

// Reads one field of a random kind; false at the end or after an error.
bool read_one(Decoder& in, SeededRandom& random, Status* error) {
  const size_t bytes_max = random.uniform_int(40);
  switch (random.uniform_int(9)) {
    case 0:
      *error = in.u8().status();
      break;
    case 1:
      *error = in.u16().status();
      break;
    case 2:
      *error = in.u32().status();
      break;
    case 3:
      *error = in.u64().status();
      break;
    case 4:
      *error = in.i64().status();
      break;
    case 5:
      *error = in.f64().status();
      break;
    case 6:
      *error = in.raw(bytes_max).status();
      break;
    case 7:
      *error = in.bytes(bytes_max).status();
      break;
    default:
      *error = in.string(bytes_max).status();
      break;
  }
  return error->is_ok() && in.left_bytes() > 0;
}

TEST(CodecFuzzTest, RandomBytesDecodeOrAreDataLoss) {
  SeededRandom random(testing::test_seed());
  int losses = 0;
  for (int round = 0; round < 20000; ++round) {
    // Exactly sized on the heap, so that ASan sees a read past the end.
    std::vector<std::byte> bytes(random.uniform_int(64));
    for (std::byte& b : bytes) {
      b = static_cast<std::byte>(random.bernoulli(0.5) ? 0 : random.next_u64());
    }
    Decoder in(bytes);
    Status error;
    size_t offset = 0;
    while (read_one(in, random, &error)) {
      ASSERT_GE(in.offset(), offset);
      offset = in.offset();
    }
    ASSERT_LE(in.offset(), bytes.size());
    if (error.is_ok()) continue;
    ASSERT_EQ(error.code(), StatusCode::kDataLoss) << error;
    ++losses;
  }
  EXPECT_GT(losses, 1000);
}

TEST(CodecFuzzTest, RandomFieldsSurviveTheRoundTrip) {
  SeededRandom random(testing::test_seed());
  for (int round = 0; round < 2000; ++round) {
    Encoder out;
    std::vector<uint64_t> numbers;
    std::vector<std::string> texts;
    const size_t field_count = random.uniform_int(20);
    for (size_t i = 0; i < field_count; ++i) {
      numbers.push_back(random.next_u64());
      texts.emplace_back(random.uniform_int(100), static_cast<char>(random.next_u64()));
      out.u64(numbers.back());
      out.u16(static_cast<uint16_t>(numbers.back()));
      out.string(texts.back());
    }
    Decoder in(out.bytes());
    for (size_t i = 0; i < field_count; ++i) {
      ASSERT_OK_AND_ASSIGN(const uint64_t number, in.u64());
      ASSERT_OK_AND_ASSIGN(const uint16_t low, in.u16());
      ASSERT_OK_AND_ASSIGN(const std::string text, in.string(100));
      ASSERT_EQ(number, numbers[i]);
      ASSERT_EQ(low, static_cast<uint16_t>(numbers[i]));
      ASSERT_EQ(text, texts[i]);
    }
    ASSERT_OK(in.finish());
  }
}

struct Job {
  int pipelines = 1;
  double rate = 0;
  std::string path;
  bool verbose = false;
  std::vector<std::string> hosts;
};

void declare(ConfigSchema& schema, Job& job) {
  schema.add_int("layout.pipelines", &job.pipelines, {.min = 1, .max = 8});
  schema.add_double("rate", &job.rate, {.min = 0, .max = 1});
  schema.add_string("data.path", &job.path);
  schema.add_bool("verbose", &job.verbose);
  schema.add_string_list("hosts", &job.hosts);
}

// Pieces of TOML in random order are more often nearly right than random bytes.
std::string random_toml(SeededRandom& random) {
  static constexpr const char* kPieces[] = {"layout",
                                            "pipelines",
                                            "rate",
                                            "data",
                                            "path",
                                            "verbose",
                                            "hosts",
                                            ".",
                                            "=",
                                            "[",
                                            "]",
                                            "[[",
                                            "]]",
                                            "{",
                                            "}",
                                            "\"",
                                            "'",
                                            "\n",
                                            "\r\n",
                                            " ",
                                            "\t",
                                            "#",
                                            ",",
                                            "1",
                                            "-9",
                                            "0.5",
                                            "1e400",
                                            "nan",
                                            "inf",
                                            "true",
                                            "\"text\"",
                                            "\\u00e9",
                                            "\\",
                                            "\"\"\"",
                                            "0x1F",
                                            "\u00e9",
                                            "\u0416",
                                            "\u2003",
                                            "\u3000",
                                            "1979-05-27",
                                            "99999999999999999999"};
  std::string text;
  for (size_t i = random.uniform_int(30); i > 0; --i) {
    if (random.bernoulli(0.03)) {
      text += static_cast<char>(random.next_u64());
    } else {
      text += kPieces[random.uniform_int(std::size(kPieces))];
    }
  }
  return text;
}

TEST(ConfigFuzzTest, AnyTextLoadsOrIsInvalid) {
  SeededRandom random(testing::test_seed());
  int loaded = 0;
  for (int round = 0; round < 20000; ++round) {
    Job job;
    ConfigSchema schema;
    declare(schema, job);
    const std::string text = random_toml(random);
    const Status status = schema.load_toml(text, "fuzz.toml");
    if (status.is_ok()) {
      ++loaded;
      ASSERT_GE(job.pipelines, 1);
      ASSERT_LE(job.pipelines, 8);
    } else {
      ASSERT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
      ASSERT_EQ(status.message().rfind("fuzz.toml:", 0), 0u) << status;
      ASSERT_EQ(job.pipelines, 1) << text;
    }
  }
  EXPECT_GT(loaded, 100);
}

TEST(ConfigFuzzTest, AnySettingIsTakenOrIsInvalid) {
  SeededRandom random(testing::test_seed());
  static constexpr const char* kKeys[] = {"layout.pipelines", "rate",  "data.path",
                                          "verbose",          "hosts", "x"};
  Job job;
  ConfigSchema schema;
  declare(schema, job);
  for (int round = 0; round < 20000; ++round) {
    const std::string setting = kKeys[random.uniform_int(std::size(kKeys))] + random_toml(random);
    const Status status = schema.set(setting);
    ASSERT_TRUE(status.is_ok() || status.code() == StatusCode::kInvalidArgument) << status;
    ASSERT_GE(job.pipelines, 1);
    ASSERT_LE(job.pipelines, 8);
    ASSERT_TRUE(job.rate >= 0 && job.rate <= 1) << setting;
  }
}

TEST(ParserFuzzTest, AddressesAndLogLevels) {
  SeededRandom random(testing::test_seed());
  static constexpr std::string_view kAlphabet = "a:0=,.[]-9info\0 ";
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (size_t i = random.uniform_int(12); i > 0; --i) {
      text += kAlphabet[random.uniform_int(kAlphabet.size())];
    }
    const auto address = Address::parse(text);
    if (address.is_ok()) {
      ASSERT_EQ(Address::parse(address->to_string())->to_string(), address->to_string());
    }
    const Status status = set_log_levels(text);
    ASSERT_TRUE(status.is_ok() || status.code() == StatusCode::kInvalidArgument);
  }
  set_all_log_levels(LogLevel::kInfo);
}

}  // namespace
}  // namespace perdure::base
