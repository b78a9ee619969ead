#pragma once
// The safetensors format: u64 header length, JSON header, data without gaps. Source: the format's
// README and reference reader (huggingface/safetensors, May 2026); the rules are in
// docs/formats/safetensors.md with the numbers that error messages and tests use.
//
// Written strictly (header first byte '{', padded with spaces so that the data begins at a multiple
// of 4096), read leniently where the format allows more than one form, and never trusted.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/status.h"
#include "base/units.h"
#include "checkpoint/box.h"
#include "checkpoint/element_type.h"

namespace perdure::checkpoint {

inline constexpr uint64_t kHeaderBytesMax = 100'000'000;  // of the format
inline constexpr uint64_t kDataAlignment = 4096;          // of what we write

struct StoredTensor {
  std::string name;  // any UTF-8, but not "__metadata__"
  ElementType type = ElementType::kF32;
  Shape shape;
  uint64_t begin = 0;  // bytes from the beginning of the data
  uint64_t end = 0;
};
// What type and shape need. kInvalidArgument: overflow, also beside a 0, a negative size, not whole
// bytes.
base::Result<uint64_t> stored_bytes(const StoredTensor& tensor);

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // ascending by (begin, end, name)
  std::map<std::string, std::string> metadata;
  uint64_t data_offset = 0;  // in the file
  uint64_t data_bytes = 0;
  const StoredTensor* find(std::string_view name) const;  // looks at one after the other
};

struct ReadLimits {
  size_t tensors_max = 1'000'000;
  size_t dimensions_max = 64;
};

// Reads and checks the header of a file of `file_bytes`; `file` is read from its beginning.
// kDataLoss names the rule and the place: "model.safetensors: V14: tensor 'a' begins at 16, the one
// before it ends at 24". kInvalidArgument: an element type that is not known.
base::Result<SafetensorsHeader> read_safetensors_header(base::File& file, std::string_view name,
                                                        const ReadLimits& limits = {});
// The same for a file that is in memory.
base::Result<SafetensorsHeader> parse_safetensors(base::ByteSpan file, std::string_view name,
                                                  const ReadLimits& limits = {});

// A header for tensors of given names, types and shapes (begin and end are not read): places them
// in the order of falling alignment, then as given, and fills in `begin` and `end`.
struct SafetensorsImage {
  std::vector<std::byte> header;      // length field, JSON, padding: header.size() % 4096 == 0
  std::vector<StoredTensor> tensors;  // in the order of the input, placed
  uint64_t file_bytes = 0;            // header and data
};
// kInvalidArgument: a name twice, "__metadata__", not UTF-8 or with a zero byte, a negative or too
// large shape, a tensor of a sub-byte type that does not fill whole bytes, a header above the
// format's limit.
base::Result<SafetensorsImage> make_safetensors(std::vector<StoredTensor> tensors,
                                                const std::map<std::string, std::string>& metadata);

// model.safetensors.index.json of a repository in several files: tensor name -> file name.
// kDataLoss: a file name that is not one plain component ending in ".safetensors".
base::Result<std::map<std::string, std::string>> parse_safetensors_index(base::ByteSpan json,
                                                                         std::string_view name);
// The index and the headers of its files (by file name) say the same. kDataLoss: V18.
base::Status check_safetensors_index(const std::map<std::string, std::string>& index,
                                     const std::map<std::string, SafetensorsHeader>& files,
                                     std::string_view name);

}  // namespace perdure::checkpoint
