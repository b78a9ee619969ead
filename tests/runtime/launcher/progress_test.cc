#include "runtime/launcher/progress.h"

#include <utility>
#include <vector>

#include "tests/testing/matchers.h"

namespace perdure::runtime::launcher {
namespace {

TEST(ProgressTest, DurationsHaveTheTwoLargestUnits) {
  const std::vector<std::pair<double, std::string>> cases = {
      {-3.0, "0s"},       {0.0, "0s"},
      {0.4, "0s"},        {0.6, "1s"},
      {45.0, "45s"},      {59.4, "59s"},
      {59.6, "1m 00s"},   {60.0, "1m 00s"},
      {100.0, "1m 40s"},  {3599.4, "59m 59s"},
      {3599.6, "1h 00m"}, {3600.0, "1h 00m"},
      {7500.0, "2h 05m"}, {360000.0, "100h 00m"},
  };
  for (const auto& [seconds, text] : cases) EXPECT_EQ(format_duration(seconds), text) << seconds;
}

TEST(ProgressTest, ALineNamesWhatIsKnown) {
  const std::vector<std::pair<Progress, std::string>> cases = {
      {{.step = 120,
        .steps = 1000,
        .loss = 2.34714,
        .val_loss = 2.4012,
        .tokens_per_s = 84210,
        .seconds_per_step = 0.25},
       "step 120/1000  loss 2.3471  val 2.4012  84.2k tok/s  ETA 3m 40s"},
      {{.step = 1, .steps = 3, .loss = 5.5, .tokens_per_s = 9999.4, .seconds_per_step = 2.0},
       "step 1/3  loss 5.5000  9999 tok/s  ETA 4s"},
      {{.step = 2, .steps = 3, .loss = 5.5, .val_loss = 0.0, .tokens_per_s = 10000},
       "step 2/3  loss 5.5000  val 0.0000  10.0k tok/s  ETA 0s"},
      {{.step = 3, .steps = 3, .loss = 0.25, .tokens_per_s = 1.5e6, .seconds_per_step = 9.0},
       "step 3/3  loss 0.2500  1.50M tok/s"},
      {{.step = 4, .steps = 3, .loss = 0.25, .seconds_per_step = 9.0},
       "step 4/3  loss 0.2500  0 tok/s"},
      {{}, "step 0/0  loss 0.0000  0 tok/s"},
  };
  for (const auto& [progress, text] : cases) EXPECT_EQ(format_progress(progress), text);
}

}  // namespace
}  // namespace perdure::runtime::launcher
