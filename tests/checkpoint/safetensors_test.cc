#include "checkpoint/safetensors.h"

#include <limits>

#include "base/random.h"
#include "checkpoint/strict_json.h"
#include "tests/checkpoint/safetensors_files.h"
#include "tests/testing/matchers.h"

namespace perdure::checkpoint {
namespace {

using base::StatusCode;
using perdure::testing::IsOk;
using perdure::testing::StatusIs;
using ::testing::AllOf;
using testing::bytes_of;
using testing::file_of;
using ::testing::HasSubstr;
using testing::length_field;
using testing::MemoryFile;
using ::testing::StartsWith;

base::Result<SafetensorsHeader> parse(std::string_view json, size_t data_bytes = 0,
                                      const ReadLimits& limits = {}) {
  return parse_safetensors(file_of(json, data_bytes), "a.safetensors", limits);
}

auto Breaks(const std::string& rule, const std::string& text = "") {
  return StatusIs(StatusCode::kDataLoss,
                  AllOf(StartsWith("a.safetensors: " + rule + ": "), HasSubstr(text)));
}

// One tensor of two bytes, with other text in place of a field.
std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

const std::string kGood = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";

TEST(SafetensorsReadTest, AHeaderOfEachKindOfTensor) {
  const std::string json = R"({"__metadata__":{"format":"pt","":"\u0000"},)"
                           R"("b":{"data_offsets":[8,12],"shape":[2,1],"dtype":"BF16"},)"
                           R"("a\u00e4\"/":{"dtype":"F32","shape":[],"data_offsets":[4,8]},)"
                           R"("none":{"dtype":"I64","shape":[3,0],"data_offsets":[4,4]},)"
                           R"("f4":{"dtype":"F4","shape":[2],"data_offsets":[12,13]},)"
                           R"("c":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]}})";
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header, parse(json, 13));
  ASSERT_EQ(header.tensors.size(), 5u);
  EXPECT_EQ(header.tensors[0].name, "c");
  EXPECT_EQ(header.tensors[1].name, "none");
  EXPECT_EQ(header.tensors[2].name, "a\u00e4\"/");
  EXPECT_EQ(header.tensors[4].type, ElementType::kF4);
  EXPECT_EQ(header.data_offset, 8 + json.size());
  EXPECT_EQ(header.data_bytes, 13u);
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_EQ(header.metadata.at(""), std::string(1, '\0'));
  const StoredTensor* b = header.find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->shape, (Shape{2, 1}));
  EXPECT_EQ(b->begin, 8u);
  EXPECT_EQ(b->end, 12u);
  EXPECT_EQ(header.find("B"), nullptr);
}

// The reference's shortest file, byte by byte.
TEST(SafetensorsReadTest, TheEmptyFile) {
  const std::string file = length_field(8) + "{}      ";
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header,
                       parse_safetensors(bytes_of(file), "a.safetensors"));
  EXPECT_TRUE(header.tensors.empty());
  EXPECT_EQ(header.data_offset, 16u);
  EXPECT_THAT(parse("{}", 1), Breaks("V15", "1 bytes follow"));
}

TEST(SafetensorsReadTest, WhitespaceAroundTheHeaderIsTaken) {
  EXPECT_OK(parse(" \n\t\r" + kGood + "\r\n\t ", 2));
}

TEST(SafetensorsReadTest, FieldsThatTheFormatDoesNotKnowAreIgnored) {
  EXPECT_OK(parse(R"({"a":{"dtype":"U8","x":[{"y":-1.5}],"shape":[2],"z":null,)"
                  R"("w":18446744073709551615,"s":"t","data_offsets":[0,2]}})",
                  2));
}

TEST(SafetensorsReadTest, TensorsNeedNotBeAligned) {
  const std::string json = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                           R"("b":{"dtype":"F64","shape":[1],"data_offsets":[1,9]}})";
  EXPECT_OK(parse(json, 9));
}

TEST(SafetensorsRuleTest, V1TheFileHasRoomForTheLength) {
  for (size_t bytes = 0; bytes < 8; ++bytes) {
    EXPECT_THAT(parse_safetensors(std::vector<std::byte>(bytes), "a.safetensors"), Breaks("V1"));
  }
}

