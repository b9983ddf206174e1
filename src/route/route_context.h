// What all requests of a router share.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "route/model_aliases.h"
#include "route/request_attempts.h"
#include "route/route_metrics.h"
#include "route/worker_attempt.h"
#include "route/worker_table.h"
#include "server/body_budget.h"
#include "server/http_message.h"

namespace headrace {

struct ProxyOptions {
  AttemptPolicy attempts;
  double connect_seconds = 3;
  // A worker that is not heard for so long, neither on the request's connection nor by polls, fails
  // its requests; and a stream that is silent for `silent_stream_seconds` although it is heard.
  double progress_seconds = 10;
  double silent_stream_seconds = 100;
  size_t journal_bytes_max = 4 << 20;  // of one stream: it must fit a request to a worker
  std::string worker_key;              // instead of the client's; empty: the client's is passed on
  std::string router_id;               // by which it knows its own requests
};

// Outlives all requests.
struct RouteContext {
  const ProxyOptions& options;
  const ModelAliases& aliases;
  WorkerTable& table;
  AttemptSource& attempts;
  RouteMetrics& metrics;
  BodyBudget& journals;  // of all streams
  const Clock& clock;
};

inline constexpr std::string_view kRouterHeader = "X-Headrace-Router";

}  // namespace headrace
