#pragma once
// Files in a directory of the test, and a file system that fails on purpose.

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/posix_files.h"
#include "tests/testing/matchers.h"

namespace perdure::testing {

// A fresh directory, removed with the fixture.
class TempDirTest : public ::testing::Test {
 protected:
  TempDirTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    dir_ = std::filesystem::path(::testing::TempDir()) /
           ("perdure_" + std::to_string(::getpid()) + "_" + info->test_suite_name() + "_" +
            info->name());
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  ~TempDirTest() override { std::filesystem::remove_all(dir_); }

  std::string path(const std::string& name) const { return (dir_ / name).string(); }
  std::string write(const std::string& name, const std::string& contents) const {
    std::ofstream(dir_ / name, std::ios::binary) << contents;
    return path(name);
  }
  std::string contents(const std::string& name) const {
    std::ifstream in(dir_ / name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  bool exists(const std::string& name) const { return std::filesystem::exists(dir_ / name); }

  base::PosixFiles files_;

 private:
  std::filesystem::path dir_;
};

// Passes everything on.
class ForwardingFile : public base::File {
 public:
  explicit ForwardingFile(std::unique_ptr<base::File> below) : below_(std::move(below)) {}
  base::Result<size_t> pread(uint64_t offset, base::MutableByteSpan buffer) override {
    return below_->pread(offset, buffer);
  }
  base::Status pwrite(uint64_t offset, base::ByteSpan bytes) override {
    return below_->pwrite(offset, bytes);
  }
  base::Status append(base::ByteSpan bytes) override { return below_->append(bytes); }
  base::Status sync() override { return below_->sync(); }
  base::Result<uint64_t> size() const override { return below_->size(); }
  base::Status truncate(uint64_t size_bytes) override { return below_->truncate(size_bytes); }
  base::Status close() override { return below_->close(); }

 private:
  std::unique_ptr<base::File> below_;
};

class ForwardingFiles : public base::FileSystem {
 public:
  explicit ForwardingFiles(base::FileSystem& below) : below_(below) {}
  base::Result<std::unique_ptr<base::File>> open(std::string_view path,
                                                 base::OpenMode mode) override {
    return below_.open(path, mode);
  }
  base::Result<base::FileInfo> stat(std::string_view path) override { return below_.stat(path); }
  base::Status rename(const base::RenamePaths& paths) override { return below_.rename(paths); }
  base::Status remove(std::string_view path) override { return below_.remove(path); }
  base::Status make_dirs(std::string_view path) override { return below_.make_dirs(path); }
  base::Result<std::vector<std::string>> list(std::string_view path) override {
    return below_.list(path);
  }
  base::Status sync_dir(std::string_view path) override { return below_.sync_dir(path); }

 private:
  base::FileSystem& below_;
};

// Passes calls on until the nth changing call, which fails, as all after it do: a disk that is
// full.
class FullDiskFiles final : public ForwardingFiles {
 public:
  FullDiskFiles(base::FileSystem& below, int calls) : ForwardingFiles(below), calls_left_(calls) {}

  bool was_full() const { return calls_left_ < 0; }

  base::Result<std::unique_ptr<base::File>> open(std::string_view path,
                                                 base::OpenMode mode) override {
    if (mode != base::OpenMode::kRead) RETURN_IF_ERROR(spend());
    ASSIGN_OR_RETURN(std::unique_ptr<base::File> file, ForwardingFiles::open(path, mode));
    return std::unique_ptr<base::File>(std::make_unique<DiskFile>(*this, std::move(file)));
  }
  base::Status rename(const base::RenamePaths& paths) override {
    RETURN_IF_ERROR(spend());
    return ForwardingFiles::rename(paths);
  }
  base::Status make_dirs(std::string_view path) override {
    RETURN_IF_ERROR(spend());
    return ForwardingFiles::make_dirs(path);
  }
  base::Status sync_dir(std::string_view path) override {
    RETURN_IF_ERROR(spend());
    return ForwardingFiles::sync_dir(path);
  }

 private:
  class DiskFile final : public ForwardingFile {
   public:
    DiskFile(FullDiskFiles& disk, std::unique_ptr<base::File> below)
        : ForwardingFile(std::move(below)), disk_(disk) {}
    base::Status pwrite(uint64_t offset, base::ByteSpan bytes) override {
      RETURN_IF_ERROR(disk_.spend());
      return ForwardingFile::pwrite(offset, bytes);
    }
    base::Status sync() override {
      RETURN_IF_ERROR(disk_.spend());
      return ForwardingFile::sync();
    }

   private:
    FullDiskFiles& disk_;
  };

  base::Status spend() {
    if (calls_left_ > 0) {
      --calls_left_;
      return base::Status::ok();
    }
    calls_left_ = -1;
    return base::resource_exhausted("disk is full");
  }

  int calls_left_;
};

// Says of each file that it is longer than it is, as if it shrank after the question.
class LongerFiles final : public ForwardingFiles {
 public:
  using ForwardingFiles::ForwardingFiles;
  base::Result<std::unique_ptr<base::File>> open(std::string_view path,
                                                 base::OpenMode mode) override {
    ASSIGN_OR_RETURN(std::unique_ptr<base::File> file, ForwardingFiles::open(path, mode));
    return std::unique_ptr<base::File>(std::make_unique<LongerFile>(std::move(file)));
  }

 private:
  class LongerFile final : public ForwardingFile {
   public:
    using ForwardingFile::ForwardingFile;
    base::Result<uint64_t> size() const override {
      ASSIGN_OR_RETURN(const uint64_t size_bytes, ForwardingFile::size());
      return size_bytes + 10;
    }
  };
};

}  // namespace perdure::testing
