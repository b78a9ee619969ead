#pragma once
// Device: the seam between the engine and what computes. One worker drives one device.
// Implementations: kernels/cpu, kernels/cuda, kernels/reference (plain loops, the oracle).
// kernels/select makes one by name.
//
// Threads: a Device, its Streams and its Ops are used by one thread at a time (the worker's engine
// thread). Errors of asynchronous work are kept on the stream and returned by the next
// synchronize() of it.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace perdure::kernels {

class Ops;

// An ordered queue of work. On the CPU, work is done when the call returns.
class Stream {
 public:
  virtual ~Stream() = default;
  // Waits for all work given so far. Returns the first error that any of it had since the last
  // call.
  virtual base::Status synchronize() = 0;
};

// A point in a stream that another stream can wait for.
class Event {
 public:
  virtual ~Event() = default;
  virtual base::Status record(Stream& stream) = 0;
  virtual base::Status make_wait(
      Stream& stream) = 0;  // later work of `stream` waits for the recorded point
  virtual base::Status synchronize() = 0;
};

// Device memory that is owned. Zero-filled, 64-byte aligned, resident (no page is faulted in
// later).
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual std::byte* data() = 0;
  virtual size_t size_bytes() const = 0;
};

enum class CopyKind { kHostToDevice, kDeviceToHost, kDeviceToDevice };

struct DeviceOptions {
  int threads = 1;             // compute threads of a CPU device; never changes any bit of a result
  size_t workspace_bytes = 0;  // scratch for ops; 0 = what Device::default_workspace_bytes() says
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;  // "cpu"
  virtual std::string description()
      const = 0;  // "cpu: avx512+bf16, oneDNN 2.6.3, 2 threads": logged once
  virtual base::Result<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) = 0;
  virtual base::Result<std::unique_ptr<Stream>> make_stream() = 0;
  virtual base::Result<std::unique_ptr<Event>> make_event() = 0;
  virtual base::Status copy(Stream& stream, void* to, const void* from, size_t bytes,
                            CopyKind kind) = 0;
  virtual size_t default_workspace_bytes() const { return 0; }  // see DeviceOptions
  virtual Ops& ops() = 0;
};

}  // namespace perdure::kernels