TEST(SafetensorsRuleTest, V2TheHeaderLiesInTheFile) {
  for (const uint64_t length : {uint64_t{0}, uint64_t{1}, uint64_t{9}, kHeaderBytesMax + 1}) {
    EXPECT_THAT(parse_safetensors(bytes_of(length_field(length) + "{}      "), "a.safetensors"),
                Breaks("V2", std::to_string(length)));
  }
}

TEST(SafetensorsRuleTest, V3AReadThatEndsEarly) {
  for (const size_t bytes : {size_t{0}, size_t{7}, size_t{8}, size_t{20}}) {
    MemoryFile file(file_of(kGood, 2));
    file.read_bytes_max = bytes;
    EXPECT_THAT(read_safetensors_header(file, "a.safetensors"),
                Breaks("V3", "ends at byte " + std::to_string(std::max<size_t>(bytes, 0))));
  }
}

TEST(SafetensorsRuleTest, V4TheHeaderIsUtf8) {
  EXPECT_THAT(parse("\xEF\xBB\xBF{}"), Breaks("V4", "byte order mark"));
  // Too long, a surrogate, above the last character, cut, a byte that never occurs.
  for (const char* bad : {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                          "\xF0\x80\x80\x80", "\xC3", "\xE2\x82", "\xF0\x9F\x98", "\xFF", "\x80"}) {
    const std::string json = "{\"" + std::string(bad) + "\":{}}";
    EXPECT_THAT(parse(json), Breaks("V4", "at byte 2"));
    EXPECT_FALSE(is_utf8(bad));
  }
  EXPECT_TRUE(is_utf8("a\u00e4\u20ac\U0001F600"));
}

TEST(SafetensorsRuleTest, V5OneObjectAndNothingElse) {
  for (const char* json : {"[]", "  ", "\"a\"", "null", "xx", "\v{}"}) {
    EXPECT_THAT(parse(json), Breaks("V5", "'{'"));
  }
  EXPECT_THAT(parse("{}x"), Breaks("V5", "follows"));
  EXPECT_THAT(parse("{}{}"), Breaks("V5", "follows"));
  EXPECT_THAT(parse("{} \u00a0"), Breaks("V5", "follows"));
  EXPECT_THAT(parse(std::string_view("{}\0\0hidden", 10)), Breaks("V5", "zero byte at byte 2"));
}

TEST(SafetensorsRuleTest, V6StrictJson) {
  for (const char* json : {"{ ", "{\"a\":", "{\"a\":}", "{,}", "{'a':1}", "{\"a\" 1}", "{/**/}",
                           "{\"a\\x\":1}", "{\"\\ud800\":1}", "{\"a\":{\"x\":NaN}}",
                           "{\"a\":{\"x\":Infinity}}", "{\"a\":{\"x\":01}}", "{\"a\":{\"x\":+1}}",
                           "{\"a\":{\"x\":1e400}}", "{\"a\":{\"x\":1,}}", "{\"a\n\":{}}", "{]"}) {
    EXPECT_THAT(parse(json), Breaks("V6", "no JSON any more")) << json;
  }
  EXPECT_THAT(parse(R"({"a":{"x":[[[0]]]}})"), Breaks("V6", "more than 4"));
  EXPECT_THAT(parse(R"({"a\u0000b":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"),
              Breaks("V6", "tensor 'a?b' has a zero byte"));
  const std::string deep(2'000'000, '[');
  EXPECT_THAT(parse("{\"a\":{\"x\":" + deep), Breaks("V6", "more than 4"));
}

