#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "base/check.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/strict_json.h"

namespace perdure::checkpoint {
namespace {

using base::Status;

constexpr uint64_t kLengthBytes = 8;

Status check_names(const std::vector<StoredTensor>& tensors) {
  std::set<std::string_view> names;
  for (const StoredTensor& tensor : tensors) {
    const std::string name = "tensor " + in_quotes(tensor.name);
    if (tensor.name == "__metadata__") {
      return base::invalid_argument(name + ": the format uses this name itself");
    }
    if (!is_utf8(tensor.name) || tensor.name.find('\0') != std::string::npos) {
      return base::invalid_argument(name + ": the name is not UTF-8 or has a zero byte");
    }
    if (!names.insert(tensor.name).second) {
      return base::invalid_argument(name + " is there twice");
    }
  }
  return Status::ok();
}

// Large elements first: each tensor begins at a multiple of its element then, without a gap.
std::vector<size_t> order_of(const std::vector<StoredTensor>& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return size_bits(tensors[a].type) > size_bits(tensors[b].type);
  });
  return order;
}

void append_entry(std::string& json, const StoredTensor& tensor) {
  append_json_string(json, tensor.name);
  json += ":{\"dtype\":\"" + std::string(to_string(tensor.type)) + "\",\"shape\":[";
  for (size_t d = 0; d < tensor.shape.size(); ++d) {
    json += (d == 0 ? "" : ",") + std::to_string(tensor.shape[d]);
  }
  json += "],\"data_offsets\":[" + std::to_string(tensor.begin) + "," + std::to_string(tensor.end) +
          "]}";
}

base::Result<std::string> metadata_json(const std::map<std::string, std::string>& metadata) {
  std::string json = "\"__metadata__\":{";
  bool is_first = true;
  for (const auto& [key, value] : metadata) {
    if (!is_utf8(key) || !is_utf8(value)) {
      return base::invalid_argument("metadata " + in_quotes(key) + " is not UTF-8");
    }
    json += is_first ? "" : ",";
    is_first = false;
    append_json_string(json, key);
    json += ':';
    append_json_string(json, value);
  }
  return json + "}";
}

}  // namespace

base::Result<SafetensorsImage> make_safetensors(
    std::vector<StoredTensor> tensors, const std::map<std::string, std::string>& metadata) {
  RETURN_IF_ERROR(check_names(tensors));
  std::string json = "{";
  if (!metadata.empty()) {
    ASSIGN_OR_RETURN(json, metadata_json(metadata));
    json.insert(json.begin(), '{');
  }
  uint64_t end = 0;
  for (const size_t i : order_of(tensors)) {
    StoredTensor& tensor = tensors[i];
    const base::Result<uint64_t> bytes = stored_bytes(tensor);
    if (!bytes.is_ok()) return bytes.status().annotate("tensor " + in_quotes(tensor.name));
    tensor.begin = end;
    if (*bytes > std::numeric_limits<int64_t>::max() - end) {
      return base::invalid_argument("tensor " + in_quotes(tensor.name) +
                                    ": the file would have more than 2^63 - 1 bytes");
    }
    end += *bytes;
    tensor.end = end;
    if (json.size() > 1) json += ',';
    append_entry(json, tensor);
  }
  json += '}';

  const uint64_t header_bytes =
      (kLengthBytes + json.size() + kDataAlignment - 1) / kDataAlignment * kDataAlignment;
  if (header_bytes - kLengthBytes > kHeaderBytesMax) {
    return base::invalid_argument("a header of " + std::to_string(header_bytes - kLengthBytes) +
                                  " bytes: the format allows " + std::to_string(kHeaderBytesMax) +
                                  "; put the " + std::to_string(tensors.size()) +
                                  " tensors into several files");
  }
  json.resize(header_bytes - kLengthBytes, ' ');
  SafetensorsImage image;
  image.header.reserve(header_bytes);
  for (size_t i = 0; i < kLengthBytes; ++i) {
    image.header.push_back(static_cast<std::byte>(json.size() >> (8 * i)));
  }
  const base::ByteSpan text = base::as_byte_span(json);
  image.header.insert(image.header.end(), text.begin(), text.end());
  CHECK_EQ(image.header.size() % kDataAlignment, 0u);
  image.tensors = std::move(tensors);
  image.file_bytes = image.header.size() + end;
  return image;
}

}  // namespace perdure::checkpoint
