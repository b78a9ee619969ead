#include "base/config.h"

#include "tests/testing/matchers.h"

namespace perdure::base {
namespace {

using ::perdure::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

enum class Numerics { kExact, kFast };

struct Job {
  int pipelines = 2;
  uint16_t port = 7000;
  double learning_rate = 0.001;
  std::string data = "text";
  bool verbose = false;
  Numerics numerics = Numerics::kExact;
  std::vector<std::string> hosts = {"localhost"};
};

class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() {
    schema_.add_int("layout.pipelines", &job_.pipelines,
                    {.min = 1, .max = 1024, .help = "replicas of the model"});
    schema_.add_int("port", &job_.port);
    schema_.add_double("optimizer.learning_rate", &job_.learning_rate, {.min = 0, .max = 1});
    schema_.add_string("data.path", &job_.data, {.required = true, .help = "what to train on"});
    schema_.add_bool("verbose", &job_.verbose);
    schema_.add_enum("numerics", &job_.numerics,
                     {{"exact", Numerics::kExact}, {"fast", Numerics::kFast}});
    schema_.add_string_list("hosts", &job_.hosts);
  }

  void expect_error(std::string_view text, std::string_view message) {
    EXPECT_THAT(schema_.load_toml(text, "job.toml"),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(std::string(message))));
  }

  Job job_;
  ConfigSchema schema_;
};

TEST_F(ConfigTest, FillsEveryType) {
  ASSERT_OK(schema_.load_toml(R"(
port = 65535
verbose = true
numerics = "fast"
hosts = ["a", "b"]
[layout]
pipelines = 4
[optimizer]
learning_rate = 1
[data]
path = "kjv"
)",
                              "job.toml"));
  EXPECT_EQ(job_.port, 65535);
  EXPECT_TRUE(job_.verbose);
  EXPECT_EQ(job_.numerics, Numerics::kFast);
  EXPECT_THAT(job_.hosts, ElementsAre("a", "b"));
  EXPECT_EQ(job_.pipelines, 4);
  EXPECT_EQ(job_.learning_rate, 1.0);
  EXPECT_EQ(job_.data, "kjv");
  EXPECT_OK(schema_.check_required());
}

TEST_F(ConfigTest, UnknownKeyNamesTheNearest) {
  expect_error("[layout]\npipelins = 3\n",
               "job.toml:2: layout.pipelins: unknown key; did you mean 'layout.pipelines'?");
  expect_error("zzzzzzzzzz = 3\n", "job.toml:1: zzzzzzzzzz: unknown key; the known keys are");
}

TEST_F(ConfigTest, WrongTypeSaysWhatIsAllowed) {
  expect_error("port = \"x\"\n",
               "job.toml:1: port: \"x\" is not an integer; allowed is an integer");
  expect_error("port = 1.5\n", "port: 1.5 is not an integer");
  expect_error("verbose = 1\n", "verbose: 1 is not a bool; allowed is true or false");
  expect_error("data.path = true\n", "data.path: true is not a string; allowed is a string");
  expect_error("hosts = [1]\n", "hosts[0]: 1 is not a string; allowed is a list of strings");
  expect_error("[optimizer]\nlearning_rate = \"a\"\n", "\"a\" is not a number");
  expect_error("hosts = \"a\"\n", "hosts: is not an array; allowed is a list of strings");
  expect_error("port = [1]\n", "port[0]: is an array; allowed is an integer");
  expect_error("port = 1979-05-27\n", "job.toml:1: port: dates and times are not supported");
}

TEST_F(ConfigTest, OutOfRangeSaysTheRange) {
  expect_error(
      "\n\n[layout]\npipelines = 0\n",
      "job.toml:4: layout.pipelines: 0 is out of range; allowed is an integer in [1, 1024]");
  expect_error("port = 65536\n", "65536 is out of range; allowed is an integer in [0, 65535]");
  expect_error("[optimizer]\nlearning_rate = nan\n", "out of range; allowed is a number in [0, 1]");
  expect_error("numerics = \"exakt\"\n",
               "numerics: \"exakt\" is not a known name; allowed is one of: exact, fast");
}

TEST_F(ConfigTest, SyntaxErrorsAndDuplicatesHaveALine) {
  expect_error("port = 1\nport = = 2\n", "job.toml:2: ");
  expect_error("port = 1\nport = 2\n", "job.toml:2: ");
}

// Found by fuzz_test: the parser's own assertion ended the process.
TEST_F(ConfigTest, ATableNameThatIsNoKeyIsAnError) {
  expect_error("[,]\n", "job.toml:1: ");
  expect_error("\n[[=]]\n", "job.toml:2: ");
}

