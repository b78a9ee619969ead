#pragma once
// Memory and files of the tests of blocks.

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/units.h"

namespace perdure::checkpoint::blocks {

// Random bytes at a multiple of 4096, or `shift` bytes after one.
class Image {
 public:
  explicit Image(size_t size_bytes, uint64_t seed = 1, size_t shift = 0)
      : memory_(size_bytes + shift + 4096) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    std::byte* begin = memory_.data() + (4096 - address % 4096) % 4096 + shift;
    bytes_ = {begin, size_bytes};
    base::SeededRandom random(seed);
    for (size_t i = 0; i < size_bytes; i += 8) {
      const uint64_t word = random.next_u64();
      std::memcpy(begin + i, &word, std::min<size_t>(8, size_bytes - i));
    }
  }
  base::MutableByteSpan bytes() { return bytes_; }
  base::ByteSpan first(size_t count) const { return bytes_.first(count); }

 private:
  std::vector<std::byte> memory_;
  base::MutableByteSpan bytes_;
};

inline bool equal(base::ByteSpan a, base::ByteSpan b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

// Through the page cache, as everybody reads files.
inline std::vector<std::byte> contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline void put(const std::string& path, base::ByteSpan bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

// A folder that goes with the test.
class Folder {
 public:
  explicit Folder(const std::string& parent) {
    static int count = 0;
    root_ =
        parent + "/perdure_blocks_" + std::to_string(::getpid()) + "_" + std::to_string(count++);
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  ~Folder() { std::filesystem::remove_all(root_); }
  std::string path(const std::string& name) const { return root_ + "/" + name; }

 private:
  std::string root_;
};

}  // namespace perdure::checkpoint::blocks
