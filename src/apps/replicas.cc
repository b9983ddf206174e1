#include "apps/replicas.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "tensor/cpu_topology.h"

namespace headrace {
namespace {

using std::chrono::seconds;

constexpr std::string_view kListening = "listening on ";
constexpr std::string_view kReady = "ready: ";
constexpr seconds kPauseMax{30};
constexpr seconds kSteady{60};  // who has run for so long is not pausing for the ends before

// A process of this program whose standard output comes through a pipe.
struct Child {
  pid_t pid = -1;
  int output = -1;
};

// Nothing but calls that a signal handler may make, between fork() and exec().
[[noreturn]] void become(const std::vector<char*>& argv, const cpu_set_t* cpus, int output,
                         pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) _exit(1);
  ::setpgid(0, 0);  // Ctrl-C is for the parent, which ends them in order
  sigset_t none;
  sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  if (cpus != nullptr) ::sched_setaffinity(0, sizeof *cpus, cpus);
  ::dup2(output, STDOUT_FILENO);
  ::execv("/proc/self/exe", argv.data());
  _exit(127);
}

Result<Child> spawn(const ReplicaOptions& options, const std::string& port) {
  std::vector<std::string> words = {"headrace"};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  words.insert(words.end(), {"--port", port});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int32_t cpu : options.cpus) CPU_SET(static_cast<size_t>(cpu), &cpus);
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) {
    return unavailable(fmt::format("no pipe for a replica: {}", std::strerror(errno)));
  }
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) become(argv, options.cpus.empty() ? nullptr : &cpus, pipe[1], parent);
  const int error = errno;
  ::close(pipe[1]);
  if (pid > 0) return Child{pid, pipe[0]};
  ::close(pipe[0]);
  return unavailable(fmt::format("a replica cannot be started: {}", std::strerror(error)));
}

// Reads lines until the other side closes.
template <class Take>
void read_lines(int file, const Take& take) {
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t count = ::read(file, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(buffer, static_cast<size_t>(count));
    size_t begin = 0;
    for (size_t end; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
      take(std::string_view(text).substr(begin, end - begin));
    }
    text.erase(0, begin);
  }
  if (!text.empty()) take(text);
}

class ReplicasImpl final : public Replicas {
 public:
  explicit ReplicasImpl(const std::vector<ReplicaOptions>& options) : replicas_(options.size()) {
    for (size_t i = 0; i < options.size(); ++i) {
      replicas_[i].options = options[i];
      replicas_[i].thread = std::thread([this, i] { keep(i); });
    }
  }
  ~ReplicasImpl() override { stop(); }

  Status wait_listening() {
    return wait([](const Replica& replica) { return !replica.port.empty(); });
  }

  Status wait_ready() override {
    {
      std::lock_guard lock(mutex_);
      told_ = true;
      tell();
    }
    const Status status = wait([](const Replica& replica) { return replica.ready; });
    std::lock_guard lock(mutex_);
    begun_ = true;
    return status;
  }

  std::vector<HttpTarget> targets() const override {
    std::lock_guard lock(mutex_);
    std::vector<HttpTarget> targets;
    for (const Replica& replica : replicas_) {
      targets.push_back({.host = "127.0.0.1", .port = replica.port, .path = "/"});
    }
    return targets;
  }

