#include "checkpoint/manifest.h"

#include <functional>
#include <memory>

#include "base/posix_files.h"
#include "tests/checkpoint/manifest_samples.h"
#include "tests/testing/matchers.h"

namespace perdure::checkpoint {
namespace {

using base::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::manifest_text;
using testing::replaced;
using testing::sample_manifest;
using ::testing::StartsWith;
using testing::StatusIs;
using testing::with_last_line;
using testing::without_last_line;

base::Result<Manifest> parse(std::string_view text) {
  return parse_manifest(base::as_byte_span(text), "dir/MANIFEST");
}

void expect_equal(const Manifest& a, const Manifest& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.attempt, b.attempt);
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.layout, b.layout);
  EXPECT_EQ(a.counters, b.counters);
  ASSERT_EQ(a.files.size(), b.files.size());
  for (size_t i = 0; i < a.files.size(); ++i) {
    EXPECT_EQ(a.files[i].name, b.files[i].name);
    EXPECT_EQ(a.files[i].bytes, b.files[i].bytes);
    EXPECT_EQ(a.files[i].hash, b.files[i].hash);
    EXPECT_EQ(a.files[i].nodes, b.files[i].nodes);
  }
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const TensorRecord& from = a.tensors[i];
    const TensorRecord& to = b.tensors[i];
    EXPECT_EQ(from.name, to.name);
    EXPECT_EQ(from.type, to.type);
    EXPECT_EQ(from.shape, to.shape);
    EXPECT_EQ(from.alias_of, to.alias_of);
    ASSERT_EQ(from.chunks.size(), to.chunks.size());
    for (size_t c = 0; c < from.chunks.size(); ++c) {
      EXPECT_EQ(from.chunks[c].box, to.chunks[c].box);
      EXPECT_EQ(from.chunks[c].file, to.chunks[c].file);
      EXPECT_EQ(from.chunks[c].offset, to.chunks[c].offset);
      EXPECT_EQ(from.chunks[c].bytes, to.chunks[c].bytes);
      EXPECT_EQ(from.chunks[c].piece_hashes, to.chunks[c].piece_hashes);
    }
  }
}

TEST(ManifestTest, EverythingSurvivesTheRoundTrip) {
  const Manifest manifest = sample_manifest();
  ASSERT_OK(check_manifest(manifest));
  ASSERT_OK_AND_ASSIGN(const Manifest read, parse(manifest_text(manifest)));
  expect_equal(manifest, read);
  EXPECT_EQ(manifest_text(read), manifest_text(manifest));
}

TEST(ManifestTest, OneWithoutFilesAndTensorsIsLegal) {
  ASSERT_OK_AND_ASSIGN(const Manifest read, parse(manifest_text({})));
  expect_equal({}, read);
}

TEST(ManifestTest, FindsByName) {
  const Manifest manifest = sample_manifest();
  for (const TensorRecord& tensor : manifest.tensors) {
    EXPECT_EQ(manifest.find(tensor.name), &tensor);
  }
  EXPECT_EQ(manifest.find("a"), nullptr);
  EXPECT_EQ(manifest.find("z"), nullptr);
}

// docs/formats/manifest.md: version 1 is read for ever.
TEST(ManifestTest, ReadsAStoredFileOfVersion1) {
  base::PosixFiles files;
  ASSERT_OK_AND_ASSIGN(
      const std::vector<std::byte> stored,
      base::read_file(files, "tests/checkpoint/golden/manifest-v1.txt", kManifestBytesMax));
  ASSERT_OK_AND_ASSIGN(const Manifest read, parse_manifest(stored, "golden"));
  expect_equal(sample_manifest(), read);
  EXPECT_EQ(manifest_text(read), base::as_text(stored));
}

// A2: a reader never takes a part for the whole.
TEST(ManifestTest, RefusesACutAtEveryByte) {
  const std::string text = manifest_text(sample_manifest());
  for (size_t bytes = 0; bytes < text.size(); ++bytes) {
    ASSERT_THAT(parse(text.substr(0, bytes)), StatusIs(StatusCode::kDataLoss)) << bytes;
  }
}

TEST(ManifestTest, RefusesEveryFlippedBit) {
  const std::string text = manifest_text(sample_manifest());
  for (size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      ASSERT_THAT(parse(changed), StatusIs(StatusCode::kDataLoss)) << i << " bit " << bit;
    }
  }
}

