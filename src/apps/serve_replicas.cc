#include "apps/serve_replicas.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/replicas.h"
#include "apps/signal_watch.h"
#include "base/log.h"
#include "route/route_server.h"
#include "stack/model_device.h"

namespace headrace {
namespace {

// Behind the program's name. Secrets are hidden in it (secret_arguments.h).
std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::string> words;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find('\0', begin), bytes.size());
    words.push_back(bytes.substr(begin, end - begin));
    begin = end + 1;
  }
  if (!words.empty()) words.erase(words.begin());
  return words;
}

// "cuda:2,3": those of replica `index`; GPUs that are not named are counted on from the last.
std::string gpus_of_replica(const DeviceOptions& device, int32_t index) {
  std::string names = "cuda:";
  for (int32_t rank = 0; rank < device.tensor_parallel_size; ++rank) {
    const int32_t place = index * device.tensor_parallel_size + rank;
    const auto named = static_cast<int32_t>(device.gpus.size());
    const int gpu = place < named ? device.gpus[static_cast<size_t>(place)]
                                  : device.gpus.back() + place - named + 1;
    names += fmt::format("{}{}", rank == 0 ? "" : ",", gpu);
  }
  return names;
}

// Of flags that are given more than once the last counts.
std::vector<ReplicaOptions> replica_options(const ReplicatedServe& options) {
  constexpr const char* kConnections = "4096";  // the router's are all of one address
  const bool on_gpus = takes_gpu(options.stack.device);
  const auto cpus = share_cpus(options.count);
  std::vector<ReplicaOptions> replicas;
  for (int32_t i = 0; i < options.count; ++i) {
    ReplicaOptions replica{.arguments = own_arguments(), .cpus = {}};
    const auto add = [&](std::string_view flag, std::string_view value) {
      add_flag(replica.arguments, flag, value);
    };
    add("--data-parallel-size", "1");
    add("--host", "127.0.0.1");
    add("--max-connections-per-address", kConnections);
    if (on_gpus) {
      add("--device", gpus_of_replica(options.stack.device, i));
    } else if (options.stack.device.threads == 0) {
      replica.cpus = cpus[static_cast<size_t>(i)];
    }
    replicas.push_back(std::move(replica));
  }
  return replicas;
}

// "CPUs 0-3, 8": neighbours together. REQUIRES: there are some
std::string names_of(std::vector<int32_t> cpus) {
  std::ranges::sort(cpus);
  std::string names = cpus.size() == 1 ? "CPU" : "CPUs";
  for (size_t i = 0; i < cpus.size();) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    names += fmt::format("{}{}", i == 0 ? " " : ", ", cpus[i]);
    if (last > i) names += fmt::format("-{}", cpus[last]);
    i = last + 1;
  }
  return names;
}

