#include "runtime/faults/unix_ask.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "runtime/faults/fault_wire.h"

namespace perdure::runtime::faults {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

base::Status failed(const std::string& what, const std::string& path) {
  return base::unavailable(what + " " + path + ": " + ::strerror(errno));
}

}  // namespace

base::Result<std::string> ask_unix(const std::string& path, const std::string& line) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return base::unavailable("socket path is too long: " + path);
  }
  path.copy(address.sun_path, path.size());
  const Descriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return failed("no socket for", path);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return failed("connect to", path);
  }
  size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t n = ::send(fd.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return failed("send to", path);
    sent += static_cast<size_t>(n);
  }
  std::string answer;
  std::array<char, 4096> buffer;
  while (answer.size() < kFaultLineBytesMax) {
    const ssize_t n = ::recv(fd.get(), buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return failed("no answer from", path);
    answer.append(buffer.data(), static_cast<size_t>(n));
    if (answer.back() == '\n') return answer;
  }
  return base::unavailable("an endless answer from " + path);
}

}  // namespace perdure::runtime::faults
