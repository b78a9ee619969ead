#include "checkpoint/checkpoint_reader.h"

#include "tests/checkpoint/reader_fixtures.h"
#include "tests/testing/matchers.h"

namespace perdure::checkpoint {
namespace {

using base::SeededRandom;
using base::StatusCode;
using perdure::testing::StatusIs;
using ::testing::AllOf;
using testing::Bytes;
using testing::CheckpointMaker;
using ::testing::HasSubstr;
using testing::MemorySource;
using ::testing::Not;
using testing::WantedList;

// A tensor of 20 MiB in three chunks of 8, 4 and 8 MiB (pieces 2, 1, 2) in two files, one of a few
// bytes, one without dimensions, one that is empty, and an alias.
class ReaderTest : public ::testing::Test {
 protected:
  struct Made {
    CheckpointMaker maker = CheckpointMaker(2);
    Manifest manifest;
    std::map<std::string, Bytes> images;
  };

  // Made once: the tests change only copies.
  static const Made& made() {
    static const Made the_one = make();
    return the_one;
  }

  static Made make() {
    SeededRandom random(perdure::testing::test_seed());
    Made made;
    const Shape big = {20, 131072};  // rows of 1 MiB
    made.maker.add(
        "big", ElementType::kF64, big, testing::random_bytes(random, 20 << 20),
        {{{{0, 0}, {8, 131072}}, 0}, {{{8, 0}, {4, 131072}}, 1}, {{{12, 0}, {8, 131072}}, 0}});
    made.maker.add("small", ElementType::kBF16, {3}, testing::random_bytes(random, 6),
                   {{{{0}, {1}}, 1, 7}, {{{1}, {2}}, 0, 5}});
    made.maker.add("scalar", ElementType::kI64, {}, testing::random_bytes(random, 8), {{{}, 1}});
    made.maker.add("none", ElementType::kF32, {4, 0}, {}, {});
    made.maker.add_alias("tied", "big");
    made.manifest = made.maker.finish();
    made.images = made.maker.images();
    return made;
  }

  ReaderTest() {
    first_ = std::make_unique<MemorySource>("slab of worker 3", made().images);
    second_ = std::make_unique<MemorySource>("node 2", made().images);
    sources_ = {first_.get(), second_.get()};
  }

  // Changes one bit of the byte at `offset` of a chunk of "big".
  void flip(MemorySource& source, size_t chunk, uint64_t offset) {
    const ChunkRecord& record = manifest_.find("big")->chunks[chunk];
    source.files[manifest_.files[record.file].name][record.offset + offset] ^= std::byte{0x10};
  }

