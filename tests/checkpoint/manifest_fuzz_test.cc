// Mutations of good manifests: of their bytes, of their JSON with a last line that fits, and of
// their values. The seed is printed first; --seed repeats a run.

#include <algorithm>

#include "base/random.h"
#include "tests/checkpoint/manifest_samples.h"
#include "tests/testing/matchers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace perdure::checkpoint {
namespace {

using base::SeededRandom;
using base::StatusCode;
using testing::manifest_text;
using testing::StatusIs;

// Exactly sized on the heap, so that ASan sees a read past the end.
bool is_taken(const std::string& text) {
  const std::vector<char> bytes(text.begin(), text.end());
  const std::span<const char> span = bytes;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  return parse_manifest(std::as_bytes(span), "fuzz").is_ok();
}

// Tensors cut into slices along one dimension, in the files in any order.
Manifest random_manifest(SeededRandom& random) {
  constexpr ElementType kTypes[] = {ElementType::kU8, ElementType::kBF16, ElementType::kF32,
                                    ElementType::kI64};
  Manifest manifest = {.step = random.next_u64(),
                       .epoch = random.uniform_int(100),
                       .attempt = random.next_u64(),
                       .model = "m",
                       .counters = {{"c", random.next_u64()}}};
  manifest.files.resize(1 + random.uniform_int(3));
  for (size_t f = 0; f < manifest.files.size(); ++f) {
    manifest.files[f].name = "file-" + std::to_string(f);
    manifest.files[f].bytes = random.uniform_int(100);
    manifest.files[f].hash = random.next_u64();
  }
  const size_t tensors = random.uniform_int(5);
  for (size_t t = 0; t < tensors; ++t) {
    TensorRecord& tensor = manifest.tensors.emplace_back();
    tensor.name = std::string(1, static_cast<char>('a' + t));
    tensor.type = kTypes[random.uniform_int(std::size(kTypes))];
    tensor.shape.resize(1 + random.uniform_int(3));
    for (int64_t& size : tensor.shape) size = static_cast<int64_t>(random.uniform_int(6));
    for (int64_t at = 0; at < tensor.shape[0];) {
      Box box = whole(tensor.shape);
      box.offset[0] = at;
      box.size[0] =
          std::min<int64_t>(tensor.shape[0] - at, 1 + static_cast<int64_t>(random.uniform_int(3)));
      at += box.size[0];
      const auto f = static_cast<uint32_t>(random.uniform_int(manifest.files.size()));
      uint64_t& end = manifest.files[f].bytes;
      const uint64_t bytes = *element_count(box.size) * size_bits(tensor.type) / 8;
      tensor.chunks.push_back(testing::made_up_chunk(box, f, end, bytes));
      end += bytes + random.uniform_int(2);
    }
  }
  if (tensors > 0 && random.bernoulli(0.3)) {
    TensorRecord tied = manifest.tensors[0];
    tied.name = "z.tied";
    tied.alias_of = "a";
    tied.chunks.clear();
    manifest.tensors.push_back(std::move(tied));
  }
  return manifest;
}

TEST(ManifestFuzzTest, RandomManifestsSurviveTheRoundTrip) {
  SeededRandom random(testing::test_seed());
  for (int round = 0; round < 3000; ++round) {
    const Manifest manifest = random_manifest(random);
    ASSERT_OK(check_manifest(manifest)) << manifest_text(manifest);
    ASSERT_TRUE(is_taken(manifest_text(manifest)));
  }
}

std::string random_number(SeededRandom& random) {
  static constexpr const char* kNumbers[] = {
      "0",   "1",    "-1",   "9223372036854775807",  "9223372036854775808", "18446744073709551615",
      "1.0", "1e9",  "-0",   "18446744073709551616", "4294967296",          "4611686018427387904",
      "[]",  "null", "true", "99999999999999999999"};
  if (random.bernoulli(0.5)) return kNumbers[random.uniform_int(std::size(kNumbers))];
  return std::to_string(random.uniform_int(20));
}

void mutate_text(SeededRandom& random, std::string& json) {
  if (json.empty()) return;
  const size_t at = random.uniform_int(json.size());
  switch (random.uniform_int(7)) {
    case 0:
      json[at] = static_cast<char>(json[at] ^ (1 << random.uniform_int(8)));
      break;
    case 1:
      json.erase(at, 1 + random.uniform_int(12));
      break;
    case 2:  // a part twice: keys too
      json.insert(at, json.substr(random.uniform_int(json.size()), random.uniform_int(120)));
      break;
    case 3:
      json.insert(at, 1, "{}[],:\"\\ \n"[random.uniform_int(10)]);
      break;
    case 4: {
      static constexpr const char* kWords[] = {
          "\"alias_of\": \"a\", ", "\"pieces\": [], ", "\\u0000",
          "\"step\": 1, ",         "{\"name\": \"",    "../",
          "perdure-manifest 1 "};
      json.insert(at, kWords[random.uniform_int(std::size(kWords))]);
      break;
    }
    default: {  // another number
      const size_t digit = json.find_first_of("0123456789", at);
      if (digit == std::string::npos) break;
      const size_t end = json.find_first_not_of("0123456789", digit);
      json.replace(digit, std::min(end, json.size()) - digit, random_number(random));
    }
  }
}

TEST(ManifestFuzzTest, ChangedTextsAreRefusedOrKeepAllPromises) {
  SeededRandom random(testing::test_seed());
  constexpr int kRounds = 8'000;
  int taken = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::string json = testing::without_last_line(manifest_text(random_manifest(random)));
    for (size_t count = random.uniform_int(4); count > 0; --count) mutate_text(random, json);
    taken += is_taken(testing::with_last_line(json)) ? 1 : 0;
  }
  EXPECT_GT(taken, kRounds / 10);
  EXPECT_LT(taken, kRounds * 6 / 10);
}

