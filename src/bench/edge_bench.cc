#include "bench/edge_bench.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"
#include "bench/edge_certificate.h"
#include "bench/edge_client.h"
#include "bench/edge_engine.h"
#include "bench/workload.h"
#include "server/server.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kStepsAhead = 4;    // of the client, where there is no pace
constexpr int32_t kSpareFiles = 128;  // of the process, beside one for each stream

// Memory that this process and the client's share.
template <class T>
class SharedArray {
 public:
  explicit SharedArray(size_t count) : count_(count) {
    void* memory =
        ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    items_ = static_cast<T*>(memory);
    std::uninitialized_value_construct_n(items_, count_);
  }
  ~SharedArray() { ::munmap(items_, bytes()); }
  SharedArray(const SharedArray&) = delete;

  std::span<T> items() const { return {items_, count_}; }

 private:
  size_t bytes() const { return count_ * sizeof(T); }
  const size_t count_;
  T* items_ = nullptr;
};

struct EdgeShared {
  explicit EdgeShared(const EdgeLoad& load)
      : boards(1),
        step_ns(static_cast<size_t>(load.steps)),
        delays_ns(static_cast<size_t>(load.streams) * static_cast<size_t>(load.steps)) {}
  EdgeBoard& board() const { return boards.items()[0]; }

  SharedArray<EdgeBoard> boards;
  SharedArray<std::atomic<int64_t>> step_ns;
  SharedArray<std::atomic<int32_t>> delays_ns;  // by stream, then step
};

// The client's process, which ends with this.
class EdgeClientProcess {
 public:
  EdgeClientProcess(const EdgeClientOptions& options, const EdgeShared& shared) {
    std::fflush(nullptr);  // else what is buffered would be printed by both
    process_ = ::fork();
    if (process_ != 0) return;
    run_edge_client(options, shared.board(), shared.step_ns.items(), shared.delays_ns.items());
    ::_exit(0);
  }
  ~EdgeClientProcess() {
    if (process_ <= 0) return;
    if (!ended()) ::kill(process_, SIGKILL);
    if (!reaped_) ::waitpid(process_, nullptr, 0);
  }
  EdgeClientProcess(const EdgeClientProcess&) = delete;

  bool started() const { return process_ > 0; }
  bool ended() {
    reaped_ = reaped_ || ::waitpid(process_, nullptr, WNOHANG) == process_;
    return reaped_;
  }

 private:
  pid_t process_ = -1;
  bool reaped_ = false;
};

Status raise_open_files(int32_t streams) {
  const auto wanted = static_cast<rlim_t>(streams + kSpareFiles);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= wanted) return ok_status();
  limit.rlim_cur = wanted;
  limit.rlim_max = std::max(limit.rlim_max, wanted);
  if (::setrlimit(RLIMIT_NOFILE, &limit) == 0) return ok_status();
  return exhausted(
      fmt::format("{} streams need {} open files, and no more than {} are allowed: "
                  "raise the limit (ulimit -Hn) or take fewer streams",
                  streams, wanted, limit.rlim_max));
}

double process_cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double resident_kib() {
  int64_t pages = 0, resident = 0, shared = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident >> shared;
  // Of what is shared the delays' pages are the client's doing.
  return static_cast<double>((resident - shared) * ::sysconf(_SC_PAGESIZE)) / 1024;
}

ServedModel served_edge_model(const EdgeModel& model, EdgeEngine& engine) {
  ServedModel served;
  served.engine = &engine;
  served.tokenizer = model.tokenizer.get();
  served.chat_template = model.chat_template.get();
  served.names = {"edge"};
  served.max_model_len = engine.options().scheduler.max_model_len;
  return served;
}

EdgeClientOptions client_options(const EdgeLoad& load) {
  EdgeClientOptions options{.streams = load.streams, .steps = load.steps, .tls = load.tls};
  const std::string tail = fmt::format(
      R"("stream":true,"ignore_eos":true,"temperature":0,"max_tokens":{}}})", load.steps);
  if (load.route == EdgeRoute::kChat) {
    options.path = "/v1/chat/completions";
    options.body = R"({"messages":[{"role":"user","content":"Say some words."}],)" + tail;
    options.events_before = 1;  // the role
  } else {
    options.path = "/v1/completions";
    options.body = R"({"prompt":"Some words:",)" + tail;
  }
  return options;
}

ServerOptions server_options(const EdgeLoad& load, const EdgeCertificate* certificate) {
  ServerOptions options;
  options.port = 0;
  options.access_log = false;
  options.handle_signals = false;
  options.http_threads = load.http_threads;
  options.http.connections_max = load.streams + 8;
  options.http.connections_per_address_max = load.streams + 8;
  options.requests.queue_seconds_max = 0;
  if (certificate) options.tls = certificate->options();
  return options;
}

