#include "kernels/cuda/cuda_device.h"

#include <string>

#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_handle.h"

namespace perdure::kernels::cuda {
namespace {

// Keeps the first error of work that was given to it until somebody waits. Each stream is
// non-blocking: it does not order itself with the default stream.
class CudaStream final : public Stream {
 public:
  explicit CudaStream(StreamHandle handle) : handle_(std::move(handle)) {}
  cudaStream_t get() const { return handle_.get(); }

  base::Status keep(const base::Status& status) {
    if (first_error_.is_ok() && !status.is_ok()) first_error_ = status;
    return status;
  }
  base::Status synchronize() override {
    const base::Status waited =
        cuda_status(cudaStreamSynchronize(handle_.get()), "waiting for a stream");
    const base::Status first = std::exchange(first_error_, base::Status::ok());
    return first.is_ok() ? waited : first;
  }

 private:
  StreamHandle handle_;
  base::Status first_error_;
};

cudaStream_t raw(Stream& stream) { return static_cast<CudaStream&>(stream).get(); }

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(EventHandle handle) : handle_(std::move(handle)) {}
  base::Status record(Stream& stream) override {
    return cuda_status(cudaEventRecord(handle_.get(), raw(stream)), "recording an event");
  }
  base::Status make_wait(Stream& stream) override {
    return cuda_status(cudaStreamWaitEvent(raw(stream), handle_.get(), 0), "making a stream wait");
  }
  base::Status synchronize() override {
    return cuda_status(cudaEventSynchronize(handle_.get()), "waiting for an event");
  }

 private:
  EventHandle handle_;
};

class CudaBuffer final : public DeviceBuffer {
 public:
  CudaBuffer(MemoryHandle memory, size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}
  std::byte* data() override { return static_cast<std::byte*>(memory_.get()); }
  size_t size_bytes() const override { return bytes_; }

 private:
  MemoryHandle memory_;
  size_t bytes_;
};

cudaMemcpyKind to_cuda(CopyKind kind) {
  switch (kind) {
    case CopyKind::kHostToDevice:
      return cudaMemcpyHostToDevice;
    case CopyKind::kDeviceToHost:
      return cudaMemcpyDeviceToHost;
    case CopyKind::kDeviceToDevice:
      return cudaMemcpyDeviceToDevice;
  }
  return cudaMemcpyDefault;
}

class CudaDevice final : public Device {
 public:
  CudaDevice(int ordinal, std::string description)
      : ordinal_(ordinal), description_(std::move(description)) {}

  std::string_view name() const override { return "cuda"; }
  std::string description() const override { return description_; }

  base::Result<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) override {
    RETURN_IF_ERROR(select());
    void* data = nullptr;
    const size_t size = bytes == 0 ? 1 : bytes;
    RETURN_IF_ERROR(cuda_status(cudaMalloc(&data, size),
                                "getting " + std::to_string(size) + " bytes of device memory"));
    MemoryHandle memory(data);
    RETURN_IF_ERROR(cuda_status(cudaMemset(data, 0, size), "clearing device memory"));
    RETURN_IF_ERROR(cuda_status(cudaStreamSynchronize(nullptr), "clearing device memory"));
    return std::unique_ptr<DeviceBuffer>(std::make_unique<CudaBuffer>(std::move(memory), bytes));
  }

  base::Result<std::unique_ptr<Stream>> make_stream() override {
    RETURN_IF_ERROR(select());
    cudaStream_t stream = nullptr;
    RETURN_IF_ERROR(
        cuda_status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream"));
    return std::unique_ptr<Stream>(std::make_unique<CudaStream>(StreamHandle(stream)));
  }

  base::Result<std::unique_ptr<Event>> make_event() override {
    RETURN_IF_ERROR(select());
    cudaEvent_t event = nullptr;
    RETURN_IF_ERROR(
        cuda_status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event"));
    return std::unique_ptr<Event>(std::make_unique<CudaEvent>(EventHandle(event)));
  }

  base::Status copy(Stream& stream, void* to, const void* from, size_t bytes,
                    CopyKind kind) override {
    if (bytes == 0) return base::Status::ok();
    return static_cast<CudaStream&>(stream).keep(
        cuda_status(cudaMemcpyAsync(to, from, bytes, to_cuda(kind), raw(stream)), "copying"));
  }

  Ops& ops() override {
    CHECK(false) << "the cuda device has no ops yet: use device \"cpu\"";
    __builtin_unreachable();
  }

 private:
  // The current device is a property of the calling thread.
  base::Status select() { return cuda_status(cudaSetDevice(ordinal_), "selecting the device"); }

  int ordinal_;
  std::string description_;
};

}  // namespace

base::Result<std::unique_ptr<Device>> make_cuda_device(const CudaDeviceOptions& options) {
  int count = 0;  // stays as it is when the call fails
  RETURN_IF_ERROR(cuda_status(cudaGetDeviceCount(&count), "looking for CUDA devices"));
  if (options.ordinal < 0 || options.ordinal >= count) {
    return base::invalid_argument("CUDA device " + std::to_string(options.ordinal) + " of " +
                                  std::to_string(count) + " does not exist");
  }
  cudaDeviceProp properties{};
  RETURN_IF_ERROR(cuda_status(cudaGetDeviceProperties(&properties, options.ordinal),
                              "reading the properties of a CUDA device"));
  int driver = 0;
  RETURN_IF_ERROR(cuda_status(cudaDriverGetVersion(&driver), "reading the driver's version"));
  std::string description =
      "cuda: " + std::string(properties.name) + ", compute capability " +
      std::to_string(properties.major) + "." + std::to_string(properties.minor) + ", " +
      std::to_string(properties.totalGlobalMem >> 20) + " MiB, driver " +
      std::to_string(driver / 1000) + "." + std::to_string(driver % 1000 / 10) + ", runtime " +
      std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
  return std::unique_ptr<Device>(
      std::make_unique<CudaDevice>(options.ordinal, std::move(description)));
}

}  // namespace perdure::kernels::cuda