// The bytes as the disk gives them: the hash refuses all.
TEST(ManifestFuzzTest, ChangedFilesAreRefused) {
  SeededRandom random(testing::test_seed());
  for (int round = 0; round < 8'000; ++round) {
    const std::string good = manifest_text(random_manifest(random));
    std::string text = good;
    mutate_text(random, text);
    if (text == good) continue;
    ASSERT_THAT(parse_manifest(base::as_byte_span(text), "fuzz"), StatusIs(StatusCode::kDataLoss))
        << text;
  }
}

// One number of one record is another one: the check says what, or nothing was wrong with it.
TEST(ManifestFuzzTest, ChangedValuesAreRefusedOrKeepAllPromises) {
  SeededRandom random(testing::test_seed());
  int taken = 0;
  constexpr int kRounds = 5'000;
  for (int round = 0; round < kRounds; ++round) {
    Manifest manifest = random_manifest(random);
    if (manifest.tensors.empty() || manifest.tensors[0].chunks.empty()) continue;
    TensorRecord& tensor = manifest.tensors[0];
    ChunkRecord& chunk = tensor.chunks[random.uniform_int(tensor.chunks.size())];
    const size_t dimension = random.uniform_int(tensor.shape.size());
    const uint64_t value =
        random.bernoulli(0.2) ? ~uint64_t{0} >> random.uniform_int(64) : random.uniform_int(40);
    const auto positive = static_cast<int64_t>(value >> 1);
    switch (random.uniform_int(8)) {
      case 0:
        chunk.offset = value;
        break;
      case 1:
        chunk.bytes = value;
        break;
      case 2:
        chunk.file = static_cast<uint32_t>(value);
        break;
      case 3:
        chunk.box.offset[dimension] = positive;
        break;
      case 4:
        chunk.box.size[dimension] = positive;
        break;
      case 5:
        tensor.shape[dimension] = positive;
        break;
      case 6:
        manifest.files[0].bytes = value;
        break;
      default:
        tensor.type = static_cast<ElementType>(random.uniform_int(22));
        break;
    }
    const bool is_good = check_manifest(manifest).is_ok();
    ASSERT_EQ(is_taken(manifest_text(manifest)), is_good);
    taken += is_good ? 1 : 0;
  }
  EXPECT_GT(taken, kRounds / 50);
  EXPECT_LT(taken, kRounds / 2);
}

}  // namespace
}  // namespace perdure::checkpoint