TEST(SafetensorsRuleTest, V7EachTensorHasItsThreeFields) {
  EXPECT_THAT(parse(R"({"a":1})"), Breaks("V7", "tensor 'a' is no object"));
  for (const char* value : {"[]", "null", "\"x\"", "-1", "1.5"}) {
    EXPECT_THAT(parse(std::string("{\"a\":") + value + "}"), Breaks("V7", "is no object"));
  }
  EXPECT_THAT(parse(R"({"a":{"shape":[2],"data_offsets":[0,2]}})", 2),
              Breaks("V7", "tensor 'a' has no dtype"));
  EXPECT_THAT(parse(R"({"a":{"dtype":"U8","data_offsets":[0,2]}})", 2),
              Breaks("V7", "tensor 'a' has no shape"));
  EXPECT_THAT(parse(R"({"a":{"dtype":"U8","shape":[2]}})", 2),
              Breaks("V7", "tensor 'a' has no data_offsets"));
  for (const char* dtype : {"8", "null", "[\"U8\"]", "{}"}) {
    EXPECT_THAT(parse(tensor(dtype, "[2]", "[0,2]"), 2), Breaks("V7", "dtype of tensor 'a'"));
  }
  for (const char* list : {"2", "null", "\"2\"", "{}", "[[2]]", "[\"2\"]", "[{}]"}) {
    EXPECT_THAT(parse(tensor("\"U8\"", list, "[0,2]"), 2), Breaks("V7", "shape of tensor 'a'"));
    EXPECT_THAT(parse(tensor("\"U8\"", "[2]", list), 2), Breaks("V7", "data_offsets of tensor"));
  }
  EXPECT_THAT(parse(tensor("\"U8\"", "[2]", "[]"), 2), Breaks("V7", "has 0 numbers, not 2"));
  EXPECT_THAT(parse(tensor("\"U8\"", "[2]", "[0]"), 2), Breaks("V7", "has 1 numbers, not 2"));
  EXPECT_THAT(parse(tensor("\"U8\"", "[2]", "[0,2,2]"), 2), Breaks("V7", "has 3 numbers, not 2"));
}

TEST(SafetensorsRuleTest, V8TheMetadataIsStrings) {
  for (const char* value : {"1", "[]", "null", "\"x\""}) {
    EXPECT_THAT(parse(std::string("{\"__metadata__\":") + value + "}"),
                Breaks("V8", "__metadata__ is no object"));
  }
  for (const char* value : {"1", "[]", "null", "{}", "-1", "true"}) {
    EXPECT_THAT(parse(std::string("{\"__metadata__\":{\"k\":") + value + "}}"),
                Breaks("V8", "the value of 'k' is no string"));
  }
}

TEST(SafetensorsRuleTest, V9IntegersAreDigits) {
  for (const char* number : {"2.0", "2e0", "-0", "-2", "true", "null", "18446744073709551616",
                             "9223372036854775808", "18446744073709551615"}) {
    const std::string list = std::string("[") + number + "]";
    EXPECT_THAT(parse(tensor("\"U8\"", list, "[0,2]"), 2), Breaks("V9", "shape of tensor 'a'"));
    EXPECT_THAT(parse(tensor("\"U8\"", "[2]", "[0," + list.substr(1)), 2),
                Breaks("V9", "data_offsets of tensor 'a'"));
  }
}

TEST(SafetensorsRuleTest, V10DimensionsAreLimited) {
  std::string shape = "[2";
  for (int d = 1; d < 64; ++d) shape += ",1";
  EXPECT_OK(parse(tensor("\"U8\"", shape + "]", "[0,2]"), 2));
  EXPECT_THAT(parse(tensor("\"U8\"", shape + ",1]", "[0,2]"), 2),
              Breaks("V10", "more than 64 dimensions"));
}

TEST(SafetensorsRuleTest, V11AnUnknownTypeIsNoDataLoss) {
  for (const char* type : {"F128", "f32", "", "U8 "}) {
    EXPECT_THAT(parse(tensor("\"" + std::string(type) + "\"", "[2]", "[0,2]"), 2),
                StatusIs(StatusCode::kInvalidArgument,
                         HasSubstr("a.safetensors: V11: tensor 'a' has the unknown dtype '" +
                                   std::string(type) + "'")));
  }
}

TEST(SafetensorsRuleTest, V12SizesAreCheckedForOverflow) {
  EXPECT_THAT(parse(tensor("\"U8\"", "[9223372036854775807,2]", "[0,2]"), 2),
              Breaks("V12", "more than 2^63 - 1 elements"));
  EXPECT_THAT(parse(tensor("\"U64\"", "[9223372036854775807]", "[0,2]"), 2),
              Breaks("V12", "more than 2^63 - 1 bytes"));
  EXPECT_THAT(parse(tensor("\"F4\"", "[3]", "[0,2]"), 2), Breaks("V12", "whole bytes"));
  EXPECT_THAT(parse(tensor("\"F6_E2M3\"", "[2]", "[0,2]"), 2), Breaks("V12", "whole bytes"));
}

