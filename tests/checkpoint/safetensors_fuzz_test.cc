// The corpus of tests/checkpoint/fuzz/corpus/safetensors, and mutations of it and of files that the
// writer made. The seed is printed first; --seed repeats a run.
//
// A corpus file is text, one item a line:
//   expect ok | expect V14      what the reader must say
//   len                         the length field, for the bytes of all `text` lines of this file
//   text {"a": ...              these characters
//   hex 00 ff                   these bytes
//   zero 12                     so many zero bytes

#include <sstream>

#include "base/posix_files.h"
#include "base/random.h"
#include "checkpoint/safetensors.h"
#include "tests/checkpoint/safetensors_files.h"
#include "tests/testing/matchers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace perdure::checkpoint {
namespace {

using base::SeededRandom;

struct CorpusFile {
  std::string name;
  std::string expect;
  std::string bytes;
};

CorpusFile parse_corpus_file(const std::string& name, const std::string& text) {
  CorpusFile file = {.name = name};
  size_t length_at = std::string::npos;
  uint64_t length = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t space = std::min(line.find(' '), line.size());
    const std::string item = line.substr(0, space);
    const std::string rest = space < line.size() ? line.substr(space + 1) : "";
    if (item == "expect") {
      file.expect = rest;
    } else if (item == "len") {
      length_at = file.bytes.size();
      file.bytes += testing::length_field(0);
    } else if (item == "text") {
      file.bytes += rest;
      length += rest.size();
    } else if (item == "hex") {
      std::istringstream words(rest);
      for (std::string word; words >> word;) {
        file.bytes += static_cast<char>(std::stoi(word, nullptr, 16));
      }
    } else if (item == "zero") {
      file.bytes += std::string(std::stoul(rest), '\0');
    } else {
      ADD_FAILURE() << name << ": no such item: " << line;
    }
  }
  if (length_at != std::string::npos) {
    file.bytes.replace(length_at, 8, testing::length_field(length));
  }
  return file;
}

std::vector<CorpusFile> read_corpus() {
  base::PosixFiles disk;
  const std::string folder = "tests/checkpoint/fuzz/corpus/safetensors";
  std::vector<CorpusFile> corpus;
  const auto names = disk.list(folder);
  EXPECT_OK(names);
  if (!names.is_ok()) return corpus;
  for (const std::string& name : *names) {
    const auto bytes = base::read_file(disk, folder + "/" + name, 1 << 20);
    EXPECT_OK(bytes);
    if (bytes.is_ok()) {
      corpus.push_back(parse_corpus_file(name, std::string(base::as_text(*bytes))));
    }
  }
  return corpus;
}

// Exactly sized on the heap, so that ASan sees a read past the end.
bool is_taken(const std::string& bytes) {
  const std::vector<std::byte> file = testing::bytes_of(bytes);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(file.data()), file.size());
  return parse_safetensors(file, "fuzz").is_ok();
}

TEST(SafetensorsFuzzTest, TheCorpusIsReadAsItSays) {
  const std::vector<CorpusFile> corpus = read_corpus();
  ASSERT_GE(corpus.size(), 15u);
  for (const CorpusFile& file : corpus) {
    is_taken(file.bytes);
    const auto header = parse_safetensors(testing::bytes_of(file.bytes), "x");
    if (file.expect == "ok") {
      EXPECT_THAT(header.status(), perdure::testing::IsOk()) << file.name;
    } else {
      ASSERT_FALSE(header.is_ok()) << file.name;
      EXPECT_TRUE(header.status().message().starts_with("x: " + file.expect + ": "))
          << file.name << ": " << header.status();
    }
  }
}

std::string random_number(SeededRandom& random) {
  static constexpr const char* kNumbers[] = {
      "0",   "1",   "-1",   "9223372036854775807",  "9223372036854775808", "18446744073709551615",
      "1.0", "1e9", "-0",   "18446744073709551616", "4294967296",          "99999999999999999999",
      "64",  "[]",  "null", "4611686018427387904"};
  if (random.bernoulli(0.5)) return kNumbers[random.uniform_int(std::size(kNumbers))];
  return std::to_string(random.uniform_int(40));
}

