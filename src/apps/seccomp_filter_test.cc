#include "apps/seccomp_filter.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include "base/json.h"
#include "base/mapped_file.h"

namespace headrace::seccomp_filter_test {
namespace {

// The exit code of a process of its own that runs `body`.
int in_a_process(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

bool is_refused(long result) { return result == -1 && errno == EPERM; }

// Each way out of the process, by the number of the line below that was not refused; 0: none.
int ways_out() {
  if (!is_refused(::syscall(SYS_execve, "/bin/true", nullptr, nullptr))) return 1;
  if (!is_refused(::syscall(SYS_execveat, -1, "/bin/true", nullptr, nullptr, 0))) return 2;
  if (!is_refused(::syscall(SYS_fork))) return 3;
  if (!is_refused(::syscall(SYS_vfork))) return 4;
  if (!is_refused(::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, 0))) return 5;
  if (!is_refused(::syscall(SYS_socket, AF_INET, SOCK_STREAM, 0))) return 6;
  if (!is_refused(::syscall(SYS_connect, 0, nullptr, 0))) return 7;
  if (!is_refused(::syscall(SYS_bind, 0, nullptr, 0))) return 8;
  if (!is_refused(::syscall(SYS_ptrace, PTRACE_TRACEME, 0, nullptr, nullptr))) return 9;
  if (!is_refused(::syscall(SYS_process_vm_readv, ::getppid(), nullptr, 0, nullptr, 0, 0)))
    return 10;
  if (!is_refused(::syscall(SYS_kill, ::getppid(), 0))) return 11;
  if (!is_refused(::syscall(SYS_setuid, 0))) return 12;
  if (!is_refused(::syscall(SYS_mount, nullptr, nullptr, nullptr, 0, nullptr))) return 13;
  if (!is_refused(::syscall(SYS_bpf, 0, nullptr, 0))) return 14;
  if (!is_refused(::syscall(SYS_unshare, 0))) return 15;
  if (!is_refused(::syscall(SYS_io_uring_setup, 1, nullptr))) return 16;
  if (!is_refused(::syscall(SYS_getpid | 0x40000000))) return 17;  // by its x32 number
  return 0;
}

TEST(SeccompFilter, LeavesNoWayOutOfTheProcess) {
  EXPECT_EQ(in_a_process([] { return ways_out() == 0 ? 1 : 0; }), 0) << "nothing was to be refused";
  EXPECT_EQ(in_a_process([] { return allow_only_serving().ok() ? ways_out() : 100; }), 0);
}

TEST(SeccompFilter, HoldsInThreadsThatRanBefore) {
  EXPECT_EQ(in_a_process([] {
              std::atomic<bool> set{false}, refused{false};
              std::thread other([&] {
                while (!set) std::this_thread::yield();
                refused = is_refused(::syscall(SYS_socket, AF_INET, SOCK_STREAM, 0));
              });
              set = allow_only_serving().ok();
              if (!set) ::_exit(100);
              other.join();
              return refused ? 0 : 1;
            }),
            0);
}

TEST(SeccompFilter, ThreadsFilesAndMemoryGoOn) {
  EXPECT_EQ(in_a_process([] {
              if (!allow_only_serving().ok()) return 100;
              std::string text;
              std::thread([&] { text.assign(32 << 20, 'x'); }).join();
              const std::string path = testing::TempDir() + "seccomp_filter_test";
              const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
              if (file < 0 || ::write(file, text.data(), 1000) != 1000) return 1;
              if (::unlink(path.c_str()) != 0) return 2;
              return 0;
            }),
            0);
}

// The profile for containers knows every call of the filter.
TEST(SeccompFilter, TheProfileOfContainersHasItsCalls) {
  const auto file = MappedFile::open("deploy/seccomp.json");  // tests run in the source root
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto bytes = (*file)->bytes();
  const Result<Json> json = parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  ASSERT_TRUE(json.ok());
  std::set<std::string> running, allowed;
  for (const Json& rule : json->find("syscalls")->as_array()) {
    EXPECT_EQ(rule.find("action")->as_string(), "SCMP_ACT_ALLOW");
    for (const Json& name : rule.find("names")->as_array()) {
      EXPECT_TRUE(allowed.insert(name.as_string()).second) << name.as_string();
    }
    if (running.empty()) running = allowed;
  }
  std::set<std::string> ours;
  for (const AllowedCall& call : calls_of_a_ready_server()) ours.emplace(call.name);
  EXPECT_EQ(ours, running);
  for (const char* never :
       {"ptrace", "mount", "bpf", "unshare", "setns", "init_module", "kexec_load",
        "process_vm_readv", "keyctl", "perf_event_open", "io_uring_setup"}) {
    EXPECT_FALSE(allowed.count(never)) << never;
  }
  EXPECT_EQ(json->find("defaultAction")->as_string(), "SCMP_ACT_ERRNO");
}

}  // namespace
}  // namespace headrace::seccomp_filter_test