  const std::string file0_ = "rank-0000.safetensors";
  const std::string file1_ = "rank-0001.safetensors";
  const CheckpointMaker& maker_ = made().maker;
  Manifest manifest_ = made().manifest;
  std::unique_ptr<MemorySource> first_, second_;
  std::vector<FileSource*> sources_;
};

TEST_F(ReaderTest, LoadsAllKindsOfTensors) {
  WantedList wanted(manifest_, maker_);
  wanted.add("big", {{6, 0}, {8, 131072}});
  wanted.add("tied", {{0, 131071}, {20, 1}});
  wanted.add("small", whole({3}));
  wanted.add("scalar", {});
  wanted.add("none", whole({4, 0}));
  wanted.add("small", {{3}, {0}});
  uint64_t done = 0;
  const LoadOptions options = {.on_progress = [&](uint64_t bytes) {
    EXPECT_GE(bytes, done);
    done = bytes;
  }};
  ASSERT_OK_AND_ASSIGN(const LoadReport report,
                       load_tensors(manifest_, wanted.list(), sources_, options));
  EXPECT_EQ(wanted.first_wrong(), wanted.list().size());
  EXPECT_EQ(report.wanted_bytes, (uint64_t{8} << 20) + 20 * 8 + 6 + 8);
  EXPECT_EQ(done, report.wanted_bytes);
  EXPECT_TRUE(report.bad.empty());
  EXPECT_EQ(report.read_bytes, first_->read_bytes);
  EXPECT_TRUE(second_->reads.empty());
  EXPECT_TRUE(first_->wrong_ranges.empty());
}

TEST_F(ReaderTest, NothingWantedIsNothingRead) { EXPECT_OK(load_tensors(manifest_, {}, {})); }

// Whole slices: what lies in pieces exactly is read exactly.
TEST_F(ReaderTest, ReadsEachByteOnce) {
  WantedList wanted(manifest_, maker_);
  for (const int64_t row : {0, 4, 8, 0, 2}) wanted.add("big", {{row, 0}, {4, 131072}});
  wanted.add("tied", {{0, 0}, {12, 131072}});
  ASSERT_OK_AND_ASSIGN(const LoadReport report, load_tensors(manifest_, wanted.list(), sources_));
  EXPECT_EQ(wanted.first_wrong(), wanted.list().size());
  EXPECT_EQ(report.read_bytes, 12u << 20);
  EXPECT_EQ(report.wanted_bytes, 32u << 20);
}

TEST_F(ReaderTest, OverReadsLittleForSlicesThatCutAPiece) {
  WantedList wanted(manifest_, maker_);
  wanted.add("big", {{0, 0}, {17, 131072}});
  ASSERT_OK_AND_ASSIGN(const LoadReport report, load_tensors(manifest_, wanted.list(), sources_));
  EXPECT_EQ(report.read_bytes, 20u << 20);
  EXPECT_LE(static_cast<double>(report.read_bytes), 1.25 * static_cast<double>(17 << 20));
}

TEST_F(ReaderTest, LooksOnlyIntoFilesThatItNeeds) {
  WantedList wanted(manifest_, maker_);
  wanted.add("big", {{8, 5}, {3, 7}});
  ASSERT_OK(load_tensors(manifest_, wanted.list(), sources_));
  EXPECT_FALSE(first_->reads.contains(file0_));
  EXPECT_EQ(first_->reads[file1_], 1);
}

TEST_F(ReaderTest, ScratchMemoryIsBounded) {
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{4} << 20, uint64_t{9} << 20}) {
    WantedList wanted(manifest_, maker_);
    wanted.add("big", whole({20, 131072}));
    first_->read_bytes_max = 0;
    ASSERT_OK(load_tensors(manifest_, wanted.list(), sources_, {.scratch_bytes_max = bytes}));
    EXPECT_EQ(wanted.first_wrong(), 1u);
    EXPECT_LE(first_->read_bytes_max, std::max(bytes, kPieceBytes));
  }
}

TEST_F(ReaderTest, AFlippedBitIsFoundNamedAndReadFromTheNextSource) {
  flip(*first_, 0, (5 << 20) + 3);
  WantedList wanted(manifest_, maker_);
  wanted.add("tied", {{4, 0}, {12, 131072}});
  ASSERT_OK_AND_ASSIGN(const LoadReport report, load_tensors(manifest_, wanted.list(), sources_));
  EXPECT_EQ(wanted.first_wrong(), 1u);
  ASSERT_EQ(report.bad.size(), 1u);
  EXPECT_EQ(report.bad[0].source, "slab of worker 3");
  EXPECT_EQ(report.bad[0].file, file0_);
  EXPECT_THAT(
      report.bad[0].why,
      StatusIs(StatusCode::kDataLoss, AllOf(HasSubstr("tensor 'big', piece 1 of [0:8, 0:131072]"),
                                            HasSubstr("the manifest says"))));
  EXPECT_EQ(report.read_bytes, (12u << 20) + (4u << 20));
  // Only the piece that was bad is read again.
  EXPECT_EQ(second_->read_bytes, 4u << 20);
}

TEST_F(ReaderTest, ABitThatNobodyNeedsHarmsNobody) {
  flip(*first_, 0, 3);
  WantedList wanted(manifest_, maker_);
  wanted.add("big", {{4, 0}, {4, 131072}});
  ASSERT_OK_AND_ASSIGN(const LoadReport report, load_tensors(manifest_, wanted.list(), sources_));
  EXPECT_TRUE(report.bad.empty());
  EXPECT_EQ(wanted.first_wrong(), 1u);
}

// Each source has one bad piece of the same file, another one: together they have all.
TEST_F(ReaderTest, TwoBadSourcesCanMakeOneGoodLoad) {
  flip(*first_, 0, 0);
  flip(*second_, 2, 0);
  WantedList wanted(manifest_, maker_);
  wanted.add("big", whole({20, 131072}));
  // One piece a batch: the second becomes first choice after the first piece.
  ASSERT_OK_AND_ASSIGN(const LoadReport report, load_tensors(manifest_, wanted.list(), sources_,
                                                             {.scratch_bytes_max = 4 << 20}));
  EXPECT_EQ(wanted.first_wrong(), 1u);
  ASSERT_EQ(report.bad.size(), 2u);
  EXPECT_EQ(report.bad[0].source, "slab of worker 3");
  EXPECT_EQ(report.bad[1].source, "node 2");
}

