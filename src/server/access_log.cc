#include "server/access_log.h"

#include <chrono>
#include <string_view>
#include <utility>

#include "base/log_format.h"
#include "server/error_response.h"
#include "server/random_id.h"
#include "server/server_state.h"

namespace headrace {
namespace {

constexpr const char* kIdHeader = "X-Request-Id";
constexpr size_t kPathBytesMax = 128;
constexpr int kClientLeft = 499;  // as proxies log it

// Answers of load balancers' probes and of dashboards are many and say nothing.
bool is_probe(std::string_view path) {
  return path == "/health" || path == "/v1/health" || path == "/ping" ||
         path == "/health_generate" || path == "/metrics" || path == "/slots" ||
         path.starts_with("/debug/");
}

// Anthropic's clients look for the id under a name of their own.
void add_id(std::vector<HttpHeader>& headers, std::string_view path, const std::string& id) {
  headers.push_back({kIdHeader, id});
  if (error_form_of(path) == ErrorForm::kAnthropic) headers.push_back({"request-id", id});
}

struct LoggedRequest {
  std::string_view method, path, id;
  int status = 0;
  double ms = 0;
  size_t bytes = 0;  // of the answer's body
};

void log_request(LogLevel level, const LoggedRequest& request) {
  if (log_level() > level) return;
  const auto& [method, path, id, status, ms, bytes] = request;
  log_event(level,
            fmt::format("{} {} {} {:.1f} ms {} bytes id={}", method, path, status, ms, bytes, id),
            {{"method", method},
             {"path", path},
             {"status", int64_t{status}},
             {"duration_ms", ms},
             {"bytes", static_cast<int64_t>(bytes)},
             {"request_id", id}});
}

class IdentifiedExchange final : public ForwardingExchange {
 public:
  IdentifiedExchange(std::shared_ptr<Exchange> exchange, const HttpRequest& request, AccessLog log)
      : ForwardingExchange(std::move(exchange)),
        id_(request.id),
        method_(request.method.substr(0, 16)),
        path_(request.path.substr(0, kPathBytesMax)),
        logged_(log == AccessLog::kOff) {}
  ~IdentifiedExchange() override { log(kClientLeft); }

  void respond(HttpResponse response) override {
    bytes_ = response.body.size();
    const int status = response.status;
    add_id(response.headers, path_, id_);
    ForwardingExchange::respond(std::move(response));
    log(status);
  }
  void begin_stream(HttpResponse head) override {
    status_ = head.status;
    add_id(head.headers, path_, id_);
    ForwardingExchange::begin_stream(std::move(head));
  }
  void write(std::string_view bytes) override {
    bytes_ += bytes.size();
    ForwardingExchange::write(bytes);
  }
  void end_stream(std::string_view last) override {
    bytes_ += last.size();
    ForwardingExchange::end_stream(last);
    log(status_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  void log(int status) {
    if (std::exchange(logged_, true)) return;
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begin_).count();
    const LogLevel level = is_probe(path_) && status == 200 ? LogLevel::kDebug : LogLevel::kInfo;
    log_request(level, {method_, path_, id_, status, ms, bytes_});
  }

  const std::string id_;
  const std::string method_;
  const std::string path_;
  const Clock::time_point begin_ = Clock::now();
  bool logged_;
  int status_ = 200;  // of the stream's head
  size_t bytes_ = 0;  // of the body
};

}  // namespace

std::string request_id_of(const HttpRequest& request, size_t bytes_max) {
  const std::string_view id = request.header("x-request-id");
  return is_safe_header_value(id, bytes_max) ? std::string(id) : random_hex_id();
}

std::shared_ptr<Exchange> identified_exchange(std::shared_ptr<Exchange> exchange,
                                              const HttpRequest& request, AccessLog log) {
  return std::make_shared<IdentifiedExchange>(std::move(exchange), request, log);
}

HttpResponse identified_refusal(HttpResponse response, AccessLog log, std::string id,
                                std::string_view path) {
  if (id.empty()) id = random_hex_id();
  if (log == AccessLog::kOn) {
    log_info("- - {} {} bytes id={}", response.status, response.body.size(), id);
  }
  add_id(response.headers, path, id);
  return response;
}

}  // namespace headrace
