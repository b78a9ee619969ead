#include "runtime/data/token_file.h"

#include <cstring>

#include "base/hash.h"
#include "base/random.h"
#include "runtime/data/token_file_writer.h"
#include "tests/runtime/data/data_fixtures.h"

namespace perdure::runtime::data {
namespace {

using base::StatusCode;
using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FullDiskFiles;
using ::testing::HasSubstr;
using testing::StatusIs;

class TokenFileTest : public testing::TempDirTest {
 protected:
  std::string make_file(uint32_t vocabulary, const std::vector<TokenId>& tokens) {
    TokenFileWriter writer =
        TokenFileWriter::create(files_, {path("a.tokens"), "byte", vocabulary}).value();
    EXPECT_OK(writer.append(tokens));
    EXPECT_OK(writer.finish());
    return path("a.tokens");
  }
  // Opens a file with these bytes.
  base::Status open_bytes(const std::string& bytes) {
    return TokenFile::open(write("b.tokens", bytes)).status();
  }
  // Repairs the header's checksum after a change.
  static void rehash(std::string& bytes) {
    const uint64_t hash = base::hash64(base::as_byte_span(bytes).first(120));
    std::memcpy(bytes.data() + 120, &hash, 8);
  }
};

// A file of version 1 with the tokens 15496, 995, 50256 of the tokenizer "gpt2", in hexadecimal.
std::string stored_file() {
  const std::string hex =
      "50455244544f4b0a0100000080000000"  // magic, version, header size
      "0200000051c400000300000000000000"  // token width, vocabulary, count
      "50c4000000000000ccce57367efc2101"  // largest token, unused, hash of tokens
      "67707432" +                        // tokenizer
      std::string(2 * (60 + 8), '0') +    // padding of the name, unused
      "a3274fed6ceae79b"                  // hash of the header
      "883ce30350c4";                     // tokens
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::vector<int32_t> all_tokens(const TokenFile& file) {
  std::vector<int32_t> tokens(file.info().token_count);
  file.read(0, tokens);
  return tokens;
}

TEST_F(TokenFileTest, GivesBackWhatWasWritten) {
  base::SeededRandom random(testing::test_seed());
  for (const uint32_t vocabulary : {2u, 256u, 65536u, 65537u, 1000000u}) {
    TokenFileWriter writer =
        TokenFileWriter::create(files_, {path("a.tokens"), "byte", vocabulary}).value();
    std::vector<int32_t> expected;
    for (int piece = 0; piece < 5; ++piece) {
      std::vector<TokenId> tokens(random.uniform_int(1000));
      for (TokenId& t : tokens) t = static_cast<TokenId>(random.uniform_int(vocabulary));
      expected.insert(expected.end(), tokens.begin(), tokens.end());
      ASSERT_OK(writer.append(tokens));
    }
    ASSERT_OK(writer.finish());
    ASSERT_OK_AND_ASSIGN(const TokenFile file, TokenFile::open(path("a.tokens")));
    EXPECT_EQ(all_tokens(file), expected);
    EXPECT_EQ(file.info().token_bytes, vocabulary <= 65536 ? 2u : 4u);
    EXPECT_EQ(file.info().vocabulary, vocabulary);
    EXPECT_EQ(file.info().tokenizer, "byte");
    EXPECT_OK(file.verify());
    EXPECT_FALSE(exists("a.tokens.tmp"));
  }
}

TEST_F(TokenFileTest, AnEmptyFileIsAFile) {
  ASSERT_OK_AND_ASSIGN(const TokenFile file, TokenFile::open(make_file(256, {})));
  EXPECT_EQ(file.info().token_count, 0u);
  EXPECT_OK(file.verify());
}

// A file of version 1 as it was written once: no later program may stop reading it.
TEST_F(TokenFileTest, ReadsAStoredFileOfVersion1) {
  const std::string stored = stored_file();
  ASSERT_EQ(stored.size(), 128u + 6);
  ASSERT_OK_AND_ASSIGN(const TokenFile file, TokenFile::open(write("old.tokens", stored)));
  EXPECT_EQ(file.info().tokenizer, "gpt2");
  EXPECT_EQ(file.info().vocabulary, 50257u);
  EXPECT_EQ(file.info().token_max, 50256u);
  EXPECT_THAT(all_tokens(file), ElementsAre(15496, 995, 50256));
  EXPECT_OK(file.verify());
}

TEST_F(TokenFileTest, WritesTheSameBytesAsStored) {
  TokenFileWriter writer =
      TokenFileWriter::create(files_, {path("a.tokens"), "gpt2", 50257}).value();
  ASSERT_OK(writer.append(std::vector<TokenId>{15496, 995, 50256}));
  ASSERT_OK(writer.finish());
  EXPECT_EQ(contents("a.tokens"), stored_file());
}

TEST_F(TokenFileTest, RefusesWhatIsNoTokenFile) {
  const auto foreign = StatusIs(StatusCode::kInvalidArgument,
                                AllOf(HasSubstr("b.tokens"), HasSubstr("is not a token file")));
  EXPECT_THAT(open_bytes(""), foreign);
  EXPECT_THAT(open_bytes("First Citizen:"), foreign);
  EXPECT_THAT(open_bytes(std::string(500, 'x')), foreign);
  EXPECT_THAT(TokenFile::open(path("none")), StatusIs(StatusCode::kNotFound, HasSubstr("none")));
  EXPECT_THAT(TokenFile::open(path("")),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("is not a file")));
}

TEST_F(TokenFileTest, RefusesEveryCut) {
  make_file(256, {1, 2, 3});
  const std::string whole = contents("a.tokens");
  for (size_t size = 1; size < whole.size(); ++size) {
    const base::Status status = open_bytes(whole.substr(0, size));
    EXPECT_THAT(status, StatusIs(StatusCode::kDataLoss, HasSubstr("b.tokens"))) << size;
  }
  EXPECT_THAT(open_bytes(whole.substr(0, 100)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("cut off inside its header")));
  EXPECT_THAT(open_bytes(whole.substr(0, 132)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("has 132 bytes, but 3 tokens of 2 bytes")));
  EXPECT_THAT(open_bytes(whole + "x"), StatusIs(StatusCode::kDataLoss, HasSubstr("135 bytes")));
}

TEST_F(TokenFileTest, NoticesEveryFlippedBit) {
  make_file(256, {1, 2, 3});
  const std::string whole = contents("a.tokens");
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    const base::Result<TokenFile> file = TokenFile::open(write("b.tokens", damaged));
    if (bit < 128 * 8) {
      EXPECT_FALSE(file.is_ok()) << "bit " << bit;
    } else {
      ASSERT_OK(file);  // the payload is not read on open
      EXPECT_THAT(file.value().verify(),
                  StatusIs(StatusCode::kDataLoss, HasSubstr("tokens are damaged")));
    }
  }
}

TEST_F(TokenFileTest, NamesAnotherVersion) {
  make_file(256, {1, 2, 3});
  std::string newer = contents("a.tokens");
  newer[8] = 2;
  rehash(newer);
  EXPECT_THAT(open_bytes(newer),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("b.tokens: has token file version 2, this program reads")));
}

