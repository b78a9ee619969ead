#include "checkpoint/safetensors.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "checkpoint/safetensors_json.h"
#include "checkpoint/strict_json.h"

namespace perdure::checkpoint {
namespace {

using base::Result;
using base::Status;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kBytesMax = std::numeric_limits<int64_t>::max();

uint64_t little_endian(base::ByteSpan bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) value |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  return value;
}

Status check_file_bytes(uint64_t file_bytes) {
  if (file_bytes >= kLengthBytes) return Status::ok();
  return base::data_loss("V1: has " + std::to_string(file_bytes) +
                         " bytes: no room for the 8 of the header's length");
}

// Compares by subtraction: a length near 2^64 must not wrap.
Status check_header_bytes(uint64_t header_bytes, uint64_t file_bytes) {
  const std::string length = "V2: the header says it has " + std::to_string(header_bytes);
  if (header_bytes < 2) return base::data_loss(length + " bytes: not even '{}'");
  if (header_bytes > kHeaderBytesMax) {
    return base::data_loss(length + " bytes, the format allows " + std::to_string(kHeaderBytesMax));
  }
  if (header_bytes > file_bytes - kLengthBytes) {
    return base::data_loss(length + " bytes, the file has " +
                           std::to_string(file_bytes - kLengthBytes) + " after the length");
  }
  return Status::ok();
}

// V12 and V13 of one tensor.
Status check_extent(const StoredTensor& tensor) {
  const std::string name = "tensor " + in_quotes(tensor.name);
  const Result<uint64_t> bytes = stored_bytes(tensor);
  if (!bytes.is_ok()) return base::data_loss("V12: " + name + ": " + bytes.status().message());
  if (tensor.begin > tensor.end) {
    return base::data_loss("V13: " + name + " ends at " + std::to_string(tensor.end) +
                           ", before it begins at " + std::to_string(tensor.begin));
  }
  if (tensor.end - tensor.begin != *bytes) {
    return base::data_loss("V13: " + name + " has " + std::to_string(tensor.end - tensor.begin) +
                           " bytes, its dtype and shape need " + std::to_string(*bytes));
  }
  return Status::ok();
}

// V14 and V15: sorted, without gap or overlap, from the first byte of the data to the last.
Status check_cover(const SafetensorsHeader& header) {
  uint64_t end = 0;
  for (const StoredTensor& tensor : header.tensors) {
    if (tensor.begin != end) {
      return base::data_loss("V14: tensor " + in_quotes(tensor.name) + " begins at " +
                             std::to_string(tensor.begin) + ", the one before it ends at " +
                             std::to_string(end));
    }
    end = tensor.end;
  }
  if (end > header.data_bytes) {
    return base::data_loss("V15: the file is cut: " + std::to_string(end - header.data_bytes) +
                           " of " + std::to_string(end) + " bytes of data are missing");
  }
  if (end < header.data_bytes) {
    return base::data_loss("V15: " + std::to_string(header.data_bytes - end) +
                           " bytes follow the last tensor, which ends at " + std::to_string(end));
  }
  return Status::ok();
}

Result<SafetensorsHeader> check_header(base::ByteSpan json, uint64_t file_bytes,
                                       const ReadLimits& limits) {
  ASSIGN_OR_RETURN(HeaderJson read, read_header_json(base::as_text(json), limits));
  SafetensorsHeader header = {.tensors = std::move(read.tensors),
                              .metadata = std::move(read.metadata),
                              .data_offset = kLengthBytes + json.size(),
                              .data_bytes = file_bytes - kLengthBytes - json.size()};
  for (const StoredTensor& tensor : header.tensors) RETURN_IF_ERROR(check_extent(tensor));
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  RETURN_IF_ERROR(check_cover(header));
  return header;
}

Status read_exactly(base::File& file, uint64_t offset, base::MutableByteSpan to) {
  ASSIGN_OR_RETURN(const size_t bytes, file.pread(offset, to));
  if (bytes == to.size()) return Status::ok();
  return base::data_loss("V3: the file ends at byte " + std::to_string(offset + bytes) +
                         ", within its header");
}

Result<SafetensorsHeader> read_header(base::File& file, const ReadLimits& limits) {
  ASSIGN_OR_RETURN(const uint64_t file_bytes, file.size());
  RETURN_IF_ERROR(check_file_bytes(file_bytes));
  std::vector<std::byte> bytes(kLengthBytes);
  RETURN_IF_ERROR(read_exactly(file, 0, bytes));
  const uint64_t header_bytes = little_endian(bytes);
  RETURN_IF_ERROR(check_header_bytes(header_bytes, file_bytes));
  bytes.resize(header_bytes);
  RETURN_IF_ERROR(read_exactly(file, kLengthBytes, bytes));
  ASSIGN_OR_RETURN(SafetensorsHeader header, check_header(bytes, file_bytes, limits));
  ASSIGN_OR_RETURN(const uint64_t now_bytes, file.size());
  if (now_bytes != file_bytes) {
    return base::data_loss("V17: the file had " + std::to_string(file_bytes) +
                           " bytes and now has " + std::to_string(now_bytes) +
                           ": something writes to it");
  }
  return header;
}

Result<SafetensorsHeader> parse(base::ByteSpan file, const ReadLimits& limits) {
  RETURN_IF_ERROR(check_file_bytes(file.size()));
  const uint64_t header_bytes = little_endian(file);
  RETURN_IF_ERROR(check_header_bytes(header_bytes, file.size()));
  return check_header(file.subspan(kLengthBytes, header_bytes), file.size(), limits);
}

Result<SafetensorsHeader> annotated(Result<SafetensorsHeader> result, std::string_view name) {
  if (result.is_ok()) return result;
  return result.status().annotate(name);
}

}  // namespace

base::Result<uint64_t> stored_bytes(const StoredTensor& tensor) {
  ASSIGN_OR_RETURN(const uint64_t count, element_count(tensor.shape));
  const unsigned __int128 bits = static_cast<unsigned __int128>(count) *
                                 static_cast<unsigned __int128>(size_bits(tensor.type));
  if (bits % 8 != 0) {
    return base::invalid_argument(std::to_string(count) + " elements of " +
                                  std::string(to_string(tensor.type)) + " do not fill whole bytes");
  }
  if (bits / 8 > kBytesMax) {
    return base::invalid_argument(std::to_string(count) + " elements of " +
                                  std::string(to_string(tensor.type)) +
                                  " are more than 2^63 - 1 bytes");
  }
  return static_cast<uint64_t>(bits / 8);
}

const StoredTensor* SafetensorsHeader::find(std::string_view name) const {
  for (const StoredTensor& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

base::Result<SafetensorsHeader> read_safetensors_header(base::File& file, std::string_view name,
                                                        const ReadLimits& limits) {
  return annotated(read_header(file, limits), name);
}

base::Result<SafetensorsHeader> parse_safetensors(base::ByteSpan file, std::string_view name,
                                                  const ReadLimits& limits) {
  return annotated(parse(file, limits), name);
}

}  // namespace perdure::checkpoint
