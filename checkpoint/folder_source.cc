#include "checkpoint/checkpoint_reader.h"

namespace perdure::checkpoint {
namespace {

class FolderSource final : public FileSource {
 public:
  FolderSource(BlockFiles& blocks, std::string folder)
      : blocks_(blocks), folder_(std::move(folder)) {}

  std::string name() const override { return folder_; }
  // Reading tells.
  bool has(const FileRecord&) const override { return true; }
  base::Status read(const FileRecord& file, std::span<const ReadRange> ranges) override {
    return blocks_.read(folder_ + "/" + file.name, ranges, nullptr);
  }

 private:
  BlockFiles& blocks_;
  const std::string folder_;
};

}  // namespace

std::unique_ptr<FileSource> make_folder_source(BlockFiles& blocks, std::string folder) {
  return std::make_unique<FolderSource>(blocks, std::move(folder));
}

}  // namespace perdure::checkpoint
