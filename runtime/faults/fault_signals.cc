#include "runtime/faults/fault_signals.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace perdure::runtime::faults {
namespace {

constexpr int kDescriptorsMax = 65536;

// -1: no socket.
int option_of(int fd, int option) {
  int value = 0;
  socklen_t size = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

}  // namespace

int exit_signal() { return SIGRTMIN + 1; }
int drop_signal() { return SIGRTMIN + 2; }
int start_signal() { return SIGUSR1; }

void shut_down_connections() {
  const int saved = errno;
  rlimit limit{};
  int end = kDescriptorsMax;
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < kDescriptorsMax) {
    end = static_cast<int>(limit.rlim_cur);
  }
  for (int fd = 0; fd < end; ++fd) {
    const int domain = option_of(fd, SO_DOMAIN);
    if (domain != AF_INET && domain != AF_INET6) continue;
    if (option_of(fd, SO_TYPE) != SOCK_STREAM || option_of(fd, SO_ACCEPTCONN) == 1) continue;
    ::shutdown(fd, SHUT_RDWR);
  }
  errno = saved;
}

void handle_fault_signals() {
  struct sigaction action {};
  ::sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  action.sa_handler = [](int) { ::_exit(0); };
  ::sigaction(exit_signal(), &action, nullptr);
  action.sa_handler = [](int) { shut_down_connections(); };
  ::sigaction(drop_signal(), &action, nullptr);
}

}  // namespace perdure::runtime::faults