// One change of the text. The length field is made right again by the caller, mostly.
void mutate(SeededRandom& random, std::string& json) {
  if (json.empty()) return;
  const size_t at = random.uniform_int(json.size());
  switch (random.uniform_int(8)) {
    case 0:
      json[at] = static_cast<char>(json[at] ^ (1 << random.uniform_int(8)));
      break;
    case 1:
      json.erase(at, 1 + random.uniform_int(10));
      break;
    case 2:  // a part twice: keys too
      json.insert(at, json.substr(random.uniform_int(json.size()), random.uniform_int(80)));
      break;
    case 3:
      json.insert(at, 1, static_cast<char>(random.next_u64()));
      break;
    case 4:
      json.insert(at, 1, "{}[],:\"\\ \n"[random.uniform_int(10)]);
      break;
    case 5: {
      static constexpr const char* kWords[] = {"\"dtype\":\"U8\",",    "\"shape\":[0],", "\\u0000",
                                               "\"__metadata__\":{},", "\"\\u0061\":",   "{\"x\":"};
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

std::string written_file(SeededRandom& random) {
  std::vector<StoredTensor> tensors(random.uniform_int(5));
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i] = {.name = std::string(1, static_cast<char>('a' + i)),
                  .type = random.bernoulli(0.5) ? ElementType::kU8 : ElementType::kBF16,
                  .shape = Shape(random.uniform_int(3), 2)};
  }
  std::map<std::string, std::string> metadata;
  if (random.bernoulli(0.3)) metadata["k"] = "v";
  const SafetensorsImage image = *make_safetensors(tensors, metadata);
  std::string json(base::as_text(image.header).substr(8));
  json.resize(json.find_last_not_of(' ') + 1);
  return testing::length_field(json.size()) + json +
         std::string(image.file_bytes - image.header.size(), 'd');
}

TEST(SafetensorsFuzzTest, MutationsAreRefusedOrKeepAllPromises) {
  SeededRandom random(perdure::testing::test_seed());
  const std::vector<CorpusFile> corpus = read_corpus();
  ASSERT_FALSE(corpus.empty());
  int taken = 0;
  constexpr int kRounds = 40'000;
  for (int round = 0; round < kRounds; ++round) {
    const bool from_corpus = random.bernoulli(0.3);
    std::string bytes =
        from_corpus ? corpus[random.uniform_int(corpus.size())].bytes : written_file(random);
    uint64_t length = 0;
    for (size_t i = 0; i < 8 && i < bytes.size(); ++i) {
      length |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
    }
    if (bytes.size() >= 8 && length <= bytes.size() - 8) {
      std::string json = bytes.substr(8, length);
      for (size_t count = random.uniform_int(4); count > 0; --count) mutate(random, json);
      const std::string data = bytes.substr(8 + length);
      bytes = testing::length_field(json.size()) + json + data;
    }
    switch (random.uniform_int(12)) {
      case 0:
        bytes.resize(random.uniform_int(bytes.size() + 1));
        break;
      case 1:
        bytes.insert(bytes.size(), random.uniform_int(5) + 1, 'x');
        break;
      case 2:
        if (!bytes.empty()) {
          char& byte = bytes[random.uniform_int(std::min<size_t>(8, bytes.size()))];
          byte = static_cast<char>(random.next_u64());
        }
        break;
      default:
        break;
    }
    taken += is_taken(bytes) ? 1 : 0;
  }
  EXPECT_GT(taken, kRounds / 10);
  EXPECT_LT(taken, kRounds / 2);
}

TEST(SafetensorsFuzzTest, EachBitOfAHeader) {
  const std::string json =
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"U8","shape":[2,1],"data_offsets":[0,2]}})";
  const std::string file = testing::length_field(json.size()) + json + "dd";
  for (size_t bit = 0; bit < 8 * (8 + json.size()); ++bit) {
    std::string changed = file;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    is_taken(changed);
  }
  for (size_t bytes = 0; bytes < file.size(); ++bytes)
    EXPECT_FALSE(is_taken(file.substr(0, bytes)));
}

}  // namespace
}  // namespace perdure::checkpoint