  void stop() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      for (const Replica& replica : replicas_) {
        if (replica.pid > 0) ::kill(replica.pid, SIGTERM);
      }
      changed_.notify_all();
    }
    std::lock_guard joining(joining_);
    for (Replica& replica : replicas_) {
      if (replica.thread.joinable()) replica.thread.join();
    }
  }

 private:
  struct Replica {
    ReplicaOptions options;
    std::string port;  // once it has listened
    pid_t pid = -1;    // while it runs
    bool ready = false;
    std::thread thread;
  };

  template <class Done>
  Status wait(const Done& done) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return stopping_ || !failure_.ok() || std::all_of(replicas_.begin(), replicas_.end(), done);
    });
    return failure_;
  }

  // A replica's thread: runs it, again and again. The thread that forks is the one whose end the
  // kernel tells the child of.
  void keep(size_t index) {
    seconds pause{1};
    while (true) {
      const auto begin = std::chrono::steady_clock::now();
      const Status ended = run(index);
      if (std::chrono::steady_clock::now() - begin > kSteady) pause = seconds{1};
      std::unique_lock lock(mutex_);
      if (stopping_) return;
      if (!begun_) {
        if (failure_.ok()) failure_ = ended;
        changed_.notify_all();
        return;
      }
      log_warning("{}: it is started again in {} s", ended.message(), pause.count());
      if (changed_.wait_for(lock, pause, [&] { return stopping_; })) return;
      pause = std::min(2 * pause, kPauseMax);
    }
  }

  // From its start to its end; why it ended.
  Status run(size_t index) {
    Replica& replica = replicas_[index];
    Child child;
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return ok_status();
      Result<Child> started = spawn(replica.options, replica.port.empty() ? "0" : replica.port);
      if (!started.ok()) return started.status();
      child = *started;
      replica.pid = child.pid;
    }
    read_lines(child.output, [&](std::string_view line) { take_line(index, line); });
    ::close(child.output);
    // Its number is another's as soon as it is reaped: that comes with the lock under which stop()
    // sends signals.
    siginfo_t ended{};
    while (::waitid(P_PID, static_cast<id_t>(child.pid), &ended, WEXITED | WNOWAIT) < 0 &&
           errno == EINTR) {
    }
    std::lock_guard lock(mutex_);
    int how = 0;
    ::waitpid(child.pid, &how, 0);
    replica.pid = -1;
    return unavailable(WIFSIGNALED(how)
                           ? fmt::format("replica {} was ended by signal {}", index, WTERMSIG(how))
                           : fmt::format("replica {} ended with code {}", index, WEXITSTATUS(how)));
  }

  void take_line(size_t index, std::string_view line) {
    Replica& replica = replicas_[index];
    std::lock_guard lock(mutex_);
    if (line.starts_with(kListening) && replica.port.empty()) {
      replica.port = line.substr(line.rfind(':') + 1);
    }
    if (line.starts_with(kReady)) replica.ready = true;
    if (!line.starts_with(kListening)) said_ += fmt::format("[{}] {}\n", index, line);
    if (told_) tell();
    changed_.notify_all();
  }

  // REQUIRES: mutex_
  void tell() {
    fmt::print("{}", std::exchange(said_, {}));
    std::fflush(stdout);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Replica> replicas_;
  Status failure_;
  std::string said_;    // by replicas, and not printed yet
  bool told_ = false;   // what they say is printed at once
  bool begun_ = false;  // all were ready once: from now on ends are mended
  bool stopping_ = false;
  std::mutex joining_;
};

}  // namespace

Result<std::unique_ptr<Replicas>> Replicas::start(const std::vector<ReplicaOptions>& replicas) {
  auto started = std::make_unique<ReplicasImpl>(replicas);
  HR_RETURN_IF_ERROR(started->wait_listening());
  return std::unique_ptr<Replicas>(std::move(started));
}

std::vector<std::vector<int32_t>> share_cpus(int32_t parts) {
  std::vector<CpuPlace> places = CpuTopology::read().cpus;
  std::stable_sort(places.begin(), places.end(), [](const CpuPlace& a, const CpuPlace& b) {
    return std::pair(a.node, a.core) < std::pair(b.node, b.core);
  });
  const auto count = static_cast<int32_t>(places.size());
  std::vector<std::vector<int32_t>> shares(static_cast<size_t>(parts));
  for (int32_t part = 0; part < parts; ++part) {
    // With fewer CPUs than parts some share one.
    const int32_t begin = static_cast<int32_t>(int64_t{part} * count / parts);
    const int32_t end =
        std::max(begin + 1, static_cast<int32_t>(int64_t{part + 1} * count / parts));
    for (int32_t i = begin; i < end; ++i) {
      shares[static_cast<size_t>(part)].push_back(places[static_cast<size_t>(i)].cpu);
    }
  }
  return shares;
}

}  // namespace headrace
