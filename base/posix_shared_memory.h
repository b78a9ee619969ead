#pragma once
// SharedMemory: memory that a process makes and others map, by a path; it lives as long as one of
// them keeps it open. The maker that outlives the others so keeps what they wrote.
//
// Resident from the start: the first touch of a fresh page costs microseconds, which the one who
// grows it pays once.

#include <string>
#include <string_view>

#include "base/status.h"
#include "base/units.h"

namespace perdure::base {

// Owns a descriptor and at most one mapping. One thread at a time; what is written by one process
// is seen by others in the order of release and acquire.
class SharedMemory {
 public:
  // Empty. kResourceExhausted.
  static Result<SharedMemory> make(std::string_view name);
  // By path() of the maker. kNotFound: the maker is gone.
  static Result<SharedMemory> open(std::string_view path);
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  // For other processes of this user, while this object lives.
  std::string path() const;
  Result<size_t> size_bytes() const;
  // Maps all of it, grown to `bytes` at least; earlier spans are invalid then. The pages are there
  // when it returns. kResourceExhausted: the system has no such memory; nothing has changed then.
  Result<MutableByteSpan> map(size_t bytes);
  // What is mapped.
  MutableByteSpan bytes() const { return {data_, mapped_}; }

 private:
  explicit SharedMemory(int descriptor) : descriptor_(descriptor) {}
  void unmap();
  int descriptor_ = -1;
  std::byte* data_ = nullptr;
  size_t mapped_ = 0;
};

}  // namespace perdure::base
