#include "route/route_server.h"

#include <utility>  // before asio: Boost 1.74 forgets it

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <exception>
#include <random>
#include <thread>

#include <fmt/format.h>

#include "base/log.h"
#include "route/broadcast.h"
#include "route/proxied_request.h"
#include "route/route_pages.h"
#include "route/socket_attempt.h"
#include "server/access_log.h"
#include "server/error_response.h"
#include "server/http_listener.h"
#include "server/key_quota.h"
#include "server/request_guard.h"

namespace headrace {
namespace {

namespace asio = boost::asio;

constexpr auto kRouteDrainPoll = std::chrono::milliseconds(20);
constexpr auto kTidyStep = std::chrono::seconds(1);
constexpr size_t kRequestIdBytesMax = 256;
constexpr std::string_view kOneTenant =
    "files, uploads, batches, stored responses, responses in the background, pins, made models and "
    "the log of several API keys are not kept apart behind one --worker-api-key: give the router "
    "one API key, or the workers the clients' keys";

// Of all that a worker's one client has made and done.
constexpr std::string_view kSharedPaths[] = {"/api/create", "/api/copy", "/api/delete",
                                             "/debug/log"};

std::string random_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

HttpResponse route_unauthorized(std::string_view why) {
  HttpResponse response = error_response(401, why);
  response.headers.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

class HttpRouteServer final : public RouteServer {
 public:
  HttpRouteServer(RouteServerOptions options, ApiKeys keys, ApiKeys admin,
                  std::unique_ptr<TlsContext> tls)
      : options_(std::move(options)),
        keys_(std::move(keys)),
        admin_(std::move(admin)),
        quotas_(keys_, clock_),
        tls_(std::move(tls)),
        guard_(options_.host, options_.allowed_hosts),
        addresses_(AddressNetworks(), options_.http.connections_per_address_max),
        bodies_(options_.http.bodies_bytes_max),
        journals_(options_.http.bodies_bytes_max),
        table_(options_.table, clock_),
        connections_(io_, clock_, options_.proxy.progress_seconds),
        attempts_(connections_, clock_),
        route_{options_.proxy, options_.aliases, table_, attempts_, metrics_, journals_, clock_},
        edge_{options_.http,
              [this](HttpRequest request, std::shared_ptr<Exchange> exchange) {
                handle(std::move(request), std::move(exchange));
              },
              [this](const HttpRequest& head) { return admit_body(head); },
              [this](int status, std::string_view message) {
                return identified_refusal(error_response(status, message), access_log());
              },
              [](const HttpRequest&) { return std::vector<HttpHeader>(); },
              [this] { return draining_.load(); },
              exchanges_open_,
              addresses_,
              tls_.get(),
              /*tells_peer=*/true},
        listener_(io_, edge_),
        stopping_(asio::make_strand(io_)),
        drain_timer_(stopping_),
        tidy_timer_(stopping_),
        watch_(io_, table_, clock_, options_.watch) {}

  ~HttpRouteServer() override {
    stop();
    wait();
    connections_.clear();
  }

  Status start() override {
    const bool held = options_.listening_socket >= 0;
    HR_RETURN_IF_ERROR(held ? listener_.listen_on(options_.listening_socket)
                            : listener_.listen(options_.host, options_.port));
    for (const HttpTarget& worker : options_.workers) table_.add(worker);
    watch_.start();
    asio::post(stopping_, [this] { tidy(); });
    listener_.start();
    for (int i = 0; i < std::max(1, options_.http_threads); ++i) {
      threads_.emplace_back([this] { run_io(); });
    }
    return ok_status();
  }

  uint16_t port() const override { return listener_.port(); }
  void stop() override { io_.stop(); }

  void drain() override {
    asio::post(stopping_, [this] {
      if (draining_.exchange(true)) return stop();
      drain_deadline_ = clock_.now_seconds() + options_.drain_seconds_max;
      // Who comes now waits in the queue of a socket that the next router has too.
      if (options_.listening_socket >= 0) listener_.stop();
      listener_.close_idle();
      wait_drained();
    });
  }

  bool wait() override {
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
    threads_.clear();
    return exchanges_open_ == 0;
  }

 private:
  void run_io() {
    while (true) {
      try {
        io_.run();
        return;
      } catch (const std::exception& error) {
        log_error("a task of an I/O thread threw: {}", error.what());
      }
    }
  }

  // Where another router follows, nobody would answer who has connected here and has not sent a
  // whole request yet.
  bool is_drained() const {
    const bool alone = options_.listening_socket < 0 || listener_.connection_count() == 0;
    return exchanges_open_ == 0 && alone;
  }

  void wait_drained() {
    drain_timer_.expires_after(kRouteDrainPoll);
    drain_timer_.async_wait([this](boost::system::error_code error) {
      if (error) return;
      is_drained() || clock_.now_seconds() >= drain_deadline_ ? stop() : wait_drained();
    });
  }

  // A worker that is away, or gone for ever, leaves no sockets behind.
  void tidy() {
    std::vector<std::shared_ptr<const HttpTarget>> living;
    for (const WorkerSnapshot& worker : table_.snapshot()) {
      const bool answers =
          worker.state == WorkerState::kUp || worker.state == WorkerState::kDraining;
      if (answers) living.push_back(worker.target);
    }
    connections_.tidy(living);
    tidy_timer_.expires_after(kTidyStep);
    tidy_timer_.async_wait([this](boost::system::error_code error) {
      if (!error) tidy();
    });
  }

  AccessLog access_log() const { return options_.access_log ? AccessLog::kOn : AccessLog::kOff; }

  // Before anything is done for a request.
  std::optional<HttpResponse> refuse(const HttpRequest& request) const {
    if (auto refusal = guard_.refuse(request, {})) return refusal;
    // Where another router follows on the same socket, who has connected is still answered.
    if (draining_ && options_.listening_socket < 0) {
      return error_response(503, "the router is shutting down");
    }
    const std::string_view routers = request.header("x-headrace-router");
    if (routers.find(options_.proxy.router_id) != routers.npos) {
      return error_response(508, "the router is among its own workers");
    }
    return refuse_key(request);
  }

  std::optional<HttpResponse> refuse_key(const HttpRequest& request) const {
    const PageAccess access = route_page_access(request);
    const bool client = keys_.find(request) >= 0, admin = admin_.find(request) >= 0;
    if (access == PageAccess::kOpen || client) return std::nullopt;
    if (admin && access == PageAccess::kAdmin) return std::nullopt;
    if (admin) return route_unauthorized("the admin key is for /workers alone: send an API key");
    if (!keys_.required()) return std::nullopt;
    return route_unauthorized("no valid API key: send Authorization: Bearer KEY");
  }

  // To workers all clients are one: what they keep for one, another could read.
  bool are_one() const { return !options_.proxy.worker_key.empty() && keys_.size() > 1; }
  bool is_unseparated(const HttpRequest& request, const RequestFacts& facts) {
    if (!are_one()) return false;
    if (request.path == "/api/show") return !shows_served_model(route_, request.body);
    return facts.kind == RouteKind::kOwned || facts.kind == RouteKind::kHome || facts.background ||
           request.path.starts_with("/v1/cache/pins") ||
           std::ranges::find(kSharedPaths, request.path) != std::end(kSharedPaths);
  }

  BodyAdmission admit_body(const HttpRequest& head) {
    if (auto refusal = refuse(head)) {
      return {.refusal = identified_refusal(*std::move(refusal), access_log(),
                                            request_id_of(head, kRequestIdBytesMax), head.path)};
    }
    const bool upload = head.path == "/v1/files" ||
                        (head.path.starts_with("/v1/uploads/") && head.path.ends_with("/parts"));
    BodyAdmission admission;
    admission.bytes_max = upload ? options_.http.upload_bytes_max : options_.http.body_bytes_max;
    admission.lease = std::make_shared<BodyBudget::Lease>(bodies_);
    return admission;
  }

  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
    request.id = request_id_of(request, kRequestIdBytesMax);
    exchange = identified_exchange(std::move(exchange), request, access_log());
    if (auto refusal = refuse(request)) return exchange->respond(*std::move(refusal));
    if (route_page_access(request) != PageAccess::kNone) {
      const bool may_change = admin_.required()
                                  ? admin_.find(request) >= 0
                                  : !keys_.required() && is_loopback_host(options_.host);
      return exchange->respond(answer_route_page(
          route_, request, {.may_change = may_change, .sees_made_models = !are_one()}));
    }
    const RequestFacts facts(request);
    if (are_one() && facts.is_get && request.path == "/api/tags") {
      return exchange->respond(served_models_tags(route_));
    }
    if (is_unseparated(request, facts)) return exchange->respond(error_response(501, kOneTenant));
    if (facts.kind == RouteKind::kEveryone) {
      return broadcast_request(io_, route_, std::move(request), std::move(exchange));
    }
    std::unique_ptr<KeyQuota::Lease> held;
    KeyQuota* const quota = facts.computes ? quotas_.of(keys_.find(request)) : nullptr;
    if (quota) {
      KeyQuota::Admission admission = quota->admit();
      if (admission.refusal) return exchange->respond(quota_response(*admission.refusal, *quota));
      held = std::move(admission.lease);
      const auto refusal = quota->take_tokens(*held, facts.prompt_tokens, facts.named_tokens);
      if (refusal) {
        held.reset();
        return exchange->respond(quota_response(*refusal, *quota));
      }
    }
    std::make_shared<ProxiedRequest>(route_, std::move(request), std::move(exchange),
                                     std::move(held))
        ->start();
  }

  const RouteServerOptions options_;
  const ApiKeys keys_, admin_;
  SystemClock clock_;
  KeyQuotas quotas_;
  const std::unique_ptr<TlsContext> tls_;  // null: plain HTTP
  const RequestGuard guard_;
  ClientAddresses addresses_;
  BodyBudget bodies_, journals_;
  RouteMetrics metrics_;
  std::atomic<int> exchanges_open_{0};
  std::atomic<bool> draining_{false};
  WorkerTable table_;
  asio::io_context io_;  // takes the last connections with it: what they refer to stands above
  WorkerConnections connections_;
  SocketAttempts attempts_;
  RouteContext route_;
  ConnectionContext edge_;
  HttpListener listener_;
  asio::strand<asio::io_context::executor_type> stopping_;
  asio::steady_timer drain_timer_;  // on stopping_
  asio::steady_timer tidy_timer_;   // the same
  double drain_deadline_ = 0;       // the same
  WorkerWatch watch_;
  std::vector<std::thread> threads_;
};

}  // namespace

Result<std::unique_ptr<RouteServer>> RouteServer::create(RouteServerOptions options) {
  HR_ASSIGN_OR_RETURN(ApiKeys keys, ApiKeys::create(options.api_keys));
  std::vector<ApiKey> admins;
  if (!options.admin_key.empty()) admins.emplace_back(options.admin_key);
  HR_ASSIGN_OR_RETURN(ApiKeys admin, ApiKeys::create(std::move(admins)));
  std::unique_ptr<TlsContext> tls;
  if (options.tls.enabled()) {
    HR_ASSIGN_OR_RETURN(tls, TlsContext::load(options.tls));
  }
  options.proxy.router_id = random_id();
  options.watch.progress_seconds = options.proxy.progress_seconds;
  options.watch.headers.push_back({std::string(kRouterHeader), options.proxy.router_id});
  if (!options.proxy.worker_key.empty()) {
    options.watch.headers.push_back({"Authorization", "Bearer " + options.proxy.worker_key});
  }
  return std::unique_ptr<RouteServer>(
      new HttpRouteServer(std::move(options), std::move(keys), std::move(admin), std::move(tls)));
}

}  // namespace headrace