TEST(SafetensorsRuleTest, V13OffsetsAgreeWithTypeAndShape) {
  EXPECT_THAT(parse(tensor("\"U8\"", "[2]", "[2,0]"), 2), Breaks("V13", "before it begins at 2"));
  EXPECT_THAT(parse(tensor("\"U8\"", "[2]", "[0,1]"), 1), Breaks("V13", "has 1 bytes"));
  EXPECT_THAT(parse(tensor("\"U16\"", "[2]", "[0,2]"), 2), Breaks("V13", "need 4"));
  EXPECT_THAT(parse(tensor("\"U8\"", "[]", "[0,0]")), Breaks("V13", "need 1"));
}

TEST(SafetensorsRuleTest, V14NoGapAndNoOverlap) {
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + a +
           R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + b + "}}";
  };
  EXPECT_OK(parse(two("[2,4]", "[0,2]"), 4));
  EXPECT_THAT(parse(two("[0,2]", "[3,5]"), 5),
              Breaks("V14", "tensor 'b' begins at 3, the one before it ends at 2"));
  EXPECT_THAT(parse(two("[0,2]", "[1,3]"), 3), Breaks("V14"));
  EXPECT_THAT(parse(two("[0,2]", "[0,2]"), 2), Breaks("V14"));
  EXPECT_THAT(parse(two("[1,3]", "[3,5]"), 5), Breaks("V14", "ends at 0"));
  // An empty tensor has a place, too.
  EXPECT_THAT(parse(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                    R"("e":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}})",
                    2),
              Breaks("V14", "tensor 'e' begins at 1"));
}

TEST(SafetensorsRuleTest, V15TheDataEndsWithTheFile) {
  EXPECT_THAT(parse(kGood, 1), Breaks("V15", "cut: 1 of 2 bytes of data are missing"));
  EXPECT_THAT(parse(kGood, 5), Breaks("V15", "3 bytes follow the last tensor"));
}

TEST(SafetensorsRuleTest, V16CountsAreLimited) {
  const auto empty = [](const std::string& name) {
    return "\"" + name + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  };
  const ReadLimits two = {.tensors_max = 2};
  EXPECT_OK(parse("{" + empty("a") + ",\"__metadata__\":{}," + empty("b") + "}", 0, two));
  EXPECT_THAT(parse("{" + empty("a") + "," + empty("b") + "," + empty("c") + "}", 0, two),
              Breaks("V16", "more than 2 tensors"));
  EXPECT_THAT(parse(R"({"__metadata__":{"1":"","2":"","3":"","4":""}})", 0, two),
              Breaks("V16", "more than 3 keys"));
}

TEST(SafetensorsRuleTest, V17TheSizeStaysAsItIs) {
  MemoryFile file(file_of(kGood, 2));
  ASSERT_OK(read_safetensors_header(file, "a.safetensors"));
  MemoryFile written(file_of(kGood, 2));
  written.grows_by = 1;
  EXPECT_THAT(read_safetensors_header(written, "a.safetensors"), Breaks("V17", "writes to it"));
}

TEST(SafetensorsReadTest, ErrorsOfTheDiskAreGivenOnWithTheName) {
  MemoryFile file(file_of(kGood, 2));
  file.read_error = base::data_loss("EIO");
  EXPECT_THAT(read_safetensors_header(file, "a.safetensors"),
              StatusIs(StatusCode::kDataLoss, "a.safetensors: EIO"));
  file.size_error = base::failed_precondition("no rights");
  EXPECT_THAT(read_safetensors_header(file, "a.safetensors"),
              StatusIs(StatusCode::kFailedPrecondition, "a.safetensors: no rights"));
}

TEST(SafetensorsReadTest, NamesInMessagesAreCutAndHarmless) {
  EXPECT_EQ(in_quotes("a\n\x1b[31m"), "'a??[31m'");
  const std::string cut = in_quotes(std::string(119, 'a') + "\u00e4\u00e4");
  EXPECT_EQ(cut, "'" + std::string(119, 'a') + "...'");
}

base::Result<std::map<std::string, std::string>> index(const std::string& json) {
  return parse_safetensors_index(base::as_byte_span(json), "i.json");
}

