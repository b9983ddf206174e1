// Spans of requests, sent to an OpenTelemetry collector: OTLP over HTTP, in JSON
// (https://opentelemetry.io/docs/specs/otlp/). A thread of its own sends them, several at a time.
// Who ends a request only puts its span into a bounded queue: a collector that is slow or gone
// costs spans, which are counted, and never time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/bounded_queue.h"
#include "base/status.h"
#include "server/http_post.h"
#include "server/tls_channel.h"
#include "server/trace_context.h"

namespace headrace {

struct Span {
  using Value = std::variant<int64_t, double, std::string>;
  TraceContext context;
  std::string name;
  int64_t begin_unix_ns = 0, end_unix_ns = 0;
  std::vector<std::pair<std::string, Value>> attributes;
  std::string error;  // what went wrong; empty: nothing
};

struct TraceExportOptions {
  // http:// or https://HOST:PORT, to which /v1/traces is added, or with a path of its own; empty:
  // no traces.
  std::string endpoint;
  std::string service_name = "headrace";
  std::string ca_file;  // PEM: authorities of an https:// collector; empty: the system's
  std::string headers;  // for the collector, as OTEL_EXPORTER_OTLP_HEADERS has them: a=b,c=d

  bool enabled() const { return !endpoint.empty(); }
};

// Of spans, since the start.
struct TraceCounts {
  uint64_t sent = 0;     // and taken by the collector
  uint64_t dropped = 0;  // the queue was full, or the collector did not take them
};

class TraceExporter {
 public:
  // kInvalidArgument and kUnsupported with the option. Whether the collector is there is not asked.
  static Result<std::unique_ptr<TraceExporter>> create(const TraceExportOptions& options);
  // Sends what is queued, as long as the collector takes it at once.
  ~TraceExporter();

  // Never waits. Spans whose trace is not sampled are left out. Any thread.
  void add(Span span);
  TraceCounts counts() const { return {sent_, dropped_}; }

 private:
  TraceExporter(HttpTarget target, std::shared_ptr<const TlsTrust> trust,
                std::vector<HttpHeader> headers, std::string service_name);
  void run();
  void send(const std::vector<Span>& spans);
  Status try_send(const std::string& body) const;

  const HttpTarget target_;
  const std::shared_ptr<const TlsTrust> trust_;  // nullptr: no TLS
  const std::vector<HttpHeader> headers_;
  const std::string service_name_;
  BoundedQueue<Span> queue_;
  std::atomic<uint64_t> sent_{0}, dropped_{0};
  bool lost_ = false;  // the last attempt failed; of the thread
  std::thread thread_;
};

// The body of a request to the collector: ExportTraceServiceRequest.
std::string otlp_json(const std::vector<Span>& spans, std::string_view service_name);

}  // namespace headrace