TEST_F(TokenFileTest, RefusesFieldsThatCannotBe) {
  make_file(256, {1, 2, 3});
  const std::string whole = contents("a.tokens");
  struct Case {
    size_t offset;
    char value;
    const char* message;
  };
  for (const Case& c : {Case{12, 64, "wrong header size"}, Case{16, 3, "wrong token width"},
                        Case{33, 9, "largest token is not in the vocabulary"},
                        Case{31, 0x7F, "need another size"}}) {
    std::string wrong = whole;
    wrong[c.offset] = c.value;
    rehash(wrong);
    EXPECT_THAT(open_bytes(wrong), StatusIs(StatusCode::kDataLoss, HasSubstr(c.message)));
  }
  std::string other_max = whole;
  other_max[32] = 7;
  rehash(other_max);
  ASSERT_OK_AND_ASSIGN(const TokenFile file, TokenFile::open(write("b.tokens", other_max)));
  EXPECT_THAT(file.verify(),
              StatusIs(StatusCode::kDataLoss, HasSubstr("largest token is 3, the header says 7")));
}

TEST_F(TokenFileTest, WriterRefusesForeignTokensAndNames) {
  TokenFileWriter writer = TokenFileWriter::create(files_, {path("a.tokens"), "byte", 256}).value();
  EXPECT_THAT(writer.append(std::vector<TokenId>{1, 256}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("token 256 >= vocabulary 256")));
  EXPECT_THAT(TokenFileWriter::create(files_, {path("a.tokens"), std::string(65, 'n'), 256}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("1 to 64 bytes")));
  EXPECT_THAT(TokenFileWriter::create(files_, {path("no/such/dir/a.tokens"), "byte", 256}),
              StatusIs(StatusCode::kNotFound));
}

