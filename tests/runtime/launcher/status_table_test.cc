#include "runtime/launcher/status_table.h"

#include "tests/testing/matchers.h"

namespace perdure::runtime::launcher {
namespace {

using base::StatusCode;
using ::perdure::testing::StatusIs;

TEST(StatusTableTest, PlainValuesThenTables) {
  ASSERT_OK_AND_ASSIGN(
      const std::string text,
      status_table(R"({"job":"a1","committed_step":12,"nodes":[)"
                   R"({"node":0,"alive":true,"heard_ms_ago":1.23456789,)"
                   R"("workers":[{"worker":0,"rank":"stand-by"},{"worker":1,"rank":3}]},)"
                   R"({"node":10,"alive":false,"workers":[]}]})"));
  EXPECT_EQ(text,
            "job             a1\n"
            "committed step  12\n"
            "\n"
            "nodes\n"
            "  node  alive  heard ms ago\n"
            "  0     yes    1.23457\n"
            "  10    no     -\n"
            "\n"
            "workers\n"
            "  node  worker  rank\n"
            "  0     0       stand-by\n"
            "  0     1       3\n");
}

TEST(StatusTableTest, ListsOfOtherThingsStayAsTheyAre) {
  ASSERT_OK_AND_ASSIGN(const std::string text,
                       status_table(R"({"losses":[1,2],"none":[],"more":{"a":null}})"));
  EXPECT_EQ(text,
            "losses  [1,2]\n"
            "none    []\n"
            "more    {\"a\":null}\n");
}

TEST(StatusTableTest, OtherTextIsRefused) {
  for (const char* text : {"", "[]", "7", "{\"a\":"}) {
    EXPECT_THAT(status_table(text), StatusIs(StatusCode::kDataLoss)) << text;
  }
}

}  // namespace
}  // namespace perdure::runtime::launcher
