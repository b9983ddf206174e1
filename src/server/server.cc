#include "server/server.h"

#include <utility>  // before asio: Boost 1.74 forgets it

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "server/access_log.h"
#include "server/error_response.h"
#include "server/generation_session.h"
#include "server/http_listener.h"
#include "server/router.h"
#include "server/server_state.h"

namespace headrace {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr size_t kBatchUploadBytesMax = 200 << 20;  // as OpenAI's
constexpr auto kCertificateLook = std::chrono::seconds(2);
constexpr auto kDrainPoll = std::chrono::milliseconds(20);
// For the last bytes of answers that were cut: clients that read take them in milliseconds.
constexpr double kCutSecondsMax = 1;

class HttpServer final : public Server {
 public:
  HttpServer(ServerOptions options, ApiKeys keys, AddressNetworks proxies,
             std::unique_ptr<BatchService> batches, std::unique_ptr<TlsContext> tls)
      : options_(std::move(options)),
        tls_(std::move(tls)),
        addresses_(std::move(proxies), options_.http.connections_per_address_max),
        bodies_(options_.http.bodies_bytes_max),
        uploads_(options_.http.uploads_bytes_max),
        batches_(std::move(batches)),
        state_(options_.requests, std::move(keys), options_.allowed_origins,
               [this](PostBox::Task task) { asio::post(io_, std::move(task)); }),
        context_{options_.http,
                 [this](HttpRequest request, std::shared_ptr<Exchange> exchange) {
                   request.id = request_id_of(request, options_.requests.label_bytes_max);
                   auto identified =
                       identified_exchange(std::move(exchange), request, access_log());
                   route_request(state_, std::move(request), identified);
                 },
                 [this](const HttpRequest& head) { return admit_body(head); },
                 [this](int status, std::string_view message) {
                   return identified_refusal(error_response(status, message), access_log());
                 },
                 [this](const HttpRequest& request) { return common_headers(state_, request); },
                 [this] { return state_.draining.load(); },
                 exchanges_open_,
                 addresses_,
                 tls_.get()},
        listener_(io_, context_),
        stopping_(asio::make_strand(io_)),
        signals_(stopping_),
        drain_timer_(stopping_),
        certificate_timer_(stopping_) {
    state_.page = options_.page;
    state_.force_usage = options_.force_usage;
    state_.batches = batches_.get();
    // No name of the network leads to a UNIX socket: clients may say any.
    state_.guard = RequestGuard(options_.unix_socket.empty() ? options_.host : "0.0.0.0",
                                options_.allowed_hosts);
  }

  ~HttpServer() override {
    stop();
    wait();
    state_.fetches.stop();
    state_.models.close();
  }

  Status start() override {
    HR_RETURN_IF_ERROR(
        options_.listening_socket >= 0 ? listener_.listen_on(options_.listening_socket)
        : options_.unix_socket.empty()
            ? listener_.listen(options_.host, options_.port)
            : listener_.listen_unix(options_.unix_socket, options_.unix_socket_mode));
    if (options_.handle_signals) watch_signals();
    listener_.start();
    if (tls_) watch_certificates();
    started_ = true;
    const int thread_count = std::max(1, options_.http_threads);
    for (int i = 0; i < thread_count; ++i) threads_.emplace_back([this] { run_io(); });
    state_.text_pool.start(thread_count);
    return ok_status();
  }

  uint16_t port() const override { return listener_.port(); }
  ServerState& state() override { return state_; }
  Status set_ready(ServedModel model) override {
    HR_RETURN_IF_ERROR(state_.set_model(std::move(model)));
    if (batches_) batches_->start(state_);
    return ok_status();
  }

  Status set_models(ModelPoolOptions options, std::vector<ServedModelSpec> specs,
                    std::optional<ModelInstance> first) override {
    CHECK_MSG(!batches_, "batches are of a server with one model");
    return state_.models.open(options, std::move(specs), std::move(first));
  }

  void drain() override {
    asio::post(stopping_, [this] { begin_drain(); });
  }
  void cut() override {
    asio::post(stopping_, [this] { begin_cut(); });
  }

  void stop() override { io_.stop(); }

  void reload_certificates() override {
    if (!tls_) return;
    const Status status = tls_->reload();
    if (!status.ok()) return tell_certificates(status);
    log_info("certificates: read again");
  }

  bool wait() override {
    if (!started_) return true;
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
    threads_.clear();
    listener_.remove_socket_file();
    state_.text_pool.stop();
    if (batches_) batches_->stop();
    // No strand runs any more: let go of what the engine's sinks still hold.
    for (const auto& session : state_.sessions.alive()) session->abandon();
    if (!std::exchange(waited_, true)) end_embeddings();  // the model may be gone at a second call
    state_.post_box.clear();
    return drained_;
  }

 private:
  // A task that throws ends neither its thread nor the process. Connections mend what is theirs.
  void run_io() {
    while (true) {
      try {
        io_.run();
        return;  // stopped
      } catch (const std::exception& error) {
        log_error("a task of an I/O thread threw: {}", error.what());
      }
    }
  }

  AccessLog access_log() const { return options_.access_log ? AccessLog::kOn : AccessLog::kOff; }

  void watch_signals() {
    error_code ignored;
    signals_.add(SIGINT, ignored);
    signals_.add(SIGTERM, ignored);
    wait_for_signal();
  }

  void wait_for_signal() {
    signals_.async_wait([this](error_code error, int) {
      if (error) return;
      if (cut_) return stop();
      if (state_.draining) {
        log_warning("second signal: answers under way are cut");
        begin_cut();
      } else {
        begin_drain();
      }
      wait_for_signal();
    });
  }