TEST_F(ReaderTest, WhenAllAreBadEachIsNamed) {
  flip(*first_, 1, 0);
  second_->errors[file1_] = base::data_loss("EIO at 4096");
  MemorySource third("/data/ckpt", made().images);
  third.files.erase(file1_);
  sources_.push_back(&third);
  WantedList wanted(manifest_, maker_);
  wanted.add("big", whole({20, 131072}));
  EXPECT_THAT(
      load_tensors(manifest_, wanted.list(), sources_),
      StatusIs(StatusCode::kDataLoss,
               AllOf(HasSubstr("no source has good bytes for tensor 'big', piece 0 of "
                               "[8:12, 0:131072]"),
                     HasSubstr(file1_), HasSubstr("slab of worker 3: tensor 'big'"),
                     HasSubstr("node 2: data loss: EIO at 4096"), Not(HasSubstr("/data/ckpt")))));
}

TEST_F(ReaderTest, ASourceThatCanNotReadAFileIsNotAskedForItAgain) {
  first_->errors[file0_] = base::unavailable("gone");
  WantedList wanted(manifest_, maker_);
  wanted.add("big", whole({20, 131072}));
  ASSERT_OK_AND_ASSIGN(const LoadReport report, load_tensors(manifest_, wanted.list(), sources_,
                                                             {.scratch_bytes_max = 4 << 20}));
  EXPECT_EQ(wanted.first_wrong(), 1u);
  EXPECT_EQ(first_->reads[file0_], 1);
  EXPECT_EQ(first_->reads[file1_], 1);
  ASSERT_EQ(report.bad.size(), 1u);
  EXPECT_THAT(report.bad[0].why, StatusIs(StatusCode::kUnavailable, "gone"));
  // It is still named when the other one fails later.
  flip(*second_, 2, 0);
  EXPECT_THAT(
      load_tensors(manifest_, wanted.list(), sources_, {.scratch_bytes_max = 4 << 20}),
      StatusIs(StatusCode::kDataLoss, AllOf(HasSubstr("slab of worker 3: unavailable: gone"),
                                            HasSubstr("node 2: tensor 'big'"))));
}

TEST_F(ReaderTest, NobodyHasTheFile) {
  first_->files.erase(file1_);
  second_->files.erase(file1_);
  WantedList wanted(manifest_, maker_);
  wanted.add("scalar", {});
  EXPECT_THAT(load_tensors(manifest_, wanted.list(), sources_),
              StatusIs(StatusCode::kDataLoss, HasSubstr("none of 2 sources has the file")));
}

TEST_F(ReaderTest, LacksAreListedBeforeAnythingIsRead) {
  WantedList wanted(manifest_, maker_);
  wanted.add("big", whole({20, 131072}));
  wanted.list()[0].tensor = "z\n";
  wanted.add("scalar", {});
  wanted.add("small", whole({3}));
  wanted.list()[2].tensor = "Big";
  EXPECT_THAT(load_tensors(manifest_, wanted.list(), sources_),
              StatusIs(StatusCode::kNotFound,
                       HasSubstr("step 120 has 5 tensors and lacks 2 of those that are wanted: "
                                 "'Big', 'z?'")));
  std::vector<Wanted> many(150);
  for (size_t i = 0; i < many.size(); ++i) many[i].tensor = "t" + std::to_string(i);
  EXPECT_THAT(load_tensors(manifest_, many, sources_),
              StatusIs(StatusCode::kNotFound, AllOf(HasSubstr("lacks 150"), HasSubstr(", ..."))));
  EXPECT_TRUE(first_->reads.empty());
}

