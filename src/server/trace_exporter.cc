#include "server/trace_exporter.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "base/json.h"
#include "base/log.h"
#include "server/header_text.h"
#include "server/query.h"
#include "server/random_id.h"
#include "server/server_state.h"

namespace headrace {
namespace {

// As OpenTelemetry's batch processors have them, but for the delay, which is theirs by five.
constexpr size_t kQueuedMax = 2048;
constexpr size_t kBatchMax = 512;
constexpr auto kDelay = std::chrono::seconds(1);  // for spans that share a request
constexpr double kSendSeconds = 3;
constexpr std::string_view kTracesPath = "/v1/traces";
constexpr int kSpanKindServer = 2;
constexpr int kStatusError = 2;

Json attribute(std::string_view key, const Span::Value& value) {
  Json typed = Json::object();
  if (const auto* number = std::get_if<int64_t>(&value)) {
    typed.set("intValue", std::to_string(*number));  // 64 bits are texts in Protobuf's JSON
  } else if (const auto* real = std::get_if<double>(&value)) {
    typed.set("doubleValue", *real);
  } else {
    typed.set("stringValue", std::get<std::string>(value));
  }
  Json json = Json::object();
  json.set("key", key).set("value", std::move(typed));
  return json;
}

Json span_json(const Span& span) {
  Json attributes = Json::array();
  for (const auto& [key, value] : span.attributes) attributes.push(attribute(key, value));
  Json json = Json::object();
  json.set("traceId", span.context.trace_id).set("spanId", random_hex_id().substr(16));
  if (!span.context.parent_id.empty()) json.set("parentSpanId", span.context.parent_id);
  if (!span.context.state.empty()) json.set("traceState", span.context.state);
  json.set("name", span.name).set("kind", kSpanKindServer);
  json.set("startTimeUnixNano", std::to_string(span.begin_unix_ns));
  json.set("endTimeUnixNano", std::to_string(span.end_unix_ns));
  json.set("attributes", std::move(attributes));
  Json status = Json::object();
  if (!span.error.empty()) status.set("code", kStatusError).set("message", span.error);
  json.set("status", std::move(status));
  return json;
}

// "a=b,c=d", values percent-encoded.
Result<std::vector<HttpHeader>> parse_headers(std::string_view text) {
  constexpr size_t kBytesMax = 4096;
  std::vector<HttpHeader> headers = {{"Content-Type", "application/json"}};
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = trim(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (item.empty()) continue;
    const size_t equals = item.find('=');
    const std::string_view name = trim(item.substr(0, equals));
    const std::string value =
        percent_decode(equals == item.npos ? "" : trim(item.substr(equals + 1)));
    if (!is_safe_header_value(name, kBytesMax) || name.find(':') != name.npos || value.empty() ||
        !is_field_value(value, kBytesMax)) {
      return invalid_argument("OTEL_EXPORTER_OTLP_HEADERS must be NAME=VALUE,NAME=VALUE");
    }
    headers.push_back({std::string(name), value});
  }
  return headers;
}

}  // namespace

std::string otlp_json(const std::vector<Span>& spans, std::string_view service_name) {
  Json list = Json::array();
  for (const Span& span : spans) list.push(span_json(span));
  Json scope = Json::object();
  scope.set("name", "headrace").set("version", HEADRACE_VERSION);
  Json of_scope = Json::object();
  of_scope.set("scope", std::move(scope)).set("spans", std::move(list));
  Json resource = Json::object();
  resource.set("attributes",
               Json::array().push(attribute("service.name", std::string(service_name))));
  Json of_resource = Json::object();
  of_resource.set("resource", std::move(resource));
  of_resource.set("scopeSpans", Json::array().push(std::move(of_scope)));
  Json body = Json::object();
  body.set("resourceSpans", Json::array().push(std::move(of_resource)));
  return write_json(body);
}

Result<std::unique_ptr<TraceExporter>> TraceExporter::create(const TraceExportOptions& options) {
  Result<HttpTarget> target = parse_http_url(options.endpoint);
  if (!target.ok()) return target.status().with_context("--otlp-traces-endpoint");
  if (target->path == "/") target->path = kTracesPath;
  HR_ASSIGN_OR_RETURN(auto headers, parse_headers(options.headers));
  std::shared_ptr<const TlsTrust> trust;
  if (target->tls) {
    Result<std::shared_ptr<const TlsTrust>> loaded = TlsTrust::load(options.ca_file);
    if (!loaded.ok()) return loaded.status().with_context("OTEL_EXPORTER_OTLP_CERTIFICATE");
    trust = *std::move(loaded);
  }
  return std::unique_ptr<TraceExporter>(new TraceExporter(
      std::move(*target), std::move(trust), std::move(headers), options.service_name));
}

TraceExporter::TraceExporter(HttpTarget target, std::shared_ptr<const TlsTrust> trust,
                             std::vector<HttpHeader> headers, std::string service_name)
    : target_(std::move(target)),
      trust_(std::move(trust)),
      headers_(std::move(headers)),
      service_name_(std::move(service_name)),
      queue_(kQueuedMax),
      thread_([this] { run(); }) {}

TraceExporter::~TraceExporter() {
  queue_.close();
  thread_.join();
}

void TraceExporter::add(Span span) {
  if (!span.context.sampled) return;
  if (!queue_.try_push(std::move(span))) ++dropped_;
}

void TraceExporter::run() {
  using Clock = std::chrono::steady_clock;
  while (true) {
    std::optional<Span> first = queue_.pop_for(kDelay);
    if (!first && queue_.closed()) return;
    if (!first) continue;
    std::vector<Span> spans;
    spans.push_back(std::move(*first));
    const auto deadline = Clock::now() + kDelay;
    while (spans.size() < kBatchMax) {
      std::optional<Span> next = queue_.pop_for(deadline - Clock::now());
      if (!next) break;
      spans.push_back(std::move(*next));
    }
    send(spans);
  }
}

void TraceExporter::send(const std::vector<Span>& spans) {
  Status status = ok_status();
  try {
    // At the end only a collector that answers is waited for.
    status = lost_ && queue_.closed() ? unavailable("the server stops")
                                      : try_send(otlp_json(spans, service_name_));
  } catch (const std::exception& error) {  // memory
    status = unavailable(error.what());
  }
  if (status.ok()) {
    sent_ += spans.size();
    if (std::exchange(lost_, false)) log_info("traces: the collector takes spans again");
    return;
  }
  dropped_ += spans.size();
  if (!std::exchange(lost_, true)) {
    log_warning("traces: spans are dropped until the collector takes them: {}", status.message());
  }
}

Status TraceExporter::try_send(const std::string& body) const {
  HR_ASSIGN_OR_RETURN(const int answer,
                      post_http(target_, headers_, body, kSendSeconds, trust_.get()));
  if (answer / 100 == 2) return ok_status();
  return unavailable(
      fmt::format("{}:{}{} answered {}", target_.host, target_.port, target_.path, answer));
}

}  // namespace headrace
