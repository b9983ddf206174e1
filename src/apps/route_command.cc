#include "apps/route_command.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "apps/signal_watch.h"
#include "base/log.h"
#include "cli/command_line.h"
#include "route/route_server.h"
#include "server/inherited_socket.h"
#include "server/request_guard.h"

namespace headrace {
namespace {

constexpr const char* kRouteFooter = R"(Examples:
  headrace route --worker http://10.0.0.1:8000 --worker http://10.0.0.2:8000
  headrace route --worker dns:headrace.default.svc:8000 --host 0.0.0.0 --api-key secret
  headrace route --worker http://10.0.0.1:8000 --alias auto=small,large --cost small=0.1,0.4

GET /workers lists the workers, POST /workers adds one, DELETE /workers/{id} removes it, and
POST /workers/{id}/drain lets it end what it has.)";

constexpr const char* kRouteGroup = "Router";  // of the help
constexpr const char* kFailoverGroup = "Failover";

struct RouteFlags {
  RouteServerOptions server;
  std::vector<std::string> workers, api_keys, aliases, costs, difficulties;
  std::string api_key_file;
  LogLevel log_level = LogLevel::kInfo;
};

constexpr Named<LogLevel> kRouteLogLevels[] = {{"debug", LogLevel::kDebug},
                                               {"info", LogLevel::kInfo},
                                               {"warning", LogLevel::kWarning},
                                               {"error", LogLevel::kError}};

void add_edge_flags(CLI::App& app, RouteFlags& flags) {
  RouteServerOptions& server = flags.server;
  app.add_option("--host", server.host, "The IP address to listen on; 0.0.0.0: all")
      ->type_name("HOST")
      ->group(kRouteGroup);
  app.add_option("--port", server.port, "The port; 0: any free one")
      ->check(CLI::Range(0, 65535))
      ->type_name("N")
      ->group(kRouteGroup);
  app.add_option("--api-key", flags.api_keys,
                 "A key that clients must send (repeatable; default: none is asked for)")
      ->type_name("KEY")
      ->group(kRouteGroup);
  app.add_option("--api-key-file", flags.api_key_file, "More keys, one a line, as of serve")
      ->type_name("FILE")
      ->group(kRouteGroup);
  app.add_option("--admin-key", server.admin_key,
                 "The key that changes the list of workers, and opens nothing else (default: none "
                 "is asked for, on 127.0.0.1 without API keys alone)")
      ->type_name("KEY")
      ->group(kRouteGroup);
  app.add_option("--ssl-certfile", server.tls.certificate_file,
                 "Serves HTTPS with this certificate")
      ->type_name("FILE")
      ->group(kRouteGroup);
  app.add_option("--ssl-keyfile", server.tls.key_file, "Its key (default: in the same file)")
      ->type_name("FILE")
      ->group(kRouteGroup);
  app.add_option("--allowed-hosts", server.allowed_hosts,
                 "Names that clients may call the router by; *: all (default: as of serve)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME,...")
      ->group(kRouteGroup);
  app.add_option("--max-connections", server.http.connections_max, "Connections of clients")
      ->transform(size_between(1, 1 << 20))
      ->type_name("N")
      ->group(kRouteGroup);
  app.add_option("--max-connections-per-address", server.http.connections_per_address_max,
                 "Of one client address; more are told 429")
      ->transform(size_between(1, 1 << 20))
      ->type_name("N")
      ->group(kRouteGroup);
  app.add_option("--http-threads", server.http_threads, "Threads that pass bytes on")
      ->check(CLI::Range(1, 256))
      ->type_name("N")
      ->group(kRouteGroup);
  app.add_option("--shutdown-timeout", server.drain_seconds_max,
                 "How long answers under way may go on after SIGTERM")
      ->check(number_between(0.0, 86400.0))
      ->type_name("SECONDS")
      ->group(kRouteGroup);
  app.add_flag("--access-log,!--no-access-log", server.access_log, "Log a line for each request")
      ->group(kRouteGroup);
  add_choice(app, "--log-level", flags.log_level, kRouteLogLevels, "What is logged")
      ->group(kRouteGroup);
}

void add_worker_flags(CLI::App& app, RouteFlags& flags) {
  RouteServerOptions& server = flags.server;
  app.add_option(
         "--worker", flags.workers,
         "A server to pass requests to (repeatable): http://HOST:PORT, dns:NAME:PORT for all "
         "addresses of a name, or etcd:HOST:PORT[/PREFIX] for all that 'serve "
         "--register-etcd' has entered there; both are looked up again and again")
      ->type_name("URL")
      ->group(kRouteGroup);
  app.add_option("--worker-api-key", server.proxy.worker_key,
                 "The key that workers ask for (default: the client's is passed on)")
      ->type_name("KEY")
      ->group(kRouteGroup);
  add_choice(app, "--policy", server.table.policy, kRoutePolicyNames, "Who gets a request")
      ->group(kRouteGroup);
  app.add_option("--slo-first-token", server.table.choice.first_token_seconds,
                 "Until when a first token is to come, of --policy slo-aware")
      ->check(number_between(0.001, 3600.0))
      ->type_name("SECONDS")
      ->group(kRouteGroup);
  app.add_option("--prefix-tokens", server.table.prefix_tokens,
                 "Tokens that a worker's prefix cache holds, where it does not say")
      ->transform(size_between(64, int64_t{1} << 40))
      ->type_name("N")
      ->group(kRouteGroup);
  app.add_option(
         "--alias", flags.aliases,
         "A name for several models (repeatable): NAME=MODEL,MODEL; the cheapest that holds "
         "prompt and answer gets the request, equals in this order")
      ->type_name("NAME=MODELS")
      ->group(kRouteGroup);
  app.add_option("--cost", flags.costs,
                 "What a million tokens cost (repeatable): MODEL=INPUT,OUTPUT")
      ->type_name("MODEL=COSTS")
      ->group(kRouteGroup);
  app.add_option("--difficulty", flags.difficulties,
                 "The hardest request that a model behind an alias gets (repeatable), of 0 to 1: "
                 "MODEL=NUMBER; requests say theirs by X-Headrace-Difficulty or reasoning_effort")
      ->type_name("MODEL=NUMBER")
      ->group(kRouteGroup);
  app.add_option("--resolve-interval", server.watch.resolve_seconds,
                 "How often names of workers, and etcd, are looked up")
      ->check(number_between(0.1, 86400.0))
      ->type_name("SECONDS")
      ->group(kRouteGroup);
}

void add_failover_flags(CLI::App& app, RouteFlags& flags) {
  ProxyOptions& proxy = flags.server.proxy;
  const auto seconds = [&](const char* name, double& value, const char* help) {
    app.add_option(name, value, help)
        ->check(number_between(0.1, 86400.0))
        ->type_name("SECONDS")
        ->group(kFailoverGroup);
  };
  seconds("--poll-interval", flags.server.watch.poll_seconds,
          "How often workers are asked for health");
  seconds("--progress-bound", proxy.progress_seconds,
          "A worker that says nothing for so long, neither to requests nor to polls, is down");
  seconds("--stream-silence", proxy.silent_stream_seconds,
          "A stream without a byte for so long goes on elsewhere although its worker is up; more "
          "than the --sse-ping-interval of workers");
  seconds("--connect-timeout", proxy.connect_seconds, "For a connection to a worker");
  app.add_option("--failover-wait", proxy.attempts.wait_seconds,
                 "How long requests wait for a worker when none is up")
      ->check(number_between(0.0, 86400.0))
      ->type_name("SECONDS")
      ->group(kFailoverGroup);
  app.add_option("--max-faults", proxy.attempts.faults_max,
                 "Faults of workers that a request may meet without progress between them")
      ->check(CLI::Range(0, 1000))
      ->type_name("N")
      ->group(kFailoverGroup);
  app.add_option("--journal-bytes", proxy.journal_bytes_max,
                 "Longest journal of a stream; a longer one cannot be resumed")
      ->transform(size_between(0, int64_t{1} << 30))
      ->type_name("N")
      ->group(kFailoverGroup);
  app.add_flag("--resume-inexact,!--no-resume-inexact", proxy.attempts.resume_inexact,
               "Streams also go on at a worker whose arithmetic differs (another build, GPU or "
               "number of ranks): the text may differ from there on")
      ->group(kFailoverGroup);
}

Status read_workers(RouteFlags& flags) {
  constexpr std::string_view kDns = "dns:", kEtcd = "etcd:";
  for (const std::string& text : flags.workers) {
    if (text.starts_with(kEtcd)) {
      auto etcd = parse_etcd_address(std::string_view(text).substr(kEtcd.size()));
      if (!etcd.ok()) return etcd.status().with_context("--worker etcd:");
      flags.server.watch.etcds.push_back(*std::move(etcd));
      continue;
    }
    if (text.starts_with(kDns)) {
      const std::string_view rest = std::string_view(text).substr(kDns.size());
      const size_t colon = rest.rfind(':');
      const auto target = parse_http_url("http://" + std::string(rest));
      if (colon == rest.npos || !target.ok()) {
        return invalid_argument(fmt::format("--worker {}: must be dns:NAME:PORT", text), "worker");
      }
      flags.server.watch.names.push_back({target->host, target->port});
      continue;
    }
    Result<HttpTarget> target = parse_worker_url(text);
    if (!target.ok()) return target.status().with_context("--worker");
    flags.server.workers.push_back(*std::move(target));
  }
  if (flags.workers.empty()) {
    return invalid_argument("there is no worker: name servers with --worker http://HOST:PORT",
                            "worker");
  }
  return ok_status();
}

Status apply_route_flags(RouteFlags& flags) {
  set_log_level(flags.log_level);
  HR_RETURN_IF_ERROR(read_workers(flags));
  RouteServerOptions& server = flags.server;
  server.table.members_are_looked_up = !server.watch.etcds.empty() || !server.watch.names.empty();
  for (const std::string& alias : flags.aliases) {
    HR_RETURN_IF_ERROR(server.aliases.add_alias(alias));
  }
  for (const std::string& cost : flags.costs) HR_RETURN_IF_ERROR(server.aliases.add_cost(cost));
  for (const std::string& text : flags.difficulties) {
    HR_RETURN_IF_ERROR(server.aliases.add_difficulty(text));
  }
  for (const std::string& key : flags.api_keys) server.api_keys.emplace_back(key);
  if (!flags.api_key_file.empty()) {
    HR_ASSIGN_OR_RETURN(const auto keys, read_api_key_file(flags.api_key_file, {}));
    server.api_keys.insert(server.api_keys.end(), keys.begin(), keys.end());
  }
  if (server.proxy.progress_seconds < 2 * server.watch.poll_seconds) {
    return invalid_argument("--progress-bound: must be at least two of --poll-interval",
                            "progress-bound");
  }
  if (server.api_keys.empty() && !is_loopback_host(server.host)) {
    log_warning("whoever reaches {} may use the workers: give the router keys (--api-key-file)",
                server.host);
  }
  return ok_status();
}

Result<int> run_route(RouteFlags& flags) {
  HR_ASSIGN_OR_RETURN(flags.server.listening_socket, take_inherited_socket());
  HR_RETURN_IF_ERROR(apply_route_flags(flags));
  ::signal(SIGPIPE, SIG_IGN);
  SignalWatch signals;
  const bool tls = flags.server.tls.enabled();
  const std::string host = flags.server.host;
  const std::string policy(name_of(kRoutePolicyNames, flags.server.table.policy));
  HR_ASSIGN_OR_RETURN(const auto server, RouteServer::create(std::move(flags.server)));
  HR_RETURN_IF_ERROR(server->start());
  fmt::print("listening on {}://{}:{} (policy {})\n", tls ? "https" : "http", host, server->port(),
             policy);
  std::fflush(stdout);
  int signal_count = 0;  // under the watch's lock
  signals.set_handler([&](int signal) {
    if (++signal_count > 2) _exit(128 + signal);
    server->drain();
  });
  const bool finished_all = server->wait();
  signals.set_handler(nullptr);
  if (!finished_all) log_warning("answers were cut off");
  return 0;
}

}  // namespace

SubcommandRun define_route(CLI::App& app) {
  auto flags = std::make_shared<RouteFlags>();
  add_worker_flags(app, *flags);
  add_edge_flags(app, *flags);
  add_failover_flags(app, *flags);
  app.footer(kRouteFooter);
  return [flags] { return run_route(*flags); };
}

}  // namespace headrace
