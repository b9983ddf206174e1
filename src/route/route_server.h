// The router: the HTTP edge of a server in front of many workers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "route/model_aliases.h"
#include "route/route_context.h"
#include "route/worker_table.h"
#include "route/worker_watch.h"
#include "server/api_keys.h"
#include "server/server_limits.h"
#include "server/tls_context.h"

namespace headrace {

struct RouteServerOptions {
  std::string host = "127.0.0.1";  // an IP address
  uint16_t port = 8000;            // 0: any free one
  int listening_socket = -1;       // instead of both (inherited_socket.h); the router closes it
  TlsOptions tls;
  std::vector<ApiKey> api_keys;  // none: open to all who can connect
  std::string admin_key;         // who may change the list of workers; empty: on loopback anybody
  std::vector<std::string> allowed_hosts;  // as of a server
  bool access_log = false;
  int http_threads = 2;
  double drain_seconds_max = 30;
  HttpLimits http{.upload_bytes_max = 200 << 20};
  std::vector<HttpTarget> workers;
  WorkerTableOptions table;
  WorkerWatchOptions watch;
  ProxyOptions proxy;
  ModelAliases aliases;
};

class RouteServer {
 public:
  static Result<std::unique_ptr<RouteServer>> create(RouteServerOptions options);
  virtual ~RouteServer() = default;

  // Binds, listens and starts the threads. Once.
  virtual Status start() = 0;
  virtual uint16_t port() const = 0;  // REQUIRES: start() was ok
  // Until it has stopped. True: every answer under way was finished.
  virtual bool wait() = 0;
  // New connections are refused, answers under way go on for drain_seconds_max. Any thread.
  virtual void drain() = 0;
  virtual void stop() = 0;
};

}  // namespace headrace