TEST(SafetensorsIndexTest, NamesTheFileOfEachTensor) {
  ASSERT_OK_AND_ASSIGN(
      const auto files,
      index(R"({"metadata":{"total_size":4,"x":[{"y":[1.5,null]}]},"weight_map":{)"
            R"("b":"model-00002-of-00002.safetensors","a":"m.safetensors"},"z":"weight_map"})"));
  EXPECT_EQ(files, (std::map<std::string, std::string>{{"a", "m.safetensors"},
                                                       {"b", "model-00002-of-00002.safetensors"}}));
  EXPECT_OK(index(R"({"weight_map":{}})"));
}

TEST(SafetensorsIndexTest, V18WeightMapIsAnObjectOfStrings) {
  for (const char* json :
       {"{}", R"({"weight_map":[]})", R"({"weight_map":null})", R"({"weight_map":"a"})",
        R"({"weight_map":1})", R"({"weight_map":{"a":1}})", R"({"weight_map":{"a":{}}})",
        R"({"weight_map":{"a":["x.safetensors"]}})", R"({"weight_map":{"a":null}})"}) {
    EXPECT_THAT(index(json), StatusIs(StatusCode::kDataLoss, StartsWith("i.json: V18: ")));
  }
  EXPECT_THAT(index("["), StatusIs(StatusCode::kDataLoss, StartsWith("i.json: V5: ")));
  EXPECT_THAT(index(R"({"weight_map":{},"weight_map":{}})"),
              StatusIs(StatusCode::kDataLoss, StartsWith("i.json: V6: ")));
}

TEST(SafetensorsIndexTest, V18IndexAndFilesSayTheSame) {
  const SafetensorsHeader a = {.tensors = {{.name = "a"}}};
  const SafetensorsHeader b = {.tensors = {{.name = "b"}}};
  const std::map<std::string, std::string> both = {{"a", "1.safetensors"}, {"b", "2.safetensors"}};
  const auto check = [&](const std::map<std::string, std::string>& map,
                         const std::map<std::string, SafetensorsHeader>& files) {
    return check_safetensors_index(map, files, "i.json");
  };
  const auto breaks = [](const std::string& text) {
    return StatusIs(StatusCode::kDataLoss, AllOf(StartsWith("i.json: V18: "), HasSubstr(text)));
  };
  EXPECT_OK(check(both, {{"1.safetensors", a}, {"2.safetensors", b}}));
  EXPECT_THAT(check(both, {{"1.safetensors", a}}), breaks("tensor 'b' is not in"));
  EXPECT_THAT(check({{"a", "1.safetensors"}}, {{"1.safetensors", a}, {"2.safetensors", b}}),
              breaks("the index says nothing of it"));
  EXPECT_THAT(check(both, {{"1.safetensors", b}, {"2.safetensors", a}}),
              breaks("tensor 'b' is in '1.safetensors', the index says '2.safetensors'"));
  EXPECT_THAT(check(both, {{"1.safetensors", a}, {"2.safetensors", a}}),
              breaks("is in '1.safetensors' and in '2.safetensors'"));
}

// What has gone wrong in the field, in other readers.
TEST(SafetensorsFieldTest, F1AHeaderLengthThatWraps) {
  const uint64_t max = std::numeric_limits<uint64_t>::max();
  for (const uint64_t length : {max, max - 4, max - 7, max - 8, uint64_t{1} << 63}) {
    EXPECT_THAT(parse_safetensors(bytes_of(length_field(length) + "{}"), "a.safetensors"),
                Breaks("V2"));
    MemoryFile file(bytes_of(length_field(length) + "{}"));
    EXPECT_THAT(read_safetensors_header(file, "a.safetensors"), Breaks("V2"));
  }
  EXPECT_THAT(parse_safetensors(bytes_of(length_field(99'999'999) + "{}"), "a.safetensors"),
              Breaks("V2"));
}

TEST(SafetensorsFieldTest, F2AProductThatWrapsBesideAZero) {
  for (const char* shape : {"[4294967296,4294967296,0]", "[0,4294967296,4294967296]"}) {
    EXPECT_THAT(parse(tensor("\"U8\"", shape, "[0,0]")), Breaks("V12"));
  }
  // An empty tensor is checked like any other.
  EXPECT_THAT(parse(tensor("\"U8\"", "[0]", "[4096,4096]")), Breaks("V14"));
  EXPECT_THAT(parse(tensor("\"U8\"", "[0]", "[0,4096]")), Breaks("V13"));
}

