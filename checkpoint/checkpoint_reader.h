#pragma once
// Reads parts of tensors from a checkpoint, whatever layout wrote it: intersects what is wanted
// with the chunks that there are, reads each byte that is needed once (neighbouring ranges
// together), verifies every piece before it is used, and takes the next source when one is bad.
//
// Threads: one load at a time per source.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "checkpoint/block_files.h"
#include "checkpoint/manifest.h"

namespace perdure::checkpoint {

// Something that may have the files of a checkpoint: a folder on this machine, a slab, a peer.
class FileSource {
 public:
  virtual ~FileSource() = default;
  virtual std::string name() const = 0;  // "slab of worker 3", "/data/ckpt", "node 2"
  virtual bool has(const FileRecord& file) const = 0;
  // Fills all ranges, ascending and without overlap. Any error: the source is bad for this file;
  // but kCancelled ends the load.
  virtual base::Status read(const FileRecord& file, std::span<const ReadRange> ranges) = 0;
};

// `folder`: where the files lie.
std::unique_ptr<FileSource> make_folder_source(BlockFiles& blocks, std::string folder);

struct Wanted {
  std::string tensor;
  ElementType type = ElementType::kF32;  // must be that of the checkpoint: nothing is cast
  Shape shape;                           // of the whole tensor: must be that of the checkpoint
  Box box;
  base::MutableByteSpan to;  // row-major, packed: the box
};

struct BadSource {
  std::string source;
  std::string file;
  base::Status why;  // kDataLoss names tensor and piece
};

struct LoadReport {
  uint64_t wanted_bytes = 0;
  uint64_t read_bytes = 0;  // from all sources, bad ones too
  std::vector<BadSource> bad;
};

struct LoadOptions {
  double over_read_max = 1.25;  // ranges are read together when this much is enough
  uint64_t gap_bytes_max = 64 << 10;
  uint64_t scratch_bytes_max = uint64_t{64} << 20;
  const std::atomic<bool>* leave = nullptr;
  std::function<void(uint64_t bytes_done)> on_progress;
};

// All of `wanted` is checked before anything is read. kInvalidArgument: another dtype or shape
// (both are named), a box outside. kNotFound lists the tensors that the checkpoint lacks, and says
// how many. kDataLoss: no source has good bytes for a piece: tensor, file, and what each said.
// What `to` holds after an error is not of use.
base::Result<LoadReport> load_tensors(const Manifest& manifest, std::span<const Wanted> wanted,
                                      std::span<FileSource* const> sources,
                                      const LoadOptions& options = {});

// Reads everything that the manifest lists from one source: every piece, and what stands before the
// first one in each file. The bad ones are told, all of them; of a file that can not be read, that.
std::vector<BadSource> verify_files(const Manifest& manifest, FileSource& source,
                                    const LoadOptions& options = {});

}  // namespace perdure::checkpoint
