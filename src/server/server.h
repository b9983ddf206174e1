// The HTTP server: OpenAI-compatible routes in front of one Engine.
//
// It listens before the model is loaded and answers 503 until set_ready(). `http_threads` threads
// read requests and write answers; as many again read bodies: check, fill the template, tokenise.
// The engine's thread only hands over tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/api_keys.h"
#include "server/batch_service.h"
#include "server/model_pool.h"
#include "server/served_model.h"
#include "server/server_limits.h"
#include "server/tls_context.h"
#include "server/trace_exporter.h"

namespace headrace {

struct ServerState;

struct ServerOptions {
  std::string host = "127.0.0.1";  // an IP address; 0.0.0.0 for all interfaces
  uint16_t port = 8000;            // 0 = any free one: see Server::port()
  // A socket that listens (inherited_socket.h), instead of host and port; -1: none. The server
  // closes it.
  int listening_socket = -1;
  // A UNIX socket to listen on instead of host and port; empty: none. It is made with these rights,
  // and removed when the server ends.
  std::string unix_socket;
  uint32_t unix_socket_mode = 0600;
  TlsOptions tls;                            // with a certificate: HTTPS
  std::vector<ApiKey> api_keys;              // none: open to all who can connect
  std::vector<std::string> allowed_origins;  // web pages that may call; "*" = all
  // Names that the server is called by (request_guard.h); none: of loopback its own, else all.
  std::vector<std::string> allowed_hosts;
  // Addresses and networks of proxies that say in X-Forwarded-For who their clients are.
  std::vector<std::string> trusted_proxies;
  std::string metrics_key;   // that /metrics asks for; empty: it is open
  bool page = true;          // `/` is the web page for browsers
  bool force_usage = false;  // streams end with their usage, asked for or not
  bool access_log = true;    // a line for each request, at level info
  int http_threads = 2;
  double drain_seconds_max = 30;  // for answers under way when the server stops
  bool handle_signals = true;     // SIGINT, SIGTERM: drain; a second one: cut()
  HttpLimits http;
  RequestLimits requests;
  BatchServiceOptions batches;  // with a folder: /v1/files and /v1/batches
  TraceExportOptions traces;    // with an endpoint: a span of each request goes there
};

class Server {
 public:
  static Result<std::unique_ptr<Server>> create(ServerOptions options);
  virtual ~Server() = default;  // stops at once

  // Binds, listens and starts the threads; the routes that need a model answer 503. Once.
  virtual Status start() = 0;
  // The port that is bound. REQUIRES: start() was ok
  virtual uint16_t port() const = 0;
  // From now on requests are answered. The pointers in `model` must outlive the server. Once.
  virtual Status set_ready(ServedModel model) = 0;
  // The same with models that come and go; the server ends them. `first`, if any, is that of
  // specs[0], loaded. kInvalidArgument: two of one name.
  virtual Status set_models(ModelPoolOptions options, std::vector<ServedModelSpec> specs,
                            std::optional<ModelInstance> first) = 0;

  // Connections from now on get the certificates that the files hold now; of a file that cannot be
  // used nothing changes, and the log says so. The server looks itself every few seconds, too. Any
  // thread.
  virtual void reload_certificates() = 0;

  // What routes work on, for jobs beside the connections (batch_job.h). Outlives wait().
  virtual ServerState& state() = 0;

  // Blocks until the server has stopped, by a signal, drain() or stop(). True: every answer under
  // way was finished.
  virtual bool wait() = 0;
  // start() and wait(), for callers that have the model already.
  Status run(ServedModel model);

  // No new requests (503, close), /health says 503, answers under way go on for drain_seconds_max,
  // then cut(). Returns at once; wait() tells the end. Any thread, not from a signal handler.
  virtual void drain() = 0;
  // Ends answers under way with an error that says why, then stop(): within two seconds. As above.
  virtual void cut() = 0;
  virtual void stop() = 0;  // ends everything now. Any thread but the server's own.
};

}  // namespace headrace
