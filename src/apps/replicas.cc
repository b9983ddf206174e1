#include "apps/replicas.h"

#include <fcntl.h>
#include <poll.h>
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
#include <functional>
#include <iterator>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "server/inherited_socket.h"
#include "tensor/cpu_topology.h"

namespace headrace {
namespace {

using std::chrono::seconds;

constexpr std::string_view kListening = "listening on ";
constexpr std::string_view kReady = "ready: ";
constexpr std::string_view kError = "headrace: error: ";
constexpr size_t kDigits = 10;  // of a process's number
constexpr seconds kPauseMax{30};
constexpr seconds kSteady{60};  // who has run for so long is not pausing for the ends before

// Both ends of a pipe; closed with it.
class Pipe {
 public:
  bool open() { return ::pipe2(ends_, O_CLOEXEC) == 0; }
  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_input();
    if (ends_[0] >= 0) ::close(ends_[0]);
  }
  int output() const { return ends_[0]; }
  int input() const { return ends_[1]; }
  void close_input() {
    if (ends_[1] >= 0) ::close(std::exchange(ends_[1], -1));
  }

 private:
  int ends_[2] = {-1, -1};
};

// A process of this program: what it says on its two outputs comes through pipes, and it listens on
// a socket that is handed to it.
struct Child {
  pid_t pid = -1;
  Pipe said, told;  // standard output and error
};

// Its own number, as decimal digits, where only itself can write it: behind fork().
void write_number(pid_t number, char* end_of_text) {
  for (; number > 0; number /= 10) *--end_of_text = static_cast<char>('0' + number % 10);
}

// This process's environment, and what says that the child has a socket. `process` has room for
// its number, filled with zeros.
std::vector<char*> environment_of_child(std::string& count, std::string& process) {
  count = fmt::format("{}=1", kInheritedCount);
  process = fmt::format("{}=", kInheritedProcess);
  std::vector<char*> all;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view line = *each;
    if (!line.starts_with("LISTEN_")) all.push_back(*each);
  }
  process.append(kDigits, '0');
  all.insert(all.end(), {count.data(), process.data(), nullptr});
  return all;
}

// What exec() needs, made before fork().
struct Start {
  std::vector<char*> argv, environment;
  char* process_end = nullptr;  // of the text that names the process that the socket is for
  const cpu_set_t* cpus = nullptr;
  int socket = -1;
  pid_t parent = 0;
};

// Nothing but calls that a signal handler may make, between fork() and exec().
[[noreturn]] void become(const Start& start, const Child& child) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != start.parent) _exit(1);
  ::setpgid(0, 0);  // Ctrl-C is for the parent, which ends them in order
  sigset_t none;
  sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  if (start.cpus != nullptr) ::sched_setaffinity(0, sizeof *start.cpus, start.cpus);
  ::dup2(child.said.input(), STDOUT_FILENO);
  ::dup2(child.told.input(), STDERR_FILENO);
  // A copy of a descriptor outlives exec(), the descriptor itself does not.
  const int socket = ::dup(start.socket);
  ::dup2(socket, kInheritedDescriptor);
  if (socket != kInheritedDescriptor) ::close(socket);
  write_number(::getpid(), start.process_end);
  ::execve("/proc/self/exe", start.argv.data(), start.environment.data());
  _exit(127);
}

Status spawn(const ReplicaOptions& options, const HeldSocket& socket, Child& child) {
  std::vector<std::string> words = {"headrace"};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  std::string count, process;
  Start start{.argv = {},
              .environment = environment_of_child(count, process),
              .process_end = process.data() + process.size(),
              .socket = socket.descriptor(),
              .parent = ::getpid()};
  for (std::string& word : words) start.argv.push_back(word.data());
  start.argv.push_back(nullptr);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int32_t cpu : options.cpus) CPU_SET(static_cast<size_t>(cpu), &cpus);
  if (!child.said.open() || !child.told.open()) {
    return unavailable(fmt::format("no pipe for a replica: {}", std::strerror(errno)));
  }
  if (!options.cpus.empty()) start.cpus = &cpus;
  child.pid = ::fork();
  if (child.pid == 0) become(start, child);
  const int error = errno;
  child.said.close_input();
  child.told.close_input();
  if (child.pid > 0) return ok_status();
  return unavailable(fmt::format("a replica cannot be started: {}", std::strerror(error)));
}

// The lines of a file, as they come.
class LineReader {
 public:
  explicit LineReader(int file) : file_(file) {}
  int file() const { return file_; }  // -1: it has ended

  // take(line) for those that a read brings. REQUIRES: there is something to be read
  template <class Take>
  void read(const Take& take) {
    char buffer[4096];
    const ssize_t count = ::read(file_, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) return;
    if (count <= 0) {
      if (!text_.empty()) take(text_);
      file_ = -1;
      return;
    }
    text_.append(buffer, static_cast<size_t>(count));
    size_t begin = 0;
    for (size_t end; (end = text_.find('\n', begin)) != text_.npos; begin = end + 1) {
      take(std::string_view(text_).substr(begin, end - begin));
    }
    text_.erase(0, begin);
  }

 private:
  int file_;
  std::string text_;  // of a line that has not ended
};

// Until both have ended.
template <class TakeSaid, class TakeTold>
void read_lines(const Child& child, const TakeSaid& take_said, const TakeTold& take_told) {
  LineReader said(child.said.output()), told(child.told.output());
  while (said.file() >= 0 || told.file() >= 0) {
    // A negative file is left out.
    pollfd files[] = {{.fd = said.file(), .events = POLLIN, .revents = 0},
                      {.fd = told.file(), .events = POLLIN, .revents = 0}};
    if (::poll(files, std::size(files), -1) < 0) continue;
    if (files[0].revents != 0) said.read(take_said);
    if (files[1].revents != 0) told.read(take_told);
  }
}