TEST_F(ReaderTest, NothingIsCastOrCut) {
  WantedList wanted(manifest_, maker_);
  wanted.add("small", whole({3}));
  const auto refused = [&](const std::string& text) {
    EXPECT_THAT(load_tensors(manifest_, wanted.list(), sources_),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  Wanted& want = wanted.list()[0];
  want.type = ElementType::kF16;
  refused("tensor 'small': wanted as F16 [3], the checkpoint has BF16 [3]");
  want.type = ElementType::kBF16;
  want.shape = {4};
  refused("wanted as BF16 [4], the checkpoint has BF16 [3]");
  want.shape = {3};
  for (const Box& box : {Box{{1}, {3}}, Box{{-1}, {3}}, Box{{0}, {-1}}, Box{{4}, {0}}, Box{{}, {3}},
                         Box{{0, 0}, {3, 1}}}) {
    want.box = box;
    refused("does not lie in the shape [3]");
  }
  want.box = whole({3});
  EXPECT_OK(load_tensors(manifest_, wanted.list(), sources_));
  EXPECT_TRUE(second_->reads.empty());
}

TEST_F(ReaderTest, MemoryOfAnotherSizeIsABug) {
  WantedList wanted(manifest_, maker_);
  wanted.add("small", whole({3}));
  wanted.list()[0].to = wanted.list()[0].to.first(5);
  EXPECT_DEATH((void)load_tensors(manifest_, wanted.list(), sources_), "5 vs 6");
}

TEST_F(ReaderTest, AManifestThatIsNotConsistentIsNotUsed) {
  manifest_.tensors[0].chunks.pop_back();
  WantedList wanted(manifest_, maker_);
  wanted.add("small", whole({3}));
  EXPECT_THAT(load_tensors(manifest_, wanted.list(), sources_), StatusIs(StatusCode::kDataLoss));
  const std::vector<BadSource> bad = verify_files(manifest_, *first_);
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0].file, kManifestName);
  EXPECT_TRUE(first_->reads.empty());
}

TEST_F(ReaderTest, LeavesWhenTold) {
  std::atomic<bool> leave = true;
  WantedList wanted(manifest_, maker_);
  wanted.add("big", whole({20, 131072}));
  EXPECT_THAT(load_tensors(manifest_, wanted.list(), sources_, {.leave = &leave}),
              StatusIs(StatusCode::kCancelled));
  EXPECT_TRUE(first_->reads.empty());
  // Between two batches.
  leave = false;
  const LoadOptions options = {.scratch_bytes_max = 4 << 20,
                               .leave = &leave,
                               .on_progress = [&](uint64_t) { leave = true; }};
  EXPECT_THAT(load_tensors(manifest_, wanted.list(), sources_, options),
              StatusIs(StatusCode::kCancelled));
  EXPECT_EQ(first_->reads[file0_], 1);
  // A source that was told to leave is not a bad one.
  first_->errors[file0_] = base::cancelled("leaving");
  EXPECT_THAT(load_tensors(manifest_, wanted.list(), sources_),
              StatusIs(StatusCode::kCancelled, "leaving"));
  EXPECT_TRUE(second_->reads.empty());
}

// Elements of four bits: two of them fill a byte.
TEST(SubByteTest, WholeBytesAreLoadedAndOthersRefused) {
  const Bytes image = {std::byte{'h'}, std::byte{0x21}, std::byte{0x43}, std::byte{0x65},
                       std::byte{0x87}};
  Manifest manifest;
  manifest.files = {{.name = "a.safetensors", .bytes = 5}};
  manifest.tensors = {{.name = "a",
                       .type = ElementType::kF4,
                       .shape = {8},
                       .chunks = {{.box = whole({8}),
                                   .offset = 1,
                                   .bytes = 4,
                                   .piece_hashes = hash_pieces(base::ByteSpan(image).last(4))}}}};
  MemorySource source("here", {{"a.safetensors", image}});
  FileSource* const sources[] = {&source};
  Bytes to(2);
  std::vector<Wanted> wanted = {
      {.tensor = "a", .type = ElementType::kF4, .shape = {8}, .box = {{2}, {4}}, .to = to}};
  ASSERT_OK(load_tensors(manifest, wanted, sources));
  EXPECT_EQ(to, (Bytes{std::byte{0x43}, std::byte{0x65}}));
  wanted[0].box = {{1}, {4}};
  EXPECT_THAT(
      load_tensors(manifest, wanted, sources),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("does not begin and end at whole bytes")));
  wanted[0].box = {{2}, {3}};
  EXPECT_THAT(load_tensors(manifest, wanted, sources),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("does not fill whole bytes")));
}

// -- verify_files

TEST_F(ReaderTest, VerifyReadsAllAndFindsNothing) {
  EXPECT_TRUE(verify_files(manifest_, *first_).empty());
  EXPECT_GE(first_->read_bytes, 20u << 20);
  EXPECT_LE(first_->read_bytes, manifest_.files[0].bytes + manifest_.files[1].bytes);
  EXPECT_TRUE(first_->wrong_ranges.empty());
}

