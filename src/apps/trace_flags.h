// Where spans go: the flag, and what OpenTelemetry's environment says.
#pragma once

#include "cli/command_line.h"
#include "server/trace_exporter.h"

namespace headrace {

// With what the environment says of the service, headers and authorities.
void add_trace_flags(CLI::App& app, TraceExportOptions& traces);

// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, where no flag names an endpoint. It is often set for all that
// runs on a machine: what cannot be used is no reason not to serve, and a line in the log.
void take_trace_endpoint_of_environment(bool seccomp, TraceExportOptions& traces);

}  // namespace headrace