TEST_F(TokenFileTest, UnfinishedWritersLeaveNothing) {
  {
    TokenFileWriter writer =
        TokenFileWriter::create(files_, {path("a.tokens"), "byte", 256}).value();
    ASSERT_OK(writer.append(std::vector<TokenId>{1, 2, 3}));
    EXPECT_TRUE(exists("a.tokens.tmp"));
  }
  EXPECT_FALSE(exists("a.tokens.tmp"));
  EXPECT_FALSE(exists("a.tokens"));
}

base::Status write_through(base::FileSystem& files, const std::string& path) {
  ASSIGN_OR_RETURN(TokenFileWriter writer, TokenFileWriter::create(files, {path, "byte", 256}));
  RETURN_IF_ERROR(writer.append(std::vector<TokenId>{7, 8, 9, 10}));
  return writer.finish();
}

TEST_F(TokenFileTest, AFullDiskAtAnyPointLeavesTheOldFileOrTheNewOne) {
  int call = 0;
  for (;; ++call) {
    ASSERT_LT(call, 100);
    make_file(256, {1, 2, 3});
    FullDiskFiles disk(files_, call);
    const base::Status status = write_through(disk, path("a.tokens"));
    ASSERT_OK_AND_ASSIGN(const TokenFile file, TokenFile::open(path("a.tokens")));
    EXPECT_OK(file.verify());
    EXPECT_FALSE(exists("a.tokens.tmp"));
    if (status.is_ok()) {
      EXPECT_EQ(file.info().token_count, 4u);
      break;
    }
    EXPECT_THAT(status, StatusIs(StatusCode::kResourceExhausted));
    EXPECT_TRUE(disk.was_full());
  }
  EXPECT_EQ(call, 7);  // open, placeholder, tokens, header, sync, rename, directory
}

TEST_F(TokenFileTest, InMemoryEqualsTheFile) {
  const TokenFile memory =
      TokenFile::in_memory({.name = "m", .tokenizer = "byte", .vocabulary = 256, .tokens = {3, 1}});
  ASSERT_OK_AND_ASSIGN(const TokenFile file, TokenFile::open(make_file(256, {3, 1})));
  EXPECT_EQ(all_tokens(memory), all_tokens(file));
  EXPECT_EQ(memory.info().payload_hash, file.info().payload_hash);
  EXPECT_OK(memory.verify());
}

TEST_F(TokenFileTest, ReadingOutsideIsABug) {
  ASSERT_OK_AND_ASSIGN(const TokenFile file, TokenFile::open(make_file(256, {1, 2, 3})));
  std::vector<int32_t> out(2);
  EXPECT_DEATH(file.read(2, out), "check failed");
  EXPECT_DEATH(file.read(UINT64_MAX, out), "check failed");
}

}  // namespace
}  // namespace perdure::runtime::data
