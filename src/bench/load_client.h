// LoadClient: sends requests to an HTTP server by a timetable, and times the answers as a client
// sees them. Requests differ in nothing but data, so random lengths, traces and files of requests
// are all lists of LoadItems.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace headrace {

struct LoadItem {
  double at_seconds = 0;  // after the start; in ascending order. All 0: as fast as slots come free
  std::string body;       // JSON
  std::vector<std::pair<std::string, std::string>> headers;
};

struct LoadClientOptions {
  std::string host = "127.0.0.1";  // an IP address
  uint16_t port = 8000;
  std::string path = "/v1/completions";
  std::string api_key;      // empty: none is sent
  int concurrency_max = 0;  // requests under way; more wait. 0: no bound
  int threads = 2;
  double seconds_max = 3600;              // what is not answered by then counts as failed
  std::atomic<int64_t>* ended = nullptr;  // counts items that have; must outlive the run
};

// Seconds on one clock, 0 at the start of the run.
struct LoadOutcome {
  double sent = -1;         // -1: never
  double first_token = -1;  // -1: none came
  double last_token = -1;
  double ended = -1;
  std::vector<float> gaps;    // between events with text; empty for whole answers
  int64_t prompt_tokens = 0;  // as the server counts them in "usage"
  int64_t output_tokens = 0;
  std::string error;        // empty: answered with 200, to its end
  int status = 0;           // of the answer; 0: there was none
  double retry_after = -1;  // seconds, where the answer told; -1: it did not

  bool ok() const { return error.empty(); }
  bool refused() const { return status == 429; }  // overload, as the server means to tell it
  double per_token() const {
    const auto later = static_cast<double>(output_tokens - 1);
    return later > 0 ? (last_token - first_token) / later : 0.0;
  }
};

// One outcome an item, in their order; blocks until all have ended. Connections are kept and used
// again. An item whose time has come while concurrency_max are under way is sent when one ends;
// `sent` says when. kInvalidArgument: a bad host.
Result<std::vector<LoadOutcome>> run_load(const LoadClientOptions& options,
                                          std::span<const LoadItem> items);

// One GET or (with a body) POST, as a whole: for what is asked beside a run. kUnavailable where the
// server does not answer.
struct HttpAnswer {
  int status = 0;
  std::string body;
};
Result<HttpAnswer> fetch(const LoadClientOptions& options, const std::string& path,
                         const std::string& body = "");

}  // namespace headrace
