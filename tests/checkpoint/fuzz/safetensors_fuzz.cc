// Entry point of libFuzzer, and of the test that replays the corpus and mutations of it: any bytes
// are a file that is refused, or one that keeps what the header promises.
//
//   cmake --preset clang -DPERDURE_FUZZ=ON && cmake --build build/clang --target safetensors_fuzz
//   build/clang/tests/checkpoint/fuzz/safetensors_fuzz -max_total_time=600 /tmp/found

#include <algorithm>
#include <set>

#include "base/check.h"
#include "checkpoint/safetensors.h"

namespace perdure::checkpoint {
namespace {

void check_invariants(const SafetensorsHeader& header, base::ByteSpan file) {
  CHECK_EQ(header.data_offset + header.data_bytes, file.size());
  CHECK_GE(header.data_offset, 10u);
  CHECK(header.find("__metadata__") == nullptr);
  uint64_t end = 0;
  std::set<std::string_view> names;
  for (const StoredTensor& tensor : header.tensors) {
    CHECK(names.insert(tensor.name).second) << tensor.name;
    CHECK_EQ(tensor.begin, end);
    CHECK_LE(tensor.begin, tensor.end);
    CHECK_EQ(*stored_bytes(tensor), tensor.end - tensor.begin);
    end = tensor.end;
  }
  CHECK_EQ(end, header.data_bytes);
}

// What was taken is what our writer takes, and it reads back.
void check_round_trip(const SafetensorsHeader& header) {
  const base::Result<SafetensorsImage> image = make_safetensors(header.tensors, header.metadata);
  CHECK(image.is_ok()) << image.status();
  CHECK_EQ(image->file_bytes - image->header.size(), header.data_bytes);
  if (header.data_bytes > (1 << 20)) return;
  std::vector<std::byte> file = image->header;
  file.resize(image->file_bytes);
  const base::Result<SafetensorsHeader> again = parse_safetensors(file, "again");
  CHECK(again.is_ok()) << again.status();
  CHECK_EQ(again->tensors.size(), header.tensors.size());
  CHECK(again->metadata == header.metadata);
}

// Without the length field a header is the JSON that an index may be.
void check_index(base::ByteSpan json) {
  const auto index = parse_safetensors_index(json, "fuzz");
  if (!index.is_ok()) {
    CHECK(index.status().code() == base::StatusCode::kDataLoss) << index.status();
    return;
  }
  for (const auto& [tensor, file] : *index) {
    CHECK(file.find_first_of("/\\") == std::string::npos) << file;
    CHECK(file.ends_with(".safetensors") && !file.starts_with('.')) << file;
  }
}

}  // namespace
}  // namespace perdure::checkpoint

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace perdure;
  const base::ByteSpan file = std::as_bytes(std::span(data, size));
  checkpoint::check_index(file.subspan(std::min<size_t>(8, size)));
  const auto header = checkpoint::parse_safetensors(file, "fuzz", {.tensors_max = 1000});
  if (!header.is_ok()) {
    const base::StatusCode code = header.status().code();
    CHECK(code == base::StatusCode::kDataLoss || code == base::StatusCode::kInvalidArgument)
        << header.status();
    CHECK(header.status().message().starts_with("fuzz: V")) << header.status();
    return 0;
  }
  checkpoint::check_invariants(*header, file);
  checkpoint::check_round_trip(*header);
  return 0;
}
