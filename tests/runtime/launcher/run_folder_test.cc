#include "runtime/launcher/run_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/posix_files.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::launcher {
namespace {

using base::StatusCode;
using ::perdure::testing::StatusIs;

class RunFolderTest : public ::testing::Test {
 protected:
  RunFolderTest()
      : folder_(::testing::TempDir() + "perdure_run_folder_" + std::to_string(::getpid())) {}
  ~RunFolderTest() override { (void)remove_tree(files_, folder_.path()).is_ok(); }

  static unsigned mode(const std::string& path) {
    struct stat info {};
    CHECK_EQ(::stat(path.c_str(), &info), 0);
    return info.st_mode & 0777;
  }

  base::PosixFiles files_;
  RunFolder folder_;
};

TEST_F(RunFolderTest, KeepsTheSecretToItself) {
  ASSERT_OK(make_run_folder(folder_, files_, "s3cret", "[run]\n"));
  EXPECT_EQ(mode(folder_.control()), 0700u);
  EXPECT_EQ(mode(folder_.secret()), 0600u);
  ASSERT_OK_AND_ASSIGN(const std::string secret, read_secret(folder_, files_));
  EXPECT_EQ(secret, "s3cret");
  ASSERT_OK_AND_ASSIGN(const auto job, base::read_file(files_, folder_.job(), 100));
  EXPECT_EQ(base::as_text(job), "[run]\n");
}

TEST_F(RunFolderTest, TellsWhereTheCoordinatorIs) {
  EXPECT_THAT(read_coordinator(folder_, files_), StatusIs(StatusCode::kNotFound));
  ASSERT_OK(make_run_folder(folder_, files_, "s", ""));
  EXPECT_THAT(read_coordinator(folder_, files_), StatusIs(StatusCode::kNotFound));
  ASSERT_OK(write_coordinator(folder_, files_, {.address = {"127.0.0.1", 4711}, .pid = 71}));
  ASSERT_OK_AND_ASSIGN(const CoordinatorPlace place, read_coordinator(folder_, files_));
  EXPECT_EQ(place.address, base::Address("127.0.0.1", 4711));
  EXPECT_EQ(place.pid, 71u);
}

TEST_F(RunFolderTest, ANewRunForgetsTheOneBefore) {
  ASSERT_OK(make_run_folder(folder_, files_, "s", ""));
  ASSERT_OK(write_coordinator(folder_, files_, {.address = {"127.0.0.1", 4711}, .pid = 71}));
  ASSERT_OK(files_.make_dirs(folder_.journal() + "/deep"));
  ASSERT_OK(base::replace_file(files_, folder_.path() + "/metrics.csv", {}));
  ASSERT_OK(make_run_folder(folder_, files_, "t", ""));
  EXPECT_THAT(files_.stat(folder_.journal()), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(read_coordinator(folder_, files_), StatusIs(StatusCode::kNotFound));
  EXPECT_OK(files_.stat(folder_.path() + "/metrics.csv"));
}

TEST_F(RunFolderTest, AnotherFileIsNoPlace) {
  ASSERT_OK(make_run_folder(folder_, files_, "s", ""));
  for (const char* text :
       {"", "[]", "{}", "{\"address\":3,\"pid\":1}", "{\"address\":\"127.0.0.1:1\",\"pid\":-1}"}) {
    ASSERT_OK(base::replace_file(files_, folder_.coordinator(), base::as_byte_span(text)));
    EXPECT_THAT(read_coordinator(folder_, files_), StatusIs(StatusCode::kDataLoss)) << text;
  }
  const char* nowhere = "{\"address\":\"nowhere\",\"pid\":1}";
  ASSERT_OK(base::replace_file(files_, folder_.coordinator(), base::as_byte_span(nowhere)));
  EXPECT_THAT(read_coordinator(folder_, files_), StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(RunFolderTest, AFileInTheWayIsNamed) {
  ASSERT_OK(base::replace_file(files_, folder_.path(), {}));
  EXPECT_FALSE(make_run_folder(folder_, files_, "s", "").is_ok());
}

}  // namespace
}  // namespace perdure::runtime::launcher
