#include "apps/seccomp_filter.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

#include <fmt/format.h>

namespace headrace {

#if defined(__x86_64__)

namespace {

// The most frequent first: the kernel goes through them in this order.
#define CALL(name) \
  AllowedCall { #name, SYS_##name }
constexpr AllowedCall kCalls[] = {
    CALL(futex),
    CALL(epoll_wait),
    CALL(epoll_pwait),
    CALL(epoll_pwait2),
    CALL(epoll_ctl),
    CALL(epoll_create1),
    CALL(recvmsg),
    CALL(recvfrom),
    CALL(sendmsg),
    CALL(sendto),
    CALL(read),
    CALL(write),
    CALL(readv),
    CALL(writev),
    CALL(clock_gettime),
    CALL(clock_getres),
    CALL(clock_nanosleep),
    CALL(nanosleep),
    CALL(gettimeofday),
    CALL(time),
    CALL(getcpu),
    CALL(sched_yield),
    CALL(ioctl),
    CALL(accept),
    CALL(accept4),
    CALL(shutdown),
    CALL(getsockopt),
    CALL(setsockopt),
    CALL(getsockname),
    CALL(getpeername),
    CALL(poll),
    CALL(ppoll),
    CALL(select),
    CALL(pselect6),
    CALL(eventfd2),
    CALL(pipe2),
    CALL(timerfd_create),
    CALL(timerfd_settime),
    CALL(timerfd_gettime),
    CALL(mmap),
    CALL(munmap),
    CALL(mprotect),
    CALL(mremap),
    CALL(madvise),
    CALL(brk),
    CALL(mlock),
    CALL(munlock),
    CALL(mincore),
    CALL(msync),
    CALL(mbind),
    CALL(get_mempolicy),
    CALL(set_mempolicy),
    CALL(membarrier),
    CALL(open),
    CALL(openat),
    CALL(close),
    CALL(pread64),
    CALL(pwrite64),
    CALL(preadv),
    CALL(pwritev),
    CALL(lseek),
    CALL(stat),
    CALL(fstat),
    CALL(lstat),
    CALL(newfstatat),
    CALL(statx),
    CALL(statfs),
    CALL(fstatfs),
    CALL(access),
    CALL(faccessat),
    CALL(faccessat2),
    CALL(readlink),
    CALL(readlinkat),
    CALL(getcwd),
    CALL(getdents64),
    CALL(fcntl),
    CALL(flock),
    CALL(ftruncate),
    CALL(fallocate),
    CALL(fadvise64),
    CALL(fsync),
    CALL(fdatasync),
    CALL(sync_file_range),
    CALL(rename),
    CALL(renameat),
    CALL(renameat2),
    CALL(unlink),
    CALL(unlinkat),
    CALL(link),
    CALL(linkat),
    CALL(sendfile),
    CALL(copy_file_range),
    CALL(mkdir),
    CALL(mkdirat),
    CALL(rmdir),
    CALL(chmod),
    CALL(fchmod),
    CALL(umask),
    CALL(dup),
    CALL(dup2),
    CALL(dup3),
    CALL(exit),
    CALL(exit_group),
    CALL(gettid),
    CALL(getpid),
    CALL(getppid),
    CALL(tgkill),
    CALL(set_robust_list),
    CALL(get_robust_list),
    CALL(rseq),
    CALL(set_tid_address),
    CALL(arch_prctl),
    CALL(restart_syscall),
    CALL(sched_getaffinity),
    CALL(sched_setaffinity),
    CALL(sched_getparam),
    CALL(sched_getscheduler),
    CALL(sched_get_priority_max),
    CALL(sched_get_priority_min),
    CALL(getpriority),
    CALL(rt_sigaction),
    CALL(rt_sigprocmask),
    CALL(rt_sigreturn),
    CALL(rt_sigtimedwait),
    CALL(rt_sigpending),
    CALL(rt_sigsuspend),
    CALL(sigaltstack),
    CALL(getrandom),
    CALL(getrusage),
    CALL(sysinfo),
    CALL(uname),
    CALL(prctl),
    CALL(getuid),
    CALL(geteuid),
    CALL(getgid),
    CALL(getegid),
    CALL(prlimit64),
    CALL(getrlimit),
    CALL(times),
};
#undef CALL

constexpr uint32_t kX32Bit = 0x40000000;  // calls of the x32 kind have numbers of their own
constexpr uint32_t kFails = SECCOMP_RET_ERRNO | EPERM;

sock_filter load(size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset));
}

// Two instructions: `verdict` if the loaded word is `value`, else on.
void add_case(std::vector<sock_filter>& program, uint32_t value, uint32_t verdict) {
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, verdict));
}

std::vector<sock_filter> make_program() {
  std::vector<sock_filter> program = {
      load(offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      load(offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kX32Bit, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, kFails),
  };
  for (const AllowedCall& call : kCalls) {
    add_case(program, static_cast<uint32_t>(call.number), SECCOMP_RET_ALLOW);
  }
  // The flags of clone3 are out of a filter's sight: the C library then takes clone.
  add_case(program, SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS);
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, kFails));
  program.push_back(load(offsetof(seccomp_data, args)));  // the lower half of the first: flags
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, kFails));
  return program;
}

}  // namespace

std::span<const AllowedCall> calls_of_a_ready_server() { return kCalls; }

Status allow_only_serving() {
  std::vector<sock_filter> program = make_program();
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  // Without this only root may set a filter, for its programs would inherit it.
  const bool set =
      ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0;
  if (set) return ok_status();
  return unsupported(fmt::format("--seccomp: this kernel takes no filter of system calls: {}",
                                 std::strerror(errno)));
}

#else

std::span<const AllowedCall> calls_of_a_ready_server() { return {}; }
Status allow_only_serving() { return unsupported("--seccomp is for x86-64"); }

#endif

}  // namespace headrace