TEST(SafetensorsFieldTest, F3AProductThatWrapsToZeroAndNegativeSizes) {
  EXPECT_THAT(parse(tensor("\"U8\"", "[4294967296,4294967296]", "[0,0]")), Breaks("V12"));
  EXPECT_THAT(parse(tensor("\"U8\"", "[-1,-2]", "[0,2]"), 2), Breaks("V9"));
}

TEST(SafetensorsFieldTest, F4TypesAreNeverSkipped) {
  EXPECT_THAT(parse(tensor("\"WHAT\"", "[0]", "[0,0]")), StatusIs(StatusCode::kInvalidArgument));
}

TEST(SafetensorsFieldTest, F5OffsetsThatDoNotFitTheShape) {
  EXPECT_THAT(parse(tensor("\"F32\"", "[1024]", "[0,2]"), 2), Breaks("V13", "need 4096"));
}

TEST(SafetensorsFieldTest, F6ManyTensorsThatShareOneRange) {
  std::string json = "{";
  for (int i = 0; i < 10'000; ++i) {
    json += (i == 0 ? "\"" : ",\"") + std::to_string(i) +
            R"(":{"dtype":"U8","shape":[1000000],"data_offsets":[0,1000000]})";
  }
  EXPECT_THAT(parse(json + "}", 1'000'000), Breaks("V14"));
}

TEST(SafetensorsFieldTest, F7KeysThatAreThereTwice) {
  const std::string a = R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  const std::string escaped = R"("\u0061":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_THAT(parse("{" + a + "," + a + "}"), Breaks("V6", "'a' is there twice"));
  EXPECT_THAT(parse("{" + a + "," + escaped + "}"), Breaks("V6", "'a' is there twice"));
  EXPECT_THAT(parse(R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})"),
              Breaks("V6", "'dtype' is there twice"));
  EXPECT_THAT(parse(R"({"__metadata__":{"k":"1","k":"2"}})"), Breaks("V6", "'k'"));
  EXPECT_THAT(parse(R"({"__metadata__":{},"__metadata__":{}})"), Breaks("V6", "'__metadata__'"));
  EXPECT_THAT(parse(R"({"a":{"x":{"k":1,"\u006b":1}}})"), Breaks("V6", "'k'"));
}

TEST(SafetensorsFieldTest, F8CutOrWithSomethingBehind) {
  const std::vector<std::byte> file = file_of(kGood, 2);
  for (size_t bytes = 0; bytes < file.size(); ++bytes) {
    EXPECT_THAT(parse_safetensors(base::ByteSpan(file).first(bytes), "a.safetensors"),
                StatusIs(StatusCode::kDataLoss));
  }
  std::vector<std::byte> longer = file;
  longer.push_back(std::byte{0});
  EXPECT_THAT(parse_safetensors(longer, "a.safetensors"), Breaks("V15"));
}

TEST(SafetensorsFieldTest, F9FileNamesThatLeadOutOfTheFolder) {
  for (const char* name :
       {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "a\\\\b.safetensors", "x.bin",
        "", ".safetensors", "..safetensors", "x.safetensors/", "x.safetensors\\u0000",
        "x\\u0000.safetensors", "C:x.safetensors", "x\\n.safetensors", "X.SAFETENSORS"}) {
    EXPECT_THAT(index("{\"weight_map\":{\"a\":\"" + std::string(name) + "\"}}"),
                StatusIs(StatusCode::kDataLoss, StartsWith("i.json: V18: tensor 'a'")))
        << name;
  }
}

// Byte by byte: a header of one page, of which all but two bytes are spaces.
TEST(SafetensorsWriteTest, TheEmptyFile) {
  ASSERT_OK_AND_ASSIGN(const SafetensorsImage image, make_safetensors({}, {}));
  std::string expected = std::string("\xF8\x0F\0\0\0\0\0\0", 8) + "{}";
  expected.resize(4096, ' ');
  EXPECT_EQ(base::as_text(image.header), expected);
  EXPECT_EQ(image.file_bytes, 4096u);
}