class ReplicasImpl final : public Replicas {
 public:
  ReplicasImpl(const std::vector<ReplicaOptions>& options, std::vector<HeldSocket> sockets,
               seconds patience)
      : patience_(patience) {
    for (size_t i = 0; i < options.size(); ++i) {
      replicas_.push_back({.options = options[i], .socket = std::move(sockets[i]), .thread = {}});
    }
    for (size_t i = 0; i < options.size(); ++i) {
      replicas_[i].thread = std::thread([this, i] { keep(i); });
    }
  }
  ~ReplicasImpl() override { stop(); }

  Status wait_listening() {
    return wait_for_all([](const Replica& replica) { return replica.listens; });
  }

  Result<bool> wait_ready() override {
    {
      std::lock_guard lock(mutex_);
      told_ = true;
      tell();
    }
    HR_RETURN_IF_ERROR(wait_for_all([](const Replica& replica) { return replica.ready; }));
    std::lock_guard lock(mutex_);
    begun_ = !stopping_;
    return begun_;
  }

  std::vector<HttpTarget> targets() const override {
    std::lock_guard lock(mutex_);
    std::vector<HttpTarget> targets;
    for (const Replica& replica : replicas_) {
      const std::string port = std::to_string(replica.socket.port());
      targets.push_back({.host = "127.0.0.1", .port = port, .path = "/"});
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
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, patience_, [&] {
        return std::ranges::all_of(replicas_, [](const Replica& each) { return each.pid < 0; });
      });
      for (const Replica& replica : replicas_) {
        if (replica.pid > 0) ::kill(replica.pid, SIGKILL);
      }
    }
    std::lock_guard joining(joining_);
    for (Replica& replica : replicas_) {
      if (replica.thread.joinable()) replica.thread.join();
    }
  }

 private:
  struct Replica {
    ReplicaOptions options;
    HeldSocket socket;  // of all its lives: no other process can take its port between two
    pid_t pid = -1;     // while it runs
    bool listens = false, ready = false;
    std::thread thread;
  };

  // OK: `done` of all of them, or stop() was called.
  template <class Done>
  Status wait_for_all(const Done& done) {
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
      if (!wait_dead(replicas_[index].socket, pause, lock)) return;
      pause = std::min(2 * pause, kPauseMax);
    }
  }

  // While a replica is dead its socket still takes connections: who waits there is told at once
  // that nobody answers, and asks another. False: stop() was called.
  bool wait_dead(const HeldSocket& socket, seconds pause, std::unique_lock<std::mutex>& lock) {
    constexpr std::chrono::milliseconds kLook{20};
    const auto end = std::chrono::steady_clock::now() + pause;
    while (!stopping_ && std::chrono::steady_clock::now() < end) {
      socket.refuse_waiting();
      changed_.wait_for(lock, kLook, [&] { return stopping_; });
    }
    return !stopping_;
  }

  // From its start to its end; why it ended.
  Status run(size_t index) {
    Replica& replica = replicas_[index];
    Child child;
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return ok_status();
      HR_RETURN_IF_ERROR(spawn(replica.options, replica.socket, child));
      replica.pid = child.pid;
    }
    read_lines(
        child, [&](std::string_view line) { take_line(index, line); },
        [&](std::string_view line) { take_log_line(index, line); });
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
    changed_.notify_all();
    return unavailable(WIFSIGNALED(how)
                           ? fmt::format("replica {} was ended by signal {}", index, WTERMSIG(how))
                           : fmt::format("replica {} ended with code {}", index, WEXITSTATUS(how)));
  }

  void take_line(size_t index, std::string_view line) {
    Replica& replica = replicas_[index];
    std::lock_guard lock(mutex_);
    if (line.starts_with(kListening)) replica.listens = true;
    if (line.starts_with(kReady)) replica.ready = true;
    if (!line.starts_with(kListening)) said_ += fmt::format("[{}] {}\n", index, line);
    if (told_) tell();
    changed_.notify_all();
  }

  // Why a start failed is mostly the same of all: it is told once, as one server tells it.
  void take_log_line(size_t index, std::string_view line) {
    std::lock_guard lock(mutex_);
    if (begun_ || !line.starts_with(kError))
      return log_raw_line(fmt::format("[{}] {}", index, line));
    if (errors_.emplace(line).second) log_raw_line(line);
  }

  // REQUIRES: mutex_
  void tell() {
    fmt::print("{}", std::exchange(said_, {}));
    std::fflush(stdout);
  }

  const seconds patience_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Replica> replicas_;
  Status failure_;
  std::string said_;                           // by replicas, and not printed yet
  std::set<std::string, std::less<>> errors_;  // of starts, that were told
  bool told_ = false;                          // what they say is printed at once
  bool begun_ = false;                         // all were ready once: from now on ends are mended
  bool stopping_ = false;
  std::mutex joining_;
};

}  // namespace

void add_flag(std::vector<std::string>& arguments, std::string_view flag, std::string_view value) {
  arguments.insert(std::ranges::find(arguments, "--"), fmt::format("{}={}", flag, value));
}

Result<std::unique_ptr<Replicas>> Replicas::start(const std::vector<ReplicaOptions>& replicas,
                                                  seconds patience) {
  std::vector<HeldSocket> sockets;
  for (size_t i = 0; i < replicas.size(); ++i) {
    HR_ASSIGN_OR_RETURN(HeldSocket socket, HeldSocket::open());
    sockets.push_back(std::move(socket));
  }
  auto started = std::make_unique<ReplicasImpl>(replicas, std::move(sockets), patience);
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
