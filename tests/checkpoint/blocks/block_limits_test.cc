// A full file system, and a kernel that refuses a call: each in a process of its own.

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iterator>

#include "checkpoint/block_files.h"
#include "tests/checkpoint/blocks/block_image.h"
#include "tests/testing/matchers.h"

namespace perdure::checkpoint::blocks {
namespace {

using namespace base::literals;
using base::StatusCode;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// What `body` says in a child process.
std::string in_child(const std::function<std::string()>& body) {
  int ends[2] = {};
  CHECK_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  CHECK_GE(child, 0);
  if (child == 0) {
    const std::string text = body();
    const ssize_t wrote = ::write(ends[1], text.data(), text.size());
    ::_exit(wrote == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[4096];
  while (const ssize_t n = ::read(ends[0], buffer, sizeof(buffer))) {
    if (n < 0) break;
    text.append(buffer, static_cast<size_t>(n));
  }
  ::close(ends[0]);
  int status = 0;
  CHECK_EQ(::waitpid(child, &status, 0), child);
  return status == 0 ? text : "the child ended with " + std::to_string(status) + ": " + text;
}

// Mounts a file system of 8 MiB over `folder`, for this process only. "" or why not.
std::string mount_small(const std::string& folder) {
  if (::unshare(CLONE_NEWNS) != 0) return std::string("unshare: ") + std::strerror(errno);
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("small", folder.c_str(), "tmpfs", 0, "size=8m") != 0) {
    return std::string("mount: ") + std::strerror(errno);
  }
  return "";
}

std::string fill(BlockFiles& files, const std::string& folder) {
  const Image image(9_MiB);
  const auto write = [&](const std::string& name, uint64_t bytes) {
    return files.write({.path = folder + name, .image = image.first(bytes), .file_bytes = bytes});
  };
  const base::Status first = write("/kept", 5_MiB);
  const base::Status second = write("/large", 4_MiB);
  const bool kept = equal(contents(folder + "/kept"), image.first(5_MiB));
  std::filesystem::remove(folder + "/large");
  const base::Status third = write("/fits", 2_MiB);
  return first.to_string() + "|" + second.to_string() + "|" + (kept ? "kept" : "changed") + "|" +
         third.to_string();
}

class FullDiskTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Queues, FullDiskTest, ::testing::Values("uring", "blocking"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(FullDiskTest, AFullFileSystemIsToldBeforeAnythingIsWrittenAndHarmsNothing) {
  const Folder folder(std::filesystem::temp_directory_path().string());
  const std::string root = folder.path("small");
  std::filesystem::create_directory(root);
  const std::string said = in_child([&]() -> std::string {
    const std::string why_not = mount_small(root);
    if (!why_not.empty()) return "skip: " + why_not;
    if (GetParam() == std::string("blocking")) return fill(*make_blocking_files({}), root);
    auto files = make_uring_files({});
    return files.is_ok() ? fill(**files, root) : "skip: " + files.status().message();
  });
  if (said.starts_with("skip: ")) GTEST_SKIP() << said.substr(6);
  const std::string full =
      base::Status(StatusCode::kResourceExhausted,
                   "reserve 4194304 bytes for " + root + "/large: No space left on device")
          .to_string();
  const std::string ok = base::Status::ok().to_string();
  EXPECT_EQ(said, ok + "|" + full + "|kept|" + ok);
}

// From now on a call of the kernel gives an error in this process: always, or when its third
// argument has one of `bits`. "" or why not.
std::string forbid(int call, int number, uint32_t bits = 0) {
  const uint16_t compare = bits == 0 ? BPF_JGE : BPF_JSET;  // all numbers are at least 0
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_JUMP(static_cast<uint16_t>(BPF_JMP | compare | BPF_K), bits, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(number)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {.len = std::size(rules), .filter = rules};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    return std::string("skip: seccomp: ") + std::strerror(errno);
  }
  return "";
}

struct Refusal {
  const char* name;
  int call;
  int number;
  base::StatusCode code;  // of the write
  std::string text;       // in its message
  uint32_t bits = 0;
};
class RefusedCallTest : public ::testing::TestWithParam<Refusal> {};
INSTANTIATE_TEST_SUITE_P(
    Calls, RefusedCallTest,
    ::testing::Values(Refusal{"NoReservation", __NR_fallocate, EOPNOTSUPP, StatusCode::kOk, ""},
                      Refusal{"OldReservation", __NR_fallocate, ENOSYS, StatusCode::kOk, ""},
                      Refusal{"Reservation", __NR_fallocate, EDQUOT, StatusCode::kResourceExhausted,
                              " bytes for PATH: "},
                      Refusal{"Block", __NR_pwrite64, ENOSPC, StatusCode::kResourceExhausted,
                              "write PATH at byte 0: "},
                      Refusal{"Cut", __NR_ftruncate, EIO, StatusCode::kDataLoss,
                              "cut to 5000 bytes PATH: "},
                      Refusal{"Sync", __NR_fdatasync, EIO, StatusCode::kDataLoss, "sync PATH: "},
                      Refusal{"Close", __NR_close, EIO, StatusCode::kDataLoss, "close PATH: "},
                      Refusal{"Flags", __NR_fcntl, EPERM, StatusCode::kFailedPrecondition,
                              "set the flags of PATH: "},
                      Refusal{"Look", __NR_statx, EIO, StatusCode::kDataLoss, "stat PATH: "}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(RefusedCallTest, IsToldOrDoneWithout) {
  const Folder folder(std::filesystem::temp_directory_path().string());
  const std::string path = folder.path("a");
  const Image image(8192);
  const std::string said = in_child([&]() -> std::string {
    const auto files = make_blocking_files({});
    const std::string why_not = forbid(GetParam().call, GetParam().number, GetParam().bits);
    if (!why_not.empty()) return why_not;
    const base::Status status =
        files->write({.path = path, .image = image.first(8192), .file_bytes = 5000});
    return std::string(base::to_string(status.code())) + "|" + status.message();
  });
  if (said.starts_with("skip: ")) GTEST_SKIP() << said.substr(6);
  std::string text = GetParam().text;
  if (!text.empty()) text.replace(text.find("PATH"), 4, path);
  EXPECT_THAT(said, StartsWith(std::string(base::to_string(GetParam().code)) + "|"));
  EXPECT_THAT(said, HasSubstr(text));
  if (GetParam().code == StatusCode::kOk) {
    EXPECT_TRUE(equal(contents(path), image.first(5000)));
  }
}

TEST(RefusedReadTest, IsToldWithItsPlace) {
  const Folder folder(std::filesystem::temp_directory_path().string());
  const std::string path = folder.path("a");
  Image image(8192);
  put(path, image.first(8192));
  const std::string said = in_child([&]() -> std::string {
    const auto files = make_blocking_files({});
    const std::string why_not = forbid(__NR_pread64, EIO);
    if (!why_not.empty()) return why_not;
    const ReadRange range = {.offset = 4096, .to = image.bytes().first(10)};
    return files->read(path, {&range, 1}, nullptr).to_string();
  });
  if (said.starts_with("skip: ")) GTEST_SKIP() << said.substr(6);
  EXPECT_THAT(said, HasSubstr("read " + path + " at byte 4096: "));
}

class NoUringTest : public ::testing::TestWithParam<std::pair<int, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Errors, NoUringTest,
                         ::testing::Values(std::pair(EPERM, "io_uring is not allowed"),
                                           std::pair(ENOSYS, "no io_uring"),
                                           std::pair(ENOMEM, "no io_uring")));

TEST_P(NoUringTest, BlockingCallsTakeItsPlace) {
  const Folder folder(std::filesystem::temp_directory_path().string());
  const std::string path = folder.path("a");
  const std::string said = in_child([&]() -> std::string {
    const std::string why_not = forbid(__NR_io_uring_setup, GetParam().first);
    if (!why_not.empty()) return why_not;
    const auto uring = make_uring_files({});
    if (uring.is_ok()) return "io_uring is there";
    if (uring.status().code() != StatusCode::kUnimplemented) return uring.status().to_string();
    const auto files = make_block_files({});
    const Image image(5000);
    const base::Status status =
        files->write({.path = path, .image = image.first(5000), .file_bytes = 5000});
    if (!status.is_ok()) return status.to_string();
    return equal(contents(path), image.first(5000)) ? files->mode() : "wrong contents";
  });
  if (said.starts_with("skip: ")) GTEST_SKIP() << said.substr(6);
  EXPECT_THAT(said, StartsWith("blocking, "));
  EXPECT_THAT(said, HasSubstr(std::string("(") + GetParam().second + ": "));
}

}  // namespace
}  // namespace perdure::checkpoint::blocks
