// Entry point of libFuzzer, and of the test that replays mutations: any bytes are a manifest that
// is refused, or one that keeps what the format promises. Each input is tried as a file, and as the
// JSON of a file whose last line fits: a fuzzer does not find the hash by itself.
//
//   cmake --preset clang -DPERDURE_FUZZ=ON && cmake --build build/clang --target manifest_fuzz
//   build/clang/tests/checkpoint/fuzz/manifest_fuzz /tmp/found tests/checkpoint/golden

#include "base/check.h"
#include "tests/checkpoint/manifest_samples.h"

namespace perdure::checkpoint {
namespace {

void check_invariants(const Manifest& manifest) {
  CHECK(check_manifest(manifest).is_ok());
  for (const FileRecord& file : manifest.files) CHECK(is_plain_file_name(file.name)) << file.name;
  for (const TensorRecord& tensor : manifest.tensors) {
    CHECK(manifest.find(tensor.name) == &tensor) << tensor.name;
    uint64_t bytes = 0;
    for (const ChunkRecord& chunk : tensor.chunks) {
      const FileRecord& file = manifest.files.at(chunk.file);
      CHECK_LE(chunk.offset, file.bytes);
      CHECK_LE(chunk.bytes, file.bytes - chunk.offset);
      CHECK_EQ(chunk.piece_hashes.size(), (chunk.bytes + kPieceBytes - 1) / kPieceBytes);
      bytes += chunk.bytes;
    }
    if (!tensor.alias_of.empty()) continue;
    const base::Result<uint64_t> count = element_count(tensor.shape);
    CHECK(count.is_ok());
    CHECK_EQ(bytes * 8, *count * size_bits(tensor.type));
  }
}

// What was taken is written in one form, which reads back.
void check_round_trip(const Manifest& manifest) {
  const std::vector<std::byte> bytes = encode_manifest(manifest);
  const base::Result<Manifest> again = parse_manifest(bytes, "again");
  CHECK(again.is_ok()) << again.status();
  CHECK(encode_manifest(*again) == bytes);
}

void try_file(base::ByteSpan file) {
  const base::Result<Manifest> manifest = parse_manifest(file, "fuzz");
  if (!manifest.is_ok()) {
    const base::StatusCode code = manifest.status().code();
    CHECK(code == base::StatusCode::kDataLoss || code == base::StatusCode::kUnimplemented)
        << manifest.status();
    CHECK(manifest.status().message().starts_with("fuzz: ")) << manifest.status();
    return;
  }
  check_invariants(*manifest);
  check_round_trip(*manifest);
}

}  // namespace
}  // namespace perdure::checkpoint

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace perdure;
  const base::ByteSpan bytes = std::as_bytes(std::span(data, size));
  checkpoint::try_file(bytes);
  const std::string framed = testing::with_last_line(std::string(base::as_text(bytes)));
  checkpoint::try_file(base::as_byte_span(framed));
  // A whole manifest: its JSON, changed by the fuzzer, with a new last line.
  const std::string text(base::as_text(bytes));
  if (text.size() > 2) {
    const std::string again = testing::with_last_line(testing::without_last_line(text));
    checkpoint::try_file(base::as_byte_span(again));
  }
  return 0;
}