// Found by fuzz_test: undefined behaviour in the parser's unicode tables.
TEST_F(ConfigTest, LettersOutsideOfStringsAreErrors) {
  expect_error("port = 1 \u00e9\n", "job.toml:1: ");
  expect_error("\n\u00e9 = 1\n", "job.toml:2: ");
  ASSERT_OK(schema_.load_toml("data.path = \"\u00e9\" # \u00e9\n", "job.toml"));
  EXPECT_EQ(job_.data, "\u00e9");
}

TEST_F(ConfigTest, AFailingLoadChangesNothing) {
  expect_error("port = 1\nverbose = 7\n", "verbose");
  EXPECT_EQ(job_.port, 7000);
}

TEST_F(ConfigTest, LaterTextWins) {
  ASSERT_OK(schema_.load_toml("port = 1\nhosts = [\"a\"]", "a.toml"));
  ASSERT_OK(schema_.load_toml("port = 2\nhosts = [\"b\"]", "b.toml"));
  EXPECT_EQ(job_.port, 2);
  EXPECT_THAT(job_.hosts, ElementsAre("b"));
}

TEST_F(ConfigTest, AnEmptyListIsAValue) {
  ASSERT_OK(schema_.load_toml("hosts = []", "a.toml"));
  EXPECT_THAT(job_.hosts, ElementsAre());
  ASSERT_OK(schema_.set("hosts=a"));
  ASSERT_OK(schema_.set("hosts="));
  EXPECT_THAT(job_.hosts, ElementsAre());
  expect_error("port = []", "job.toml:1: port[]: is an array; allowed is an integer");
  expect_error("ports = []", "unknown key");
}

TEST_F(ConfigTest, MissingRequiredIsNamed) {
  ASSERT_OK(schema_.load_toml("port = 1", "a.toml"));
  EXPECT_THAT(schema_.check_required(),
              StatusIs(StatusCode::kInvalidArgument, "missing required: data.path (a string)"));
  ASSERT_OK(schema_.set("data.path=corpus.txt"));
  EXPECT_OK(schema_.check_required());
}

TEST_F(ConfigTest, SetParsesTheDeclaredType) {
  EXPECT_OK(schema_.set("port = 12"));
  EXPECT_OK(schema_.set("data.path=12"));
  EXPECT_OK(schema_.set("optimizer.learning_rate=1e-2"));
  EXPECT_OK(schema_.set("verbose=true"));
  EXPECT_OK(schema_.set("numerics=\"fast\""));
  EXPECT_OK(schema_.set("hosts=a, b,c"));
  EXPECT_EQ(job_.port, 12);
  EXPECT_EQ(job_.data, "12");
  EXPECT_EQ(job_.learning_rate, 0.01);
  EXPECT_TRUE(job_.verbose);
  EXPECT_EQ(job_.numerics, Numerics::kFast);
  EXPECT_THAT(job_.hosts, ElementsAre("a", "b", "c"));
}

TEST_F(ConfigTest, SetSaysWhatIsWrong) {
  const auto message_of = [this](std::string_view text) { return schema_.set(text).message(); };
  EXPECT_EQ(message_of("port"), "--set: port: has no '='; write key=value");
  EXPECT_EQ(message_of("prt=1"), "--set: prt: unknown key; did you mean 'port'?");
  EXPECT_THAT(message_of("port=ten"), HasSubstr("--set: port: \"ten\" is not an integer"));
  EXPECT_THAT(message_of("port="), HasSubstr("--set: port: \"\" is not an integer"));
}

TEST_F(ConfigTest, DescribesItself) {
  EXPECT_EQ(schema_.describe(),
            "data.path: a string; required. what to train on\n"
            "hosts: a list of strings; default [localhost]\n"
            "layout.pipelines: an integer in [1, 1024]; default 2. replicas of the model\n"
            "numerics: one of: exact, fast; default \"exact\"\n"
            "optimizer.learning_rate: a number in [0, 1]; default 0.001\n"
            "port: an integer in [0, 65535]; default 7000\n"
            "verbose: true or false; default false\n");
}

TEST(ParseTomlTest, FlattensTablesOfTables) {
  ASSERT_OK_AND_ASSIGN(const auto entries, parse_toml(R"([[fault]]
kind = "crash"
at = [1, 2]
[[fault]]
kind = "slow"
)",
                                                      "plan.toml"));
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(entries[0].key, "fault[0].kind");
  EXPECT_EQ(entries[2].key, "fault[0].at[1]");
  EXPECT_EQ(std::get<int64_t>(entries[2].value), 2);
  EXPECT_EQ(entries[3].key, "fault[1].kind");
  EXPECT_EQ(entries[3].line, 5);
}

TEST(ConfigDeathTest, DeclaringTwiceIsABug) {
  ConfigSchema schema;
  int n = 0;
  schema.add_int("n", &n);
  EXPECT_DEATH(schema.add_int("n", &n), "declared twice: n");
}

}  // namespace
}  // namespace perdure::base
