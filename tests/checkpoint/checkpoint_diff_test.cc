#include "checkpoint/checkpoint_diff.h"

#include "tests/checkpoint/manifest_samples.h"
#include "tests/testing/matchers.h"

namespace perdure::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::made_up_chunk;
using testing::sample_manifest;

std::vector<std::string> texts(const Manifest& first, const Manifest& second) {
  EXPECT_OK(check_manifest(first));
  EXPECT_OK(check_manifest(second));
  std::vector<std::string> all;
  for (const TensorDifference& difference : diff_manifests(first, second).tensors) {
    all.push_back(to_string(difference));
  }
  return all;
}

TEST(CheckpointDiffTest, EqualOnesDoNotDiffer) {
  const ManifestDifference difference = diff_manifests(sample_manifest(), sample_manifest());
  EXPECT_THAT(difference.tensors, IsEmpty());
  EXPECT_EQ(difference.equal_tensors, 5u);
  EXPECT_THAT(diff_manifests({}, {}).tensors, IsEmpty());
}

TEST(CheckpointDiffTest, WhereTheBytesLieDoesNotMatter) {
  Manifest second = sample_manifest();
  second.step = 9;
  second.layout = "another";
  second.files[0].name = "other";
  second.files[0].bytes += 1000;
  second.tensors[0].chunks[0].offset += 500;
  std::swap(second.tensors[0].chunks[0], second.tensors[0].chunks[1]);
  second.tensors[1].chunks.clear();  // it has no elements
  EXPECT_THAT(texts(sample_manifest(), second), IsEmpty());
}

TEST(CheckpointDiffTest, NamesTensorsThatOneLacks) {
  Manifest first = sample_manifest();
  Manifest second = sample_manifest();
  first.tensors.erase(first.tensors.begin() + 1);
  second.tensors.erase(second.tensors.begin() + 2);
  second.tensors.pop_back();
  EXPECT_THAT(texts(first, second), ElementsAre("b.none: only in the second: F32 [0:0, 0:5]",
                                                "c.scalar: only in the first: I64 []",
                                                "e.tied: only in the first: BF16 [0:8, 0:8]"));
  EXPECT_EQ(diff_manifests(first, second).equal_tensors, 2u);
  EXPECT_THAT(texts(sample_manifest(), {}), ::testing::SizeIs(5));
  EXPECT_THAT(texts({}, sample_manifest()), ::testing::SizeIs(5));
}

TEST(CheckpointDiffTest, TypesAndShapesAreNotMixedWithContent) {
  Manifest second = sample_manifest();
  second.tensors[0].type = ElementType::kF16;
  second.tensors[4].type = ElementType::kF16;
  second.tensors[1].shape = {0, 6};
  second.tensors[1].chunks.clear();
  second.tensors[2].shape = {1};
  second.tensors[2].chunks[0].box = {{0}, {1}};
  EXPECT_THAT(
      texts(sample_manifest(), second),
      ElementsAre("a.weight: type: BF16 and F16", "b.none: shape: [0:0, 0:5] and [0:0, 0:6]",
                  "c.scalar: shape: [] and [0:1]", "e.tied: type: BF16 and F16"));
}

TEST(CheckpointDiffTest, CountsThePiecesThatDiffer) {
  Manifest second = sample_manifest();
  second.tensors[3].chunks[0].piece_hashes[0] ^= 1;
  second.tensors[3].chunks[0].piece_hashes[2] ^= 1;
  const ManifestDifference difference = diff_manifests(sample_manifest(), second);
  EXPECT_THAT(difference.tensors,
              ElementsAre(TensorDifference{TensorDifference::Kind::kContent, "d.large",
                                           "2 of 3 pieces differ", (4 << 20) + (1 << 20)}));
  EXPECT_EQ(difference.equal_tensors, 4u);
}

TEST(CheckpointDiffTest, ATiedTensorDiffersWithTheOneThatItIsTiedTo) {
  Manifest second = sample_manifest();
  second.tensors[0].chunks[1].piece_hashes[0] ^= 1;
  EXPECT_THAT(texts(sample_manifest(), second),
              ElementsAre("a.weight: content: 1 of 2 pieces differ",
                          "e.tied: content: 1 of 2 pieces differ"));
}

TEST(CheckpointDiffTest, TellsWhatIsTiedInOneOnly) {
  Manifest second = sample_manifest();
  second.files.push_back({.name = "third", .bytes = 128});
  second.tensors[4].alias_of.clear();
  second.tensors[4].chunks = second.tensors[0].chunks;
  for (ChunkRecord& chunk : second.tensors[4].chunks) {
    chunk.file = 2;
    chunk.offset = static_cast<uint64_t>(chunk.box.offset[0]) * 16;
  }
  EXPECT_THAT(texts(sample_manifest(), second),
              ElementsAre("e.tied: tied: tied to 'a.weight' and its own"));
  second.tensors[4].chunks[0].piece_hashes[0] ^= 1;
  EXPECT_THAT(texts(sample_manifest(), second),
              ElementsAre("e.tied: tied: tied to 'a.weight' and its own",
                          "e.tied: content: 1 of 2 pieces differ"));
}

TEST(CheckpointDiffTest, WhatIsCutInAnotherWayIsUnknownUnlessACommonPartDiffers) {
  Manifest second = sample_manifest();
  TensorRecord& tensor = second.tensors[0];
  tensor.chunks[1] = made_up_chunk({{4, 0}, {2, 8}}, 1, 0, 32);
  tensor.chunks.push_back(made_up_chunk({{6, 0}, {2, 8}}, 1, 32, 32));
  second.tensors.pop_back();
  Manifest first = sample_manifest();
  first.tensors.pop_back();
  EXPECT_THAT(texts(first, second),
              ElementsAre("a.weight: unknown: cut in another way: read both to compare them"));
  EXPECT_THAT(texts(second, first),
              ElementsAre("a.weight: unknown: cut in another way: read both to compare them"));
  tensor.chunks[0].piece_hashes[0] ^= 1;
  EXPECT_THAT(texts(first, second),
              ElementsAre("a.weight: content: 1 of 1 pieces that can be compared differ"));
}

}  // namespace
}  // namespace perdure::checkpoint
