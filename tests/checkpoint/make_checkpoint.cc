// make_checkpoint DIR: writes a folder of checkpoints for the tests of `perdure ckpt`: two ranks,
// three steps, each committed. For all options see read_options().

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "base/posix_files.h"
#include "base/random.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/safetensors.h"

namespace perdure::testing {
namespace {

using base::Result;
using base::Status;
using checkpoint::Box;
using checkpoint::ElementType;
using checkpoint::Manifest;
using checkpoint::SaveId;
using checkpoint::Shape;

struct Flip {
  unsigned long step = 0;
  unsigned long rank = 0;
  unsigned long offset = 0;  // in the file
};

struct Options {
  std::string root;
  std::vector<uint64_t> steps = {100, 110, 120};
  uint64_t epoch = 7;
  int64_t rows = 64;               // of the embedding
  std::vector<uint32_t> nodes;     // that have the file of rank 1; none: it lies in the folder
  std::set<uint64_t> uncommitted;  // steps
  std::vector<Flip> flips;         // bits turned after the commit
  std::string model = "llama 2 x 16";
};

// A part of a tensor that one rank writes.
struct Part {
  std::string tensor;
  ElementType type = ElementType::kF32;
  Shape shape;  // of the whole tensor
  Box box;
  uint64_t seed = 0;  // of its content
};

std::vector<Part> parts_of(uint64_t rank, uint64_t step, const Options& options) {
  const int64_t half = options.rows / 2;
  const Shape embedding = {options.rows, 16};
  const Shape square = {16, 16};
  const Shape large = {288, 8192};  // 9 MiB: three pieces
  const std::string layer = "layers." + std::to_string(rank) + ".weight";
  const auto from = static_cast<int64_t>(rank) * half;
  // Only the first layer's weight changes from step to step.
  std::vector<Part> parts = {
      {"embedding.weight", ElementType::kF32, embedding, {{from, 0}, {half, 16}}, 1 + rank},
      {layer, ElementType::kBF16, square, checkpoint::whole(square), rank == 0 ? 1000 + step : 3}};
  if (rank == 1) {
    parts.push_back({"optimizer.m", ElementType::kF32, large, checkpoint::whole(large), 4});
  }
  return parts;
}

std::vector<std::byte> random_bytes(uint64_t seed, size_t count) {
  base::SeededRandom random(seed);
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; i += 8) {
    const uint64_t word = random.next_u64();
    std::memcpy(&bytes[i], &word, std::min<size_t>(8, count - i));
  }
  return bytes;
}

void add_chunk(Manifest& manifest, const Part& part, checkpoint::ChunkRecord chunk) {
  for (checkpoint::TensorRecord& tensor : manifest.tensors) {
    if (tensor.name == part.tensor) return tensor.chunks.push_back(std::move(chunk));
  }
  manifest.tensors.push_back(
      {.name = part.tensor, .type = part.type, .shape = part.shape, .chunks = {std::move(chunk)}});
}

// Writes the file of a rank and tells the manifest what is in it.
Status write_rank(base::FileSystem& files, const std::string& folder, uint64_t rank,
                  const Options& options, Manifest& manifest) {
  const std::vector<Part> parts = parts_of(rank, manifest.step, options);
  std::vector<checkpoint::StoredTensor> stored;
  for (const Part& part : parts) {
    stored.push_back({.name = part.tensor, .type = part.type, .shape = part.box.size});
  }
  ASSIGN_OR_RETURN(const auto image, checkpoint::make_safetensors(stored, {}));
  std::vector<std::byte> bytes = image.header;
  bytes.resize(image.file_bytes);
  std::map<uint64_t, std::vector<uint64_t>> hashes;  // by offset
  for (size_t i = 0; i < parts.size(); ++i) {
    const uint64_t offset = image.header.size() + image.tensors[i].begin;
    const uint64_t count = image.tensors[i].end - image.tensors[i].begin;
    const std::vector<std::byte> content = random_bytes(parts[i].seed, count);
    std::copy(content.begin(), content.end(), bytes.begin() + static_cast<ptrdiff_t>(offset));
    hashes[offset] = checkpoint::hash_pieces(content);
    add_chunk(manifest, parts[i],
              {.box = parts[i].box,
               .file = static_cast<uint32_t>(rank),
               .offset = offset,
               .bytes = count,
               .piece_hashes = hashes[offset]});
  }
  std::vector<uint64_t> in_order;
  for (const auto& [offset, of_chunk] : hashes) {
    in_order.insert(in_order.end(), of_chunk.begin(), of_chunk.end());
  }
  manifest.files.push_back({.name = "rank-000" + std::to_string(rank) + ".safetensors",
                            .bytes = bytes.size(),
                            .hash = checkpoint::hash_file(image.header, in_order)});
  const std::string path = folder + "/" + manifest.files.back().name;
  ASSIGN_OR_RETURN(const auto file, files.open(path, base::OpenMode::kCreateNew));
  RETURN_IF_ERROR(file->pwrite(0, bytes));
  return file->sync();
}

Status flip_bits(base::FileSystem& files, const std::string& folder, const Options& options,
                 const Manifest& manifest) {
  for (const Flip& flip : options.flips) {
    if (flip.step != manifest.step) continue;
    const std::string path = folder + "/" + manifest.files.at(flip.rank).name;
    ASSIGN_OR_RETURN(const auto file, files.open(path, base::OpenMode::kReadWrite));
    std::byte byte{};
    RETURN_IF_ERROR(file->pread(flip.offset, std::span(&byte, 1)).status());
    byte ^= std::byte{4};
    RETURN_IF_ERROR(file->pwrite(flip.offset, std::span(&byte, 1)));
  }
  return Status::ok();
}

Status save(base::FileSystem& files, checkpoint::CheckpointFolder& folder, uint64_t step,
            const Options& options) {
  const SaveId id = {.step = step, .epoch = options.epoch, .attempt = base::mix64(step)};
  Manifest manifest = {.step = id.step,
                       .epoch = id.epoch,
                       .attempt = id.attempt,
                       .model = options.model,
                       .layout = "1 pipeline x 2 stages",
                       .counters = {{"applied_steps", step}, {"samples_consumed", 64 * step}}};
  ASSIGN_OR_RETURN(const std::string path, folder.begin(id));
  for (const uint64_t rank : {0, 1}) {
    RETURN_IF_ERROR(write_rank(files, path, rank, options, manifest));
  }
  manifest.tensors.push_back({.name = "lm_head.weight",
                              .type = ElementType::kF32,
                              .shape = {options.rows, 16},
                              .alias_of = "embedding.weight"});
  std::sort(manifest.tensors.begin(), manifest.tensors.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  RETURN_IF_ERROR(folder.seal(id, manifest.files));
  manifest.files[1].nodes = options.nodes;
  if (!options.uncommitted.contains(step)) {
    RETURN_IF_ERROR(folder.publish(id, manifest, options.epoch));
  }
  return flip_bits(files, path, options, manifest);
}

std::vector<uint64_t> numbers_of(const char* text) {
  std::vector<uint64_t> numbers;
  for (const char* at = text; at != nullptr; at = std::strchr(at, ',')) {
    if (*at == ',') ++at;
    numbers.push_back(std::strtoull(at, nullptr, 10));
  }
  return numbers;
}

Result<Options> read_options(int argc, char** argv) {
  constexpr const char* kUsage =
      "make_checkpoint DIR [--steps 100,110,120] [--epoch 7] [--rows 64] [--model TEXT]\n"
      "  [--uncommitted STEP] [--flip STEP:RANK:OFFSET] [--node N, which has the file of rank 1]";
  Options options;
  if (argc < 2 || argc % 2 != 0) return base::invalid_argument(kUsage);
  options.root = argv[1];
  for (int i = 2; i < argc; i += 2) {
    const std::string name = argv[i];
    const char* value = argv[i + 1];
    const uint64_t number = numbers_of(value).front();
    if (name == "--steps") {
      options.steps = numbers_of(value);
    } else if (name == "--epoch") {
      options.epoch = number;
    } else if (name == "--rows") {
      options.rows = static_cast<int64_t>(number);
    } else if (name == "--model") {
      options.model = value;
    } else if (name == "--node") {
      options.nodes.push_back(static_cast<uint32_t>(number));
    } else if (name == "--uncommitted") {
      options.uncommitted.insert(number);
    } else if (Flip flip; name == "--flip" && std::sscanf(value, "%lu:%lu:%lu", &flip.step,
                                                          &flip.rank, &flip.offset) == 3) {
      options.flips.push_back(flip);
    } else {
      return base::invalid_argument(name + " " + value + "?\n" + kUsage);
    }
  }
  return options;
}

Status make_all(const Options& options) {
  base::PosixFiles files;
  checkpoint::CheckpointFolder folder(files, options.root);
  RETURN_IF_ERROR(folder.open());
  for (const uint64_t step : options.steps) RETURN_IF_ERROR(save(files, folder, step, options));
  return Status::ok();
}

}  // namespace

int make_checkpoint(int argc, char** argv) {
  const Result<Options> options = read_options(argc, argv);
  const Status status = options.is_ok() ? make_all(*options) : options.status();
  if (status.is_ok()) return 0;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return 1;
}

}  // namespace perdure::testing

int main(int argc, char** argv) { return perdure::testing::make_checkpoint(argc, argv); }