// F8.
TEST(ManifestTest, RefusesTrailingBytes) {
  const std::string text = manifest_text(sample_manifest());
  for (const std::string& tail : {std::string("\n"), std::string(" "), std::string(1, '\0'),
                                  std::string("x\n"), text, with_last_line("")}) {
    EXPECT_THAT(parse(text + tail), StatusIs(StatusCode::kDataLoss)) << tail;
  }
  EXPECT_THAT(parse("\n" + text), StatusIs(StatusCode::kDataLoss));
  // Also with a last line that fits.
  EXPECT_THAT(parse(with_last_line(without_last_line(text) + "{}\n")),
              StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(parse(with_last_line(text)), StatusIs(StatusCode::kDataLoss));
}

TEST(ManifestTest, SaysWhatIsWrongWithTheLastLine) {
  const std::string json = without_last_line(manifest_text({}));
  const std::string length = std::to_string(json.size());
  const auto message = [&](const std::string& end) { return parse(json + end).status().message(); };
  EXPECT_THAT(message("{"), AllOf(StartsWith("dir/MANIFEST: is cut"), HasSubstr("no end")));
  EXPECT_THAT(message("oh\n"), HasSubstr("not 'perdure-manifest ...'"));
  EXPECT_THAT(message(std::string(200, 'x') + "\n"), HasSubstr("not 'perdure-manifest ...'"));
  EXPECT_THAT(message("perdure-manifest x 1\n"), HasSubstr("no version or no length"));
  EXPECT_THAT(message("perdure-manifest 1\n"), HasSubstr("no version or no length"));
  EXPECT_THAT(message("perdure-manifest 1 99999999999999999999 \n"),
              HasSubstr("no version or no length"));
  EXPECT_THAT(message("perdure-manifest 1 7 0\n"), HasSubstr("says 7 bytes are before it"));
  EXPECT_THAT(message("perdure-manifest 1 " + length + " 0000000000000000\n"),
              HasSubstr("was changed"));
  // Written in another way, though the numbers are the same.
  EXPECT_THAT(message("perdure-manifest 01 " + length + " 0000000000000000\n"),
              HasSubstr("was changed"));
}

TEST(ManifestTest, RefusesMoreThanAGibibyteUnseen) {
  // Never touched, so that it costs no memory.
  const std::unique_ptr<std::byte[]> bytes(new std::byte[kManifestBytesMax + 1]);
  EXPECT_THAT(parse_manifest({bytes.get(), kManifestBytesMax + 1}, "dir/MANIFEST"),
              StatusIs(StatusCode::kDataLoss, HasSubstr("has 1073741825 bytes, at most")));
}

TEST(ManifestTest, RefusesOtherVersions) {
  const std::string json = without_last_line(manifest_text({}));
  EXPECT_THAT(parse(with_last_line(json, 2)),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("version 2, this program reads")));
  EXPECT_THAT(parse(with_last_line(json, 0)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("version 0")));
  Manifest manifest;
  manifest.version = 2;
  EXPECT_THAT(check_manifest(manifest), StatusIs(StatusCode::kDataLoss, HasSubstr("version 2")));
}

