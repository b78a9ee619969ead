#include "runtime/agent/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>

extern char** environ;

namespace perdure::runtime::agent {
namespace {

// Everything that the child needs is made before fork(): between fork and exec only plain system
// calls are safe.
struct ExecImage {
  std::vector<std::string> argument_texts;
  std::vector<std::string> environment_texts;
  std::vector<char*> arguments;
  std::vector<char*> environment;
  bool leads_group = false;

  explicit ExecImage(const ChildCommand& command)
      : leads_group(command.group == ProcessGroup::kOwn) {
    argument_texts.push_back(command.program);
    for (const std::string& a : command.arguments) argument_texts.push_back(a);
    for (const auto& [name, value] : command.environment)
      environment_texts.push_back(name + "=" + value);
    for (std::string& a : argument_texts) arguments.push_back(a.data());
    for (char** e = environ; *e != nullptr; ++e) {
      bool replaced = false;
      for (const auto& [name, value] : command.environment) {
        const std::string lead = name + "=";
        if (::strncmp(*e, lead.c_str(), lead.size()) == 0) replaced = true;
      }
      if (!replaced) environment.push_back(*e);
    }
    for (std::string& e : environment_texts) environment.push_back(e.data());
    arguments.push_back(nullptr);
    environment.push_back(nullptr);
  }
};

[[noreturn]] void run_child(const ExecImage& image, pid_t parent, int failure_fd) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the parent died before the line above
  if (image.leads_group) ::setpgid(0, 0);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(image.arguments[0], image.arguments.data(), image.environment.data());
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(failure_fd, &error, sizeof error);
  ::_exit(127);
}

class ChildProcessImpl : public ChildProcess {
 public:
  ChildProcessImpl(const base::Executor& executor, pid_t pid, int pidfd, ProcessGroup group,
                   base::UniqueFunction<void(ChildExit)> on_exit)
      : pid_(pid),
        target_(group == ProcessGroup::kOwn ? -pid : pid),
        pidfd_(executor, pidfd),
        on_exit_(std::move(on_exit)) {
    pidfd_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      [this](const boost::system::error_code& error) {
                        if (!error) reap();
                      });
  }

  ~ChildProcessImpl() override {
    if (!is_running_) return;
    ::kill(target_, SIGKILL);
    int status = 0;
    ::waitpid(pid_, &status, 0);
  }

  pid_t pid() const override { return pid_; }
  bool is_running() const override { return is_running_; }
  void kill(int signal) override {
    if (is_running_) ::kill(target_, signal);
  }

 private:
  void reap() {
    // What is left of its group goes with it, while the group's number cannot be another's.
    if (target_ != pid_) ::kill(target_, SIGKILL);
    int status = 0;
    CHECK_EQ(::waitpid(pid_, &status, 0), pid_);
    is_running_ = false;
    ChildExit exit;
    if (WIFSIGNALED(status)) {
      exit.signal = WTERMSIG(status);
    } else {
      exit.code = WEXITSTATUS(status);
    }
    on_exit_(exit);
  }

  const pid_t pid_;
  const pid_t target_;  // of kill(): the process or its group
  boost::asio::posix::stream_descriptor pidfd_;
  base::UniqueFunction<void(ChildExit)> on_exit_;
  bool is_running_ = true;
};

}  // namespace

std::string ChildExit::to_string() const {
  if (signal == 0) return "exit code " + std::to_string(code);
  return "signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")";
}

base::Result<std::unique_ptr<ChildProcess>> ChildProcess::start(
    const base::Executor& executor, const ChildCommand& command,
    base::UniqueFunction<void(ChildExit)> on_exit) {
  int failure[2];
  if (::pipe2(failure, O_CLOEXEC) != 0)
    return base::resource_exhausted("no descriptor left for a new process");
  const ExecImage image(command);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) run_child(image, parent, failure[1]);
  ::close(failure[1]);
  if (pid < 0) {
    ::close(failure[0]);
    return base::resource_exhausted(std::string("no new process: ") + ::strerror(errno));
  }
  // The pipe closes when exec succeeds, or brings the error of exec.
  int error = 0;
  const ssize_t n = ::read(failure[0], &error, sizeof error);
  ::close(failure[0]);
  if (n == sizeof error) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return base::invalid_argument("cannot start " + command.program + ": " + ::strerror(error));
  }
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (pidfd < 0) {
    ::kill(pid, SIGKILL);
    int status = 0;
    ::waitpid(pid, &status, 0);
    return base::resource_exhausted(std::string("no pidfd: ") + ::strerror(errno));
  }
  return std::unique_ptr<ChildProcess>(
      std::make_unique<ChildProcessImpl>(executor, pid, pidfd, command.group, std::move(on_exit)));
}

}  // namespace perdure::runtime::agent
