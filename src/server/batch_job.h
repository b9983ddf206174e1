// A batch job: many requests from a file through the same routes as those from the network, as
// many at a time as the engine holds, their answers to a journal (batch_file.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "server/batch_file.h"
#include "server/router.h"
#include "server/server_state.h"

namespace headrace {

struct BatchOptions {
  size_t in_flight_max = 64;  // requests in the engine at a time
  Caller caller;              // whose requests they are; its job is set
};

// So many of a model's requests at a time that a place which comes free is taken at once: twice
// those that run.
size_t batch_in_flight(const ReadyModel& model);

// kInvalidArgument: a route that the model does not serve, with what it is for.
Status check_batch_url(const ReadyModel& model, std::string_view url);
// The same of all requests, by the first's custom_id.
Status check_batch_urls(const ReadyModel& model, const BatchRequests& requests);

struct BatchProgress {
  size_t requests = 0;
  size_t done_before = 0;  // by an earlier run, not repeated
  size_t answered = 0;     // by this one
  size_t refused = 0;      // of them, with an HTTP status of 400 and more
};

// Runs what the journal has no answer to. Returns when all is done, when `stop` is set (requests in
// flight are cancelled and not written; the next run does them), or with the error of the engine or
// of the journal. `report` is called after each answer. A request that the server cannot take now
// (429, 503) waits and is sent again; one that is answered 500 too, five times, later and later.
// Requests that name no service_tier are in the background:
// beside live traffic they take what it leaves. REQUIRES: state.model() is set. On the calling
// thread.
Result<BatchProgress> run_batch(ServerState& state, const BatchRequests& requests,
                                BatchJournal& journal, const BatchOptions& options,
                                const std::atomic<bool>& stop,
                                const std::function<void(const BatchProgress&)>& report);

}  // namespace headrace
