// Random checkpoints, written in one layout and read in another, compared with a dense copy element
// by element. Some sources have flipped bits, cut files or none. The seed is printed first; --seed
// repeats a run.

#include <set>

#include "checkpoint/checkpoint_reader.h"
#include "tests/checkpoint/reader_fixtures.h"
#include "tests/testing/matchers.h"

namespace perdure::checkpoint {
namespace {

using base::SeededRandom;
using perdure::testing::test_seed;
using testing::CheckpointMaker;
using testing::MemorySource;
using testing::WantedList;

constexpr ElementType kTypes[] = {ElementType::kU8, ElementType::kBF16, ElementType::kF32,
                                  ElementType::kI64};

Shape random_shape(SeededRandom& random) {
  Shape shape(random.uniform_int(5));
  for (int64_t& size : shape) {
    size = random.bernoulli(0.03) ? 0 : static_cast<int64_t>(1 + random.uniform_int(9));
  }
  return shape;
}

std::string odd_name(SeededRandom& random, size_t index) {
  static constexpr const char* kParts[] = {
      "model.layers.0", "a/b", "\"quoted\"", "\\", "\u00fc", " ", "../x", "\U0001F600", "%s", "\n"};
  return std::string(kParts[random.uniform_int(std::size(kParts))]) + std::to_string(index);
}

struct RandomCheckpoint {
  CheckpointMaker maker;
  Manifest manifest;
};

RandomCheckpoint random_checkpoint(SeededRandom& random) {
  const size_t files = 1 + random.uniform_int(4);
  RandomCheckpoint made = {.maker = CheckpointMaker(files)};
  std::vector<std::string> names;
  for (size_t t = 1 + random.uniform_int(6); t > 0; --t) {
    const Shape shape = random_shape(random);
    const ElementType type = kTypes[random.uniform_int(std::size(kTypes))];
    std::vector<CheckpointMaker::Part> parts;
    for (const Box& box : testing::random_tiling(random, shape, 6)) {
      parts.push_back({box, static_cast<uint32_t>(random.uniform_int(files)),
                       random.bernoulli(0.2) ? random.uniform_int(300) : 0});
    }
    names.push_back(odd_name(random, t));
    const size_t bytes = *element_count(shape) * testing::element_bytes(type);
    made.maker.add(names.back(), type, shape, testing::random_bytes(random, bytes), parts);
  }
  if (random.bernoulli(0.5)) {
    made.maker.add_alias("tied", names[random.uniform_int(names.size())]);
  }
  made.manifest = made.maker.finish();
  return made;
}

// Another layout of everything, or a few boxes here and there.
void want_something(SeededRandom& random, const Manifest& manifest, WantedList& wanted) {
  for (const TensorRecord& tensor : manifest.tensors) {
    if (random.bernoulli(0.7)) {
      for (const Box& box : testing::random_tiling(random, tensor.shape, 6)) {
        wanted.add(tensor.name, box);
      }
      continue;
    }
    const bool has_zero = is_empty(whole(tensor.shape));
    for (size_t i = random.uniform_int(4); i > 0 && !has_zero; --i) {
      wanted.add(tensor.name, testing::random_box(random, tensor.shape));
    }
  }
}

// What is wrong with a source, or nothing.
void harm(SeededRandom& random, MemorySource& source) {
  for (auto file = source.files.begin(); file != source.files.end();) {
    const auto here = file++;
    testing::Bytes& image = here->second;
    switch (random.uniform_int(5)) {
      case 0: {
        std::byte& byte = image[random.uniform_int(image.size())];
        byte ^= static_cast<std::byte>(1 << random.uniform_int(8));
        break;
      }
      case 1:
        image.resize(random.uniform_int(image.size()));
        break;
      case 2:
        source.files.erase(here);
        break;
      default:
        break;
    }
  }
}

LoadOptions random_options(SeededRandom& random) {
  return {.over_read_max = random.bernoulli(0.5) ? 1.25 : 1.0 + random.uniform_double(),
          .gap_bytes_max = random.uniform_int(500),
          .scratch_bytes_max = 1 + random.uniform_int(random.bernoulli(0.5) ? 200 : 100'000)};
}

TEST(ReshardFuzzTest, AnyLayoutLoadsAnyOther) {
  SeededRandom random(test_seed());
  uint64_t bytes = 0;
  for (int round = 0; round < 1500; ++round) {
    RandomCheckpoint made = random_checkpoint(random);
    ASSERT_OK(check_manifest(made.manifest));
    MemorySource source("s", made.maker.images());
    FileSource* const sources[] = {&source};
    WantedList wanted(made.manifest, made.maker);
    want_something(random, made.manifest, wanted);
    const LoadOptions options = random_options(random);
    ASSERT_OK_AND_ASSIGN(const LoadReport report,
                         load_tensors(made.manifest, wanted.list(), sources, options));
    ASSERT_EQ(wanted.first_wrong(), wanted.list().size()) << "round " << round;
    ASSERT_TRUE(report.bad.empty());
    ASSERT_TRUE(source.wrong_ranges.empty());
    ASSERT_EQ(report.read_bytes, source.read_bytes);
    ASSERT_TRUE(verify_files(made.manifest, source, options).empty());
    bytes += report.wanted_bytes;
  }
  EXPECT_GT(bytes, 1'000'000u);
}

// What loads is right, whatever the sources are like; what does not load had no good copy.
TEST(ReshardFuzzTest, BadBytesAreNeverUsed) {
  SeededRandom random(test_seed());
  int loaded = 0;
  int lost = 0;
  int healed = 0;
  for (int round = 0; round < 3000; ++round) {
    RandomCheckpoint made = random_checkpoint(random);
    std::vector<std::unique_ptr<MemorySource>> sources;
    std::vector<FileSource*> pointers;
    const size_t count = 1 + random.uniform_int(3);
    const size_t good = random.uniform_int(2 * count);  // that source is left alone, if there
    for (size_t s = 0; s < count; ++s) {
      sources.push_back(
          std::make_unique<MemorySource>("source " + std::to_string(s), made.maker.images()));
      if (s != good) harm(random, *sources.back());
      pointers.push_back(sources.back().get());
    }
    WantedList wanted(made.manifest, made.maker);
    want_something(random, made.manifest, wanted);
    const auto report =
        load_tensors(made.manifest, wanted.list(), pointers, random_options(random));
    if (report.is_ok()) {
      ASSERT_EQ(wanted.first_wrong(), wanted.list().size()) << "round " << round;
      ++loaded;
      healed += report->bad.empty() ? 0 : 1;
      for (const BadSource& bad : report->bad) {
        ASSERT_THAT(bad.why, perdure::testing::StatusIs(base::StatusCode::kDataLoss));
      }
      continue;
    }
    ++lost;
    ASSERT_GE(good, count) << report.status();
    ASSERT_THAT(report, perdure::testing::StatusIs(base::StatusCode::kDataLoss,
                                                   ::testing::HasSubstr("no source has good")));
  }
  EXPECT_GT(healed, 300);
  EXPECT_GT(lost, 300);
  EXPECT_GT(loaded, 1000);
}

// Chunks of several pieces, rows and columns.
TEST(ReshardFuzzTest, LargeTensorsInSeveralPieces) {
  SeededRandom random(test_seed());
  for (int round = 0; round < 6; ++round) {
    const Shape shape = {static_cast<int64_t>(900 + random.uniform_int(300)),
                         static_cast<int64_t>(900 + random.uniform_int(300))};
    CheckpointMaker maker(2);
    std::vector<CheckpointMaker::Part> parts;
    for (const Box& box : testing::random_tiling(random, shape, 3)) {
      parts.push_back({box, static_cast<uint32_t>(random.uniform_int(2))});
    }
    const size_t bytes = *element_count(shape) * 8;
    maker.add("a", ElementType::kF64, shape, testing::random_bytes(random, bytes), parts);
    const Manifest manifest = maker.finish();
    MemorySource bad("bad", maker.images());
    MemorySource good("good", maker.images());
    for (auto& [name, image] : bad.files) image[random.uniform_int(image.size())] ^= std::byte{4};
    FileSource* const sources[] = {&bad, &good};
    WantedList wanted(manifest, maker);
    for (const Box& box : testing::random_tiling(random, shape, 5)) wanted.add("a", box);
    ASSERT_OK_AND_ASSIGN(
        const LoadReport report,
        load_tensors(manifest, wanted.list(), sources, {.scratch_bytes_max = uint64_t{6} << 20}));
    ASSERT_EQ(wanted.first_wrong(), wanted.list().size()) << "round " << round;
    ASSERT_LE(report.bad.size(), 2u);
    ASSERT_LE(report.read_bytes, bytes + report.bad.size() * kPieceBytes);
  }
}

}  // namespace
}  // namespace perdure::checkpoint