// "ready: 2 replicas: 0 on cuda:0 (127.0.0.1:41063), 1 on cuda:1 (127.0.0.1:40517)".
void print_ready(const ReplicatedServe& options, const Replicas& replicas) {
  const auto cpus = share_cpus(options.count);
  const auto targets = replicas.targets();
  std::string line = fmt::format("ready: {} replicas", options.count);
  for (int32_t i = 0; i < options.count; ++i) {
    const auto at = static_cast<size_t>(i);
    std::string place = fmt::format("{} threads", options.stack.device.threads);
    if (takes_gpu(options.stack.device)) {
      place = gpus_of_replica(options.stack.device, i);
    } else if (options.stack.device.threads == 0) {
      place = names_of(cpus[at]);
    }
    line += fmt::format("{} {} on {} ({}:{})", i == 0 ? ":" : ",", i, place, targets[at].host,
                        targets[at].port);
  }
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

Status check_replicated(const ReplicatedServe& options) {
  const auto refuse = [&](std::string_view flag, std::string_view remedy) {
    return invalid_argument(fmt::format("{} does not go with --data-parallel-size {}: {}", flag,
                                        options.count, remedy));
  };
  const ServerOptions& server = options.server;
  if (options.keys_in_arguments || !server.metrics_key.empty()) {
    return refuse("--api-key, --metrics-key", "put keys into a file (--api-key-file)");
  }
  if (options.registers) {
    return refuse("--register-etcd", "start servers, each of which enters itself");
  }
  if (!server.unix_socket.empty()) return refuse("--uds", "replicas are behind a port");
  if (server.tls.enabled()) {
    return refuse("--ssl-certfile", "put 'headrace route --ssl-certfile' in front of servers");
  }
  if (!server.allowed_origins.empty()) {
    return refuse("--allowed-origins", "the router in front answers no other site's pages");
  }
  if (!server.trusted_proxies.empty()) {
    return refuse("--trusted-proxy", "put the proxy's limits into the proxy, or start one server");
  }
  if (options.has_batch || !server.batches.folder.empty()) {
    return refuse("--batch-input, --batch-dir", "start a server for them");
  }
  if (!options.stack.engine.kv_save_path.empty()) {
    return refuse("--kv-save", "replicas would write one file");
  }
  return ok_status();
}

// From SIGTERM on: a replica that takes longer than it may for its answers hangs.
std::chrono::seconds seconds_to_end(const ServerOptions& server) {
  constexpr std::chrono::seconds kBeside{10};
  return std::chrono::seconds(static_cast<int64_t>(server.drain_seconds_max)) + kBeside;
}

RouteServerOptions router_options(const ServerOptions& server, const Replicas& replicas) {
  RouteServerOptions router;
  router.host = server.host;
  router.port = server.port;
  router.listening_socket = server.listening_socket;
  router.api_keys = server.api_keys;
  router.allowed_hosts = server.allowed_hosts;
  router.access_log = server.access_log;
  router.http_threads = server.http_threads;
  router.drain_seconds_max = server.drain_seconds_max;
  router.http.connections_max = server.http.connections_max;
  router.http.connections_per_address_max = server.http.connections_per_address_max;
  router.http.body_bytes_max = server.http.body_bytes_max;
  router.workers = replicas.targets();
  return router;
}

}  // namespace

void add_replica_flag(CLI::App& app, int32_t& count) {
  app.add_option(
         "--data-parallel-size,--dp,--dp-size", count,
         "Replicas of the server behind one address: a process each, with a GPU (or as many "
         "as --tensor-parallel-size says) or its part of the CPUs, and a router in front "
         "that finds prefixes and goes on with streams when a replica dies (default: 1)")
      ->check(CLI::Range(1, 64))
      ->type_name("N")
      ->group("Server");
}

Result<int> serve_replicas(const ReplicatedServe& options) {
  HR_RETURN_IF_ERROR(check_replicated(options));
  ::signal(SIGPIPE, SIG_IGN);
  SignalWatch signals;
  HR_ASSIGN_OR_RETURN(const auto replicas,
                      Replicas::start(replica_options(options), seconds_to_end(options.server)));
  HR_ASSIGN_OR_RETURN(const auto router,
                      RouteServer::create(router_options(options.server, *replicas)));
  HR_RETURN_IF_ERROR(router->start());
  fmt::print("listening on http://{}:{}\n", options.server.host, router->port());
  std::fflush(stdout);
  std::atomic<bool> serving{false};
  int signal_count = 0;  // under the watch's lock
  signals.set_handler([&](int signal) {
    if (++signal_count > 2) _exit(128 + signal);
    router->drain();
    // Until all have loaded there is nothing to finish; a second signal does not wait for it.
    if (!serving || signal_count > 1) replicas->stop();
  });
  const Result<bool> ready = replicas->wait_ready();
  serving = true;
  if (!ready.ok()) {
    router->stop();
  } else if (*ready) {
    print_ready(options, *replicas);
  }
  const bool finished_all = router->wait();
  signals.set_handler(nullptr);
  replicas->stop();
  HR_RETURN_IF_ERROR(ready.status());
  if (!finished_all) log_warning("answers were cut off");
  return 0;
}

}  // namespace headrace