  // Whoever renews a certificate need not say so.
  void watch_certificates() {
    certificate_timer_.expires_after(kCertificateLook);
    certificate_timer_.async_wait([this](error_code error) {
      if (error) return;
      const TlsCertificates before = tls_->current();
      const Status status = tls_->reload_if_changed();
      if (!status.ok()) tell_certificates(status);
      if (tls_->current() != before) log_info("certificates: they have changed, and are in use");
      watch_certificates();
    });
  }
  static void tell_certificates(const Status& status) {
    log_error("certificates: those before stay in use: {}", status.message());
  }

  void begin_drain() {
    if (state_.draining.exchange(true)) return;
    const int open = exchanges_open_;
    if (open > 0) {
      log_info("draining: {} requests under way have {} s", open, options_.drain_seconds_max);
    }
    drain_deadline_ = clock_.now_seconds() + options_.drain_seconds_max;
    listener_.close_idle();
    state_.models.stop_loads();
    state_.fetches.begin_stop();
    if (batches_) batches_->begin_stop();  // what is left of the time is for those who wait
    poll_drain();
  }

  // Who still waits is told so, if its connection takes it.
  void begin_cut() {
    if (std::exchange(cut_, true)) return;
    const bool was_draining = state_.draining.exchange(true);
    drain_deadline_ = clock_.now_seconds() + kCutSecondsMax;
    for (const auto& session : state_.sessions.alive()) session->cut();
    end_embeddings();
    if (!was_draining) poll_drain();
  }

  void end_embeddings() {
    for (const ModelLease& model : state_.models.loaded()) {
      if (model->served.embedder) model->served.embedder->cancel_all();
    }
  }

  // The port stays open meanwhile: late clients get a 503 that says so, not a refused connection.
  void poll_drain() {
    const int open = exchanges_open_;
    if (open == 0) {
      drained_ = !cut_;
      return stop();
    }
    if (clock_.now_seconds() >= drain_deadline_) {
      if (cut_) return stop();
      log_warning("drain: time is over, {} requests are cut", open);
      begin_cut();
    }
    drain_timer_.expires_after(kDrainPoll);
    drain_timer_.async_wait([this](error_code error) {
      if (!error) poll_drain();
    });
  }

  BodyAdmission admit_body(const HttpRequest& head) {
    HeadVerdict verdict = judge_head(state_, head);
    if (verdict.refusal) {
      std::string id = request_id_of(head, options_.requests.label_bytes_max);
      return {.refusal = identified_refusal(std::move(*verdict.refusal), access_log(),
                                            std::move(id), head.path)};
    }
    const HttpLimits& limits = options_.http;
    const bool upload = verdict.limit == LimitClass::kUpload;
    BodyAdmission admission;
    admission.bytes_max = upload ? std::max(limits.upload_bytes_max, limits.body_bytes_max)
                          : verdict.limit == LimitClass::kNoBody ? limits.unread_body_bytes_max
                                                                 : limits.body_bytes_max;
    admission.lease = std::make_shared<BodyBudget::Lease>(upload ? uploads_ : bodies_);
    return admission;
  }

  const ServerOptions options_;
  const std::unique_ptr<TlsContext> tls_;  // null: plain HTTP
  ClientAddresses addresses_;
  BodyBudget bodies_, uploads_;  // apart, so that uploads leave room for all else
  const std::unique_ptr<BatchService> batches_;
  SystemClock clock_;
  std::atomic<int> exchanges_open_{0};
  ServerState state_;
  ConnectionContext context_;
  asio::io_context io_;  // takes the last connections with it: what they refer to stands above
  HttpListener listener_;
  asio::strand<asio::io_context::executor_type> stopping_;  // of all that follows
  asio::signal_set signals_;
  asio::steady_timer drain_timer_, certificate_timer_;
  double drain_deadline_ = 0;
  bool cut_ = false;
  std::atomic<bool> drained_{false};
  bool started_ = false, waited_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::create(ServerOptions options) {
  HR_ASSIGN_OR_RETURN(ApiKeys keys, ApiKeys::create(options.api_keys));
  std::vector<ApiKey> for_metrics;
  if (!options.metrics_key.empty()) for_metrics.emplace_back(options.metrics_key);
  HR_ASSIGN_OR_RETURN(ApiKeys metrics_keys, ApiKeys::create(std::move(for_metrics)));
  Result<AddressNetworks> proxies = AddressNetworks::parse(options.trusted_proxies);
  if (!proxies.ok()) return proxies.status().with_context("--trusted-proxy");
  std::unique_ptr<BatchService> batches;
  if (!options.batches.folder.empty()) {
    HR_ASSIGN_OR_RETURN(batches, BatchService::open(options.batches));
    options.http.upload_bytes_max = std::max(options.http.upload_bytes_max, kBatchUploadBytesMax);
  }
  std::unique_ptr<TlsContext> tls;
  if (options.tls.enabled()) {
    HR_ASSIGN_OR_RETURN(tls, TlsContext::load(options.tls));
  }
  std::unique_ptr<TraceExporter> traces;
  if (options.traces.enabled()) {
    HR_ASSIGN_OR_RETURN(traces, TraceExporter::create(options.traces));
  }
  auto server = std::make_unique<HttpServer>(
      std::move(options), std::move(keys), std::move(*proxies), std::move(batches), std::move(tls));
  server->state().metrics_keys = std::move(metrics_keys);
  server->state().traces = std::move(traces);
  return std::unique_ptr<Server>(std::move(server));
}

Status Server::run(ServedModel model) {
  HR_RETURN_IF_ERROR(set_ready(std::move(model)));
  HR_RETURN_IF_ERROR(start());
  wait();
  return ok_status();
}

}  // namespace headrace