TEST_F(ReaderTest, VerifyTellsAllThatIsBad) {
  flip(*first_, 0, 0);
  flip(*first_, 0, 7 << 20);
  flip(*first_, 1, 9);
  first_->files[file1_][2] ^= std::byte{1};
  const std::vector<BadSource> bad = verify_files(manifest_, *first_, {.scratch_bytes_max = 1});
  ASSERT_EQ(bad.size(), 4u);
  EXPECT_THAT(bad[0].why, StatusIs(StatusCode::kDataLoss, HasSubstr("piece 0 of [0:8")));
  EXPECT_THAT(bad[1].why, StatusIs(StatusCode::kDataLoss, HasSubstr("piece 1 of [0:8")));
  EXPECT_EQ(bad[1].file, file0_);
  EXPECT_THAT(bad[2].why, StatusIs(StatusCode::kDataLoss, HasSubstr("the header of rank-0001")));
  EXPECT_THAT(bad[3].why, StatusIs(StatusCode::kDataLoss, HasSubstr("piece 0 of [8:12")));
  EXPECT_EQ(bad[3].file, file1_);
}

TEST_F(ReaderTest, VerifyGoesOnAfterAFileThatCanNotBeRead) {
  first_->errors[file0_] = base::data_loss("EIO");
  flip(*first_, 1, 9);
  std::vector<BadSource> bad = verify_files(manifest_, *first_);
  ASSERT_EQ(bad.size(), 2u);
  EXPECT_THAT(bad[0].why, StatusIs(StatusCode::kDataLoss, "EIO"));
  EXPECT_EQ(bad[1].file, file1_);
  first_->files.erase(file0_);
  bad = verify_files(manifest_, *first_);
  ASSERT_EQ(bad.size(), 2u);
  EXPECT_THAT(bad[0].why, StatusIs(StatusCode::kNotFound, HasSubstr(file0_)));
}

TEST_F(ReaderTest, VerifyLeavesWhenTold) {
  std::atomic<bool> leave = false;
  const LoadOptions options = {.leave = &leave, .on_progress = [&](uint64_t) { leave = true; }};
  const std::vector<BadSource> bad = verify_files(manifest_, *first_, options);
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_THAT(bad[0].why, StatusIs(StatusCode::kCancelled));
  EXPECT_EQ(first_->reads[file0_], 1);
}

// -- a folder

class FakeBlocks final : public BlockFiles {
 public:
  base::Status write(const WriteFile&) override { return base::unimplemented("write"); }
  base::Status read(std::string_view path, std::span<const ReadRange> ranges,
                    const std::atomic<bool>*) override {
    paths.emplace_back(path);
    const auto file = files.find(std::string(path));
    if (file == files.end()) return base::not_found(std::string(path));
    for (const ReadRange& range : ranges) {
      std::memcpy(range.to.data(), file->second.data() + range.offset, range.to.size());
    }
    return base::Status::ok();
  }
  std::string mode() const override { return "fake"; }

  std::map<std::string, Bytes> files;
  std::vector<std::string> paths;
};

TEST_F(ReaderTest, AFolderIsASource) {
  FakeBlocks blocks;
  for (const auto& [name, image] : made().images) blocks.files["/data/step-1/" + name] = image;
  const auto folder = make_folder_source(blocks, "/data/step-1");
  const auto other = make_folder_source(blocks, "/data/step-2");
  EXPECT_EQ(folder->name(), "/data/step-1");
  EXPECT_TRUE(verify_files(manifest_, *folder).empty());
  blocks.paths.clear();
  WantedList wanted(manifest_, maker_);
  wanted.add("scalar", {});
  FileSource* const sources[] = {other.get(), folder.get()};
  ASSERT_OK_AND_ASSIGN(const LoadReport report, load_tensors(manifest_, wanted.list(), sources));
  EXPECT_EQ(wanted.first_wrong(), 1u);
  EXPECT_EQ(blocks.paths,
            (std::vector<std::string>{"/data/step-2/" + file1_, "/data/step-1/" + file1_}));
  ASSERT_EQ(report.bad.size(), 1u);
  EXPECT_THAT(report.bad[0].why, StatusIs(StatusCode::kNotFound));
}

}  // namespace
}  // namespace perdure::checkpoint