// One change of the JSON each, with a last line that fits: what the error must say.
TEST(ManifestTest, RefusesWhatTheFormatDoesNotHave) {
  struct Case {
    const char* from;
    const char* to;
    const char* says;
  };
  const Case cases[] = {
      {"{\n", "[\n", "first byte"},
      {"\"epoch\": 7", "\"epoch\": 7, \"epoch\": 7", "key 'epoch' is there twice"},  // F7
      {"\"epoch\": 7", "\"epoch\": 7, \"ep\\u006fch\": 7", "key 'epoch' is there twice"},
      {"\"applied_steps\": 118", "\"applied_steps\": 1, \"applied_steps\": 2", "is there twice"},
      {"\"epoch\": 7", "\"epoch\": 7.0", "epoch is neither a string nor an integer"},
      {"\"epoch\": 7", "\"epoch\": 7e0", "epoch is neither"},
      {"\"epoch\": 7", "\"epoch\": -7", "epoch is neither"},
      {"\"epoch\": 7", "\"epoch\": -0", "epoch is neither"},
      {"\"epoch\": 7", "\"epoch\": null", "epoch is neither"},
      {"\"epoch\": 7", "\"epoch\": true", "epoch is neither"},
      {"\"epoch\": 7", "\"epoch\": 18446744073709551616", "epoch is neither"},
      {"\"epoch\": 7", "\"epoch\": \"7\"", "epoch holds a string"},
      {"\"epoch\": 7", "\"epoch\": [7]", "epoch holds a list"},
      {"\"epoch\": 7", "\"epoch\": {}", "epoch holds an object"},
      {"\"epoch\": 7", "\"epoch\": 07", "no JSON"},
      {"\"epoch\": 7", "\"epoch\": [[[[[[[[7]]]]]]]]", "epoch holds a list"},
      {"\"epoch\": 7,", "", "the manifest has no field 'epoch'"},
      {"\"epoch\": 7", "\"epoch\": 7, \"era\": 1", "unknown field 'era'"},
      {"\"attempt\": \"f", "\"attempt\": \"F", "attempt is 'Fedcba9876543210', not 16 digits"},
      {"\"attempt\": \"fed", "\"attempt\": \"", "not 16 digits"},
      {"\"attempt\": \"fedcba9876543210\"", "\"attempt\": 7", "attempt holds an integer"},
      {"118", "\"118\"", "counters.'applied_steps' holds a string"},
      {"118", "{}", "counters.'applied_steps' holds an object"},
      {"118", "1.5", "counters.'applied_steps' is neither"},
      {"\"bytes\": 4168, ", "", "files[0] has no field 'bytes'"},
      {"\"nodes\": [3, 1]", "\"nodes\": [3, 4294967296]",
       "files[1].nodes[1] is 4294967296, at most 4294967295"},
      {"\"nodes\": [3, 1]", "\"nodes\": [3, 3]", "names a node twice"},
      {"\"nodes\": [3, 1]", "\"nodes\": [3, \"1\"]", "files[1].nodes[0] holds a string"},
      {"\"nodes\": [3, 1]", "\"nodes\": [[]]", "files[1].nodes holds a list"},
      {"\"nodes\": [3, 1]", "\"nodes\": [{}]", "files[1].nodes holds an object"},
      {"\"nodes\": [3, 1]", "\"nodes\": 3", "files[1].nodes holds an integer"},
      {"\"files\": [", "\"files\": [7, ", "files holds an integer"},
      {"\"type\": \"BF16\"", "\"type\": \"BF17\"", "tensors[0].type is 'BF17', no element type"},
      {"\"type\": \"BF16\"", "\"type\": 16", "tensors[0].type holds an integer"},
      {"\"shape\": [8, 8]", "\"shape\": [8, 9223372036854775808]",
       "tensors[0].shape[1] is 9223372036854775808, at most 9223372036854775807"},
      {"\"shape\": [8, 8]", "\"shape\": [8, -8]", "tensors[0].shape[0] is neither"},
      {"\"alias_of\": \"a.weight\"", "\"alias_of\": \"\"", "alias_of names no tensor"},
      {", \"alias_of\": \"a.weight\"", "", "has neither chunks nor alias_of"},
      {"\"alias_of\"", "\"chunks\": [], \"alias_of\"", "has chunks and is an alias"},
      {"\"file\": 0", "\"file\": 4294967296", "tensors[0].chunks[0].file is 4294967296"},
      {"\"pieces\": [\"", "\"pieces\": [\"x", "tensors[0].chunks[0].pieces[0] is 'x"},
      {"\"pieces\": [", "\"pieces\": [1, ", "tensors[0].chunks[0].pieces holds an integer"},
  };
  const std::string json = without_last_line(manifest_text(sample_manifest()));
  for (const Case& c : cases) {
    EXPECT_THAT(parse(with_last_line(replaced(json, c.from, c.to))),
                StatusIs(StatusCode::kDataLoss, HasSubstr(c.says)))
        << c.from << " -> " << c.to;
  }
  EXPECT_THAT(parse(with_last_line("")), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(parse(with_last_line("{}\n")), StatusIs(StatusCode::kDataLoss, HasSubstr("'step'")));
  EXPECT_THAT(parse(with_last_line(replaced(json, "llama", "\xFF"))),
              StatusIs(StatusCode::kDataLoss, HasSubstr("UTF-8")));
  std::string counters;
  for (size_t i = 0; i < kManifestCountersMax; ++i) {
    counters += "\"c" + std::to_string(i) + "\": 1, ";
  }
  EXPECT_THAT(parse(with_last_line(replaced(json, "\"applied_", counters + "\"applied_"))),
              StatusIs(StatusCode::kDataLoss, HasSubstr("more than 1000 keys")));
}

// One change of a good manifest each: refused alone, and also when it was encoded.
struct Inconsistency {
  std::function<void(Manifest&)> change;
  const char* says;
};

void expect_refused(const std::vector<Inconsistency>& cases) {
  for (size_t i = 0; i < cases.size(); ++i) {
    Manifest manifest = sample_manifest();
    cases[i].change(manifest);
    EXPECT_THAT(check_manifest(manifest), StatusIs(StatusCode::kDataLoss, HasSubstr(cases[i].says)))
        << "case " << i;
    EXPECT_THAT(parse(manifest_text(manifest)),
                StatusIs(StatusCode::kDataLoss, HasSubstr(cases[i].says)))
        << "case " << i;
  }
}

TEST(ManifestTest, RefusesFilesThatCanNotBe) {
  const auto rename = [](const char* name) {
    return [name](Manifest& m) { m.files[0].name = name; };
  };
  expect_refused({
      {[](Manifest& m) { m.model = std::string("a\0b", 3); }, "model 'a?b'"},
      {[](Manifest& m) { m.layout = std::string("a\0b", 3); }, "layout 'a?b'"},
      {[](Manifest& m) { m.counters[std::string("\0", 1)] = 1; }, "counter '?'"},
      {rename(""), "file '' is no plain name"},
      {rename("."), "file '.' is no plain name"},
      {rename(".."), "no plain name"},
      {rename("../x"), "no plain name"},  // F9
      {rename("/etc/passwd"), "no plain name"},
      {rename("a/b"), "no plain name"},
      {rename("a\\b"), "no plain name"},
      {rename("c:b"), "no plain name"},
      {rename("a b"), "no plain name"},
      {rename(".hidden"), "no plain name"},
      {rename("MANIFEST"), "no plain name"},
      {rename("Manifest"), "no plain name"},
      {rename("MANIFEST.tmp"), "no plain name"},
      {rename("a.TMP"), "no plain name"},
      {rename("\xC3\xA4"), "no plain name"},
      {[](Manifest& m) { m.files[0].name = std::string(201, 'a'); }, "no plain name"},
      {rename("rank-0001.safetensors"), "is there twice"},
      {rename("Rank-0001.safetensors"), "is there twice"},  // D26
      {[](Manifest& m) { m.files[0].bytes = uint64_t{1} << 63; }, "more than 2^63 - 1"},
      {[](Manifest& m) { m.files[0].bytes = ~uint64_t{0} >> 1; }, "more than 2^63 - 1"},
  });
}

TEST(ManifestTest, RefusesTensorsThatCanNotBe) {
  expect_refused({
      {[](Manifest& m) { m.tensors[1].name = m.tensors[0].name; }, "does not come after"},
      {[](Manifest& m) { std::swap(m.tensors[0], m.tensors[1]); }, "does not come after"},
      {[](Manifest& m) { m.tensors[0].name = "__metadata__"; }, "use this name themselves"},
      {[](Manifest& m) { m.tensors[0].name = std::string(1, '\0'); }, "tensor '?' is not UTF-8"},
      {[](Manifest& m) { m.tensors[4].alias_of = "zz"; }, "'zz', which is not there"},
      {[](Manifest& m) { m.tensors[4].alias_of = "e.tied"; }, "which is an alias too"},
      {[](Manifest& m) { m.tensors[4].shape = {64}; }, "another type or shape"},
      {[](Manifest& m) { m.tensors[4].type = ElementType::kF16; }, "another type or shape"},
      {[](Manifest& m) { m.tensors[0].shape = Shape(65, 1); }, "65 dimensions, at most 64"},
      {[](Manifest& m) {
         m.tensors[0].shape = {8, 9};
       },
       "8 are missing"},
      {[](Manifest& m) { m.tensors[0].shape = {8}; }, "does not lie in the shape"},
  });
}

TEST(ManifestTest, RefusesChunksThatCanNotBe) {
  expect_refused({
      {[](Manifest& m) { m.tensors[0].chunks.pop_back(); }, "32 are missing"},
      {[](Manifest& m) {
         m.tensors[0].chunks[1].box.offset = {3, 0};
       },
       "overlap"},
      {[](Manifest& m) { m.tensors[0].chunks[1].box.offset = {4}; }, "does not lie in"},  // D10
      {[](Manifest& m) { m.tensors[0].chunks[1].bytes = 63; }, "has 63 bytes, its box needs 64"},
      {[](Manifest& m) { m.tensors[0].chunks[1].file = 2; }, "is in file 2 of 2"},
      {[](Manifest& m) { m.tensors[0].chunks[0].offset = 4105; }, "64 bytes at 4105 of"},
      {[](Manifest& m) { m.tensors[0].chunks[0].offset = ~uint64_t{0} - 63; }, "which has 4168"},
      {[](Manifest& m) { m.tensors[0].chunks[0].piece_hashes = {}; }, "0 hashes for 1 pieces"},
      {[](Manifest& m) { m.tensors[3].chunks[0].piece_hashes.pop_back(); }, "2 hashes for 3"},
      {[](Manifest& m) { m.tensors[1].chunks[0].piece_hashes = {1}; }, "1 hashes for 0 pieces"},
      {[](Manifest& m) { m.tensors[2].chunks[0].offset = 4152; },  // F6
       "'a.weight' and 'c.scalar' overlap in 'rank-0000.safetensors' at byte 4152"},
      {[](Manifest& m) {
         m.tensors[2].chunks[0].box = {{0}, {1}};
       },
       "does not lie in"},
      {[](Manifest& m) { m.tensors[2].type = ElementType::kF4; }, "do not fill whole bytes"},
      {[](Manifest& m) {
         m.tensors[0].chunks[0].box.size = {int64_t{1} << 62, 4};
       },
       "2^63 - 1"},
      {[](Manifest& m) {
         m.tensors[0].chunks[0].box.size = {int64_t{1} << 62, 1};
       },
       "2^63 - 1"},
  });
}

TEST(ManifestTest, RefusesWhatOnlyMemoryCanHold) {
  Manifest manifest = sample_manifest();
  manifest.tensors[4].chunks = manifest.tensors[0].chunks;
  EXPECT_THAT(check_manifest(manifest),
              StatusIs(StatusCode::kDataLoss, HasSubstr("has chunks of its own")));
  manifest = sample_manifest();
  manifest.tensors[0].chunks[0].box.size = {-4, 8};
  EXPECT_THAT(check_manifest(manifest), StatusIs(StatusCode::kDataLoss, HasSubstr("negative")));
  manifest = sample_manifest();
  manifest.model = "\xC3";
  EXPECT_THAT(check_manifest(manifest), StatusIs(StatusCode::kDataLoss, HasSubstr("UTF-8")));
  manifest = sample_manifest();
  for (size_t i = 0; i < kManifestCountersMax; ++i) manifest.counters[std::to_string(i)] = i;
  EXPECT_THAT(check_manifest(manifest), StatusIs(StatusCode::kDataLoss, HasSubstr("1002")));
}

TEST(ManifestTest, TensorsWithoutElementsNeedNoChunk) {
  Manifest manifest = sample_manifest();
  manifest.tensors[1].chunks.clear();
  EXPECT_OK(parse(manifest_text(manifest)));
  manifest.tensors[1].chunks = {testing::made_up_chunk({{0, 3}, {0, 2}}, 0, 0, 0),
                                testing::made_up_chunk({{0, 0}, {0, 5}}, 1, 5, 0)};
  EXPECT_OK(parse(manifest_text(manifest)));
}

TEST(ManifestTest, PiecesAreHashedOneByOne) {
  std::vector<std::byte> chunk(2 * kPieceBytes + 5);
  for (size_t i = 0; i < chunk.size(); ++i) chunk[i] = static_cast<std::byte>(i * 7 + i / 4096);
  const std::vector<uint64_t> hashes = hash_pieces(chunk);
  const base::ByteSpan span = chunk;
  EXPECT_THAT(hashes, ::testing::ElementsAre(base::hash64(span.first(kPieceBytes)),
                                             base::hash64(span.subspan(kPieceBytes, kPieceBytes)),
                                             base::hash64(span.last(5))));
  EXPECT_THAT(hash_pieces(span.first(kPieceBytes)), ::testing::SizeIs(1));
  EXPECT_THAT(hash_pieces({}), ::testing::IsEmpty());
}

TEST(ManifestTest, TheHashOfAFileCoversItsHeaderAndTheOrderOfItsPieces) {
  const base::ByteSpan header = base::as_byte_span("header");
  const std::vector<uint64_t> pieces = {1, 2};
  const std::vector<uint64_t> turned = {2, 1};
  // The value is part of the format.
  EXPECT_EQ(hash_file(header, pieces), 17673894468952485564u);
  EXPECT_NE(hash_file(header, pieces), hash_file(header, turned));
  EXPECT_NE(hash_file(header, pieces), hash_file(base::as_byte_span("Header"), pieces));
  EXPECT_NE(hash_file(header, {}), hash_file({}, {}));
}

}  // namespace
}  // namespace perdure::checkpoint
