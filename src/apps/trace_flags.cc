#include "apps/trace_flags.h"

#include <cstdlib>
#include <string>

#include "base/log.h"
#include "server/http_channel.h"
#include "server/tls_channel.h"

namespace headrace {

void add_trace_flags(CLI::App& app, TraceExportOptions& traces) {
  app.add_option("--otlp-traces-endpoint", traces.endpoint,
                 "Sends a span of each request to this OpenTelemetry collector, by OTLP over HTTP; "
                 "without a path to its /v1/traces (default: as "
                 "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT says, if it can be used)")
      ->type_name("URL")
      ->group("Server");
  const auto take = [](const char* name, std::string& text) {
    if (const char* const value = std::getenv(name); value && *value != '\0') text = value;
  };
  take("OTEL_SERVICE_NAME", traces.service_name);
  take("OTEL_EXPORTER_OTLP_HEADERS", traces.headers);
  take("OTEL_EXPORTER_OTLP_CERTIFICATE", traces.ca_file);
}

void take_trace_endpoint_of_environment(bool seccomp, TraceExportOptions& traces) {
  constexpr const char* kName = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
  const char* const value = std::getenv(kName);
  if (value == nullptr || *value == '\0' || traces.enabled()) return;
  const auto target = parse_http_url(value);
  Status usable = seccomp ? unsupported("--seccomp gives up to open connections") : target.status();
  if (usable.ok() && target->tls) usable = TlsTrust::load(traces.ca_file).status();
  if (!usable.ok()) return log_warning("{}: no spans are sent: {}", kName, usable.message());
  traces.endpoint = value;
}

}  // namespace headrace
