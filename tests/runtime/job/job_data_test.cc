#include "runtime/job/job_data.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/posix_files.h"
#include "runtime/data/prepare.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::job {
namespace {

using base::StatusCode;
using ::testing::HasSubstr;
using testing::StatusIs;

class JobDataTest : public ::testing::Test {
 protected:
  JobDataTest()
      : dir_(std::filesystem::path(::testing::TempDir()) /
             ("perdure_job_data_" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    job_.model.context = 16;
    job_.model.vocabulary = 256;
    job_.batch.micro_batch = 2;
    job_.run.eval_every = 1;
    job_.run.eval_batches = 3;
  }
  ~JobDataTest() override { std::filesystem::remove_all(dir_); }

  // Prepares so many bytes of text, a tenth of them for evaluation.
  void prepare(size_t bytes) {
    const std::string corpus = (dir_ / "corpus.txt").string();
    std::ofstream(corpus) << std::string(bytes, 'x');
    base::PosixFiles files;
    ASSERT_OK(data::prepare_data(files, {.inputs = {corpus}, .out_dir = dir_.string()}, nullptr));
    job_.data.path = dir_.string();
  }

  std::filesystem::path dir_;
  JobConfig job_;
};

TEST_F(JobDataTest, OpensPreparedData) {
  prepare(2000);
  job_.data.tokenizer = "byte";
  ASSERT_OK_AND_ASSIGN(const data::DataSource source, open_job_data(job_));
  EXPECT_EQ(source.samples_per_epoch(), 1799u / 16);
  EXPECT_EQ(source.evaluation_samples(), 199u / 16);
}

TEST_F(JobDataTest, MakesSyntheticDataWithEnoughToEvaluate) {
  job_.data.synthetic_tokens = 1000;
  ASSERT_OK_AND_ASSIGN(const data::DataSource source, open_job_data(job_));
  EXPECT_EQ(source.samples_per_epoch(), 999u / 16);
  EXPECT_EQ(source.evaluation_samples(), 6u);
  job_.run.eval_every = 0;
  EXPECT_EQ(open_job_data(job_).value().evaluation_samples(), 0u);
}

TEST_F(JobDataTest, SyntheticDataFollowTheSeed) {
  job_.data.synthetic_tokens = 1000;
  job_.run.seed = 1;
  const uint64_t one = open_job_data(job_).value().training().info().payload_hash;
  EXPECT_EQ(open_job_data(job_).value().training().info().payload_hash, one);
  job_.run.seed = 2;
  EXPECT_NE(open_job_data(job_).value().training().info().payload_hash, one);
}

TEST_F(JobDataTest, NamesWhatIsMissing) {
  job_.data.path = (dir_ / "none").string();
  EXPECT_THAT(open_job_data(job_), StatusIs(StatusCode::kNotFound, HasSubstr("train.tokens")));
  prepare(2000);
  std::filesystem::remove(dir_ / "val.tokens");
  EXPECT_THAT(open_job_data(job_), StatusIs(StatusCode::kNotFound, HasSubstr("val.tokens")));
  job_.run.eval_every = 0;
  EXPECT_OK(open_job_data(job_));
}

TEST_F(JobDataTest, RefusesDataThatDoNotFitTheJob) {
  prepare(2000);
  const StatusCode invalid = StatusCode::kInvalidArgument;
  job_.data.tokenizer = "gpt2";
  EXPECT_THAT(open_job_data(job_),
              StatusIs(invalid, HasSubstr("was prepared with the tokenizer \"byte\", "
                                          "data.tokenizer is \"gpt2\"")));
  job_.data.tokenizer = "";
  job_.model.vocabulary = 100;
  EXPECT_THAT(open_job_data(job_), StatusIs(invalid, HasSubstr("token 120 >= vocabulary 100")));
  job_.model.vocabulary = 256;
  job_.run.eval_batches = 7;
  EXPECT_THAT(open_job_data(job_),
              StatusIs(invalid, HasSubstr("has 12 samples of model.context tokens, "
                                          "run.eval_batches (7) x batch.micro_batch (2) need 14")));
  job_.model.context = 2000;
  EXPECT_THAT(open_job_data(job_), StatusIs(invalid, HasSubstr("one sample needs")));
  std::ofstream(dir_ / "train.tokens") << "nonsense";
  EXPECT_THAT(open_job_data(job_), StatusIs(invalid, HasSubstr("is not a token file")));
}

}  // namespace
}  // namespace perdure::runtime::job