// One run: server and engine of this process, their totals at the first step and after the last.
class EdgeRun {
 public:
  EdgeRun(const EdgeModel& model, const EdgeLoad& load)
      : model_(model), load_(load), shared_(load) {}

  Result<EdgeResult> run() {
    const EdgeClientOptions client_load = client_options(load_);
    EdgeClientProcess client(client_load, shared_);
    if (!client.started()) return unavailable("no process for the client could be made");
    std::optional<EdgeCertificate> certificate;
    if (load_.tls) {
      HR_ASSIGN_OR_RETURN(certificate, EdgeCertificate::make());
    }
    EdgeEngine engine(engine_options());
    HR_ASSIGN_OR_RETURN(const auto server, Server::create(server_options(
                                               load_, certificate ? &*certificate : nullptr)));
    HR_RETURN_IF_ERROR(server->start());
    HR_RETURN_IF_ERROR(server->set_ready(served_edge_model(model_, engine)));
    ::malloc_trim(0);  // else streams would live in what those of a run before left
    const double kib_before = resident_kib();
    shared_.board().port = server->port();
    while (!shared_.board().done && !client.ended()) watch(kib_before);
    cpu_end_ = process_cpu_seconds();
    if (shared_.board().error[0] != 0)
      return unavailable(std::string(shared_.board().error.data()));
    if (!shared_.board().done) return unavailable("the client's process ended");
    return result(engine);
  }

 private:
  EdgeEngineOptions engine_options() {
    EdgeEngineOptions options{.vocab_size = model_.tokenizer->vocab_size(),
                              .tokens = model_.words,
                              .streams = load_.streams,
                              .steps = load_.steps,
                              .steps_per_second = load_.steps_per_second};
    options.may_step = [this](int64_t done) { return may_step(done); };
    options.on_step = [this](int64_t step) {
      if (step == 0) cpu_begin_ = process_cpu_seconds();
      shared_.step_ns.items()[static_cast<size_t>(step)] = SystemClock().now_ns();
    };
    return options;
  }

  bool may_step(int64_t done) const {
    const EdgeBoard& board = shared_.board();
    if (done == 0) return board.heads == load_.streams;
    return (done - kStepsAhead) * load_.streams < board.events_taken;
  }

  // Memory is looked at once, while all streams are open and have half of their tokens.
  void watch(double kib_before) {
    std::this_thread::sleep_for(5ms);
    const int64_t taken = shared_.board().events_taken;
    if (kib_per_stream_ > 0 || 2 * taken < int64_t{load_.streams} * load_.steps) return;
    kib_per_stream_ = (resident_kib() - kib_before) / load_.streams;
  }

  EdgeResult result(const EdgeEngine& engine) const {
    const EdgeBoard& board = shared_.board();
    std::vector<double> delays, bursts;
    const auto steps = static_cast<size_t>(load_.steps);
    for (size_t step = load_.steps > 1 ? 1 : 0; step < steps; ++step) {
      double longest = 0;
      for (size_t stream = 0; stream < static_cast<size_t>(load_.streams); ++stream) {
        delays.push_back(shared_.delays_ns.items()[stream * steps + step] * 1e-6);
        longest = std::max(longest, delays.back());
      }
      bursts.push_back(longest);
    }
    EdgeResult result;
    result.seconds = static_cast<double>(board.last_ns - shared_.step_ns.items()[0]) * 1e-9;
    result.tokens_per_second = static_cast<double>(board.events_taken) / result.seconds;
    result.delay_ms_p50 = percentile(delays, 0.5);
    result.delay_ms_p99 = percentile(delays, 0.99);
    result.delay_ms_max = percentile(std::move(delays), 1);
    result.burst_ms_min = percentile(bursts, 0);
    result.burst_ms_p50 = percentile(bursts, 0.5);
    result.burst_ms_max = percentile(std::move(bursts), 1);
    result.engine_cpu_seconds = engine.cpu_seconds();
    result.server_cpu_seconds = cpu_end_ - cpu_begin_ - result.engine_cpu_seconds;
    result.client_cpu_seconds = static_cast<double>(board.client_cpu_ns) * 1e-9;
    result.resident_kib_per_stream = kib_per_stream_;
    return result;
  }

  const EdgeModel& model_;
  const EdgeLoad& load_;
  const EdgeShared shared_;
  std::atomic<double> cpu_begin_{0};  // written on the engine's thread
  double cpu_end_ = 0;
  double kib_per_stream_ = 0;
};

}  // namespace

Result<EdgeResult> measure_edge(const EdgeModel& model, const EdgeLoad& load) {
  CHECK(load.streams >= 1 && load.streams <= kEdgeStreamsMax && load.steps >= 1);
  HR_RETURN_IF_ERROR(raise_open_files(load.streams));
  return EdgeRun(model, load).run();
}

}  // namespace headrace