TEST(SafetensorsWriteTest, ASmallFileByteByByte) {
  ASSERT_OK_AND_ASSIGN(
      const SafetensorsImage image,
      make_safetensors({{.name = "b\"\\\n\u00e4", .type = ElementType::kU8, .shape = {3}},
                        {.name = "a", .type = ElementType::kF32, .shape = {2, 1}},
                        {.name = "s", .type = ElementType::kF32, .shape = {}}},
                       {{"step", "7"}, {"x", "\x01"}}));
  std::string expected =
      std::string("\xF8\x0F\0\0\0\0\0\0", 8) +
      R"({"__metadata__":{"step":"7","x":"\u0001"},)"
      R"("a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
      R"("s":{"dtype":"F32","shape":[],"data_offsets":[8,12]},)"
      "\"b\\\"\\\\\\u000a\u00e4\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[12,15]}}";
  expected.resize(4096, ' ');
  EXPECT_EQ(base::as_text(image.header), expected);
  EXPECT_EQ(image.file_bytes, 4096u + 15u);
  ASSERT_EQ(image.tensors.size(), 3u);
  EXPECT_EQ(image.tensors[0].begin, 12u);
  EXPECT_EQ(image.tensors[1].begin, 0u);
}

TEST(SafetensorsWriteTest, WhatIsWrittenReadsBack) {
  base::SeededRandom random(perdure::testing::test_seed());
  for (int round = 0; round < 300; ++round) {
    std::vector<StoredTensor> tensors(random.uniform_int(60));
    for (size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].name = std::to_string(i) + std::string(random.uniform_int(200), '\x1f');
      do {
        tensors[i].type = static_cast<ElementType>(random.uniform_int(22));
        tensors[i].shape.resize(random.uniform_int(4));
        for (int64_t& size : tensors[i].shape) size = static_cast<int64_t>(random.uniform_int(5));
      } while (!stored_bytes(tensors[i]).is_ok());
    }
    ASSERT_OK_AND_ASSIGN(const SafetensorsImage image, make_safetensors(tensors, {{"k", "v"}}));
    ASSERT_EQ(image.header.size() % 4096, 0u);
    std::vector<std::byte> file = image.header;
    file.resize(image.file_bytes);
    ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header, parse_safetensors(file, "x"));
    ASSERT_EQ(header.data_offset, image.header.size());
    ASSERT_EQ(header.tensors.size(), tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const StoredTensor* read = header.find(tensors[i].name);
      ASSERT_NE(read, nullptr);
      ASSERT_EQ(read->type, tensors[i].type);
      ASSERT_EQ(read->shape, tensors[i].shape);
      ASSERT_EQ(read->begin, image.tensors[i].begin);
      ASSERT_EQ(read->end, image.tensors[i].end);
      ASSERT_EQ(read->begin % std::max(1u, size_bits(read->type) / 8), 0u);
    }
  }
}

TEST(SafetensorsWriteTest, RefusesWhatNoReaderWouldTake) {
  const auto make = [](std::vector<StoredTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {}) {
    return make_safetensors(std::move(tensors), metadata);
  };
  const auto refused = [](const std::string& text) {
    return StatusIs(StatusCode::kInvalidArgument, HasSubstr(text));
  };
  EXPECT_THAT(make({{.name = "a"}, {.name = "a"}}), refused("tensor 'a' is there twice"));
  EXPECT_THAT(make({{.name = "__metadata__"}}), refused("uses this name itself"));
  EXPECT_THAT(make({{.name = "\xFF"}}), refused("not UTF-8"));
  EXPECT_THAT(make({{.name = std::string(1, '\0')}}), refused("zero byte"));
  EXPECT_THAT(make({{.name = "a", .shape = {-1}}}), refused("negative"));
  const int64_t max = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(make({{.name = "a", .shape = {max, 0, 2}}}), refused("elements"));
  EXPECT_THAT(make({{.name = "a", .shape = {max / 2}}}), refused("bytes"));
  EXPECT_THAT(make({{.name = "a", .type = ElementType::kU8, .shape = {max}},
                    {.name = "b", .type = ElementType::kU8, .shape = {1}}}),
              refused("the file would have more"));
  EXPECT_THAT(make({{.name = "a", .type = ElementType::kF4, .shape = {3}}}),
              refused("whole bytes"));
  EXPECT_THAT(make({}, {{"k", "\xC3"}}), refused("metadata 'k' is not UTF-8"));
  EXPECT_THAT(make({}, {{"\xC3", ""}}), refused("is not UTF-8"));
  EXPECT_THAT(make({}, {{"k", std::string(kHeaderBytesMax, 'x')}}), refused("several files"));
}

}  // namespace
}  // namespace perdure::checkpoint
