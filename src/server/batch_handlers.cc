// /v1/batches, as OpenAI's batch API has it.
#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "server/batch_file.h"
#include "server/batch_job.h"
#include "server/batch_service.h"
#include "server/error_response.h"
#include "server/handlers.h"
#include "server/query.h"
#include "server/stored_json.h"

namespace headrace {
namespace {

constexpr int64_t kBatchesListed = 20, kBatchesListedMax = 100;

Result<std::string> read_text(const Json& body, std::string_view name) {
  const Json* value = body.find(name);
  if (value && value->is_string()) return value->as_string();
  return invalid_argument(fmt::format("{} must be a text", name), std::string(name));
}

Result<BatchRecord> read_batch(const Json& body) {
  BatchRecord record;
  HR_ASSIGN_OR_RETURN(record.input_file_id, read_text(body, "input_file_id"));
  HR_ASSIGN_OR_RETURN(record.endpoint, read_text(body, "endpoint"));
  if (std::find(kBatchUrls.begin(), kBatchUrls.end(), record.endpoint) == kBatchUrls.end()) {
    return invalid_argument(fmt::format("endpoint must be one of {}", fmt::join(kBatchUrls, ", ")),
                            "endpoint");
  }
  HR_ASSIGN_OR_RETURN(const std::string window, read_text(body, "completion_window"));
  if (window != "24h") {
    return invalid_argument("completion_window must be 24h", "completion_window");
  }
  if (const Json* metadata = body.find("metadata"); metadata && !metadata->is_null()) {
    HR_RETURN_IF_ERROR(check_metadata(*metadata));
    record.metadata = *metadata;
  }
  if (const Json* expiry = body.find("output_expires_after"); expiry && !expiry->is_null()) {
    HR_ASSIGN_OR_RETURN(record.output_seconds, read_expires_after("output_expires_after", *expiry));
  }
  return record;
}

// What the served model does not do is refused before a file of it is run.
Status check_endpoint(const ServerState& state, std::string_view endpoint) {
  const ReadyModel* const model = state.model();
  if (model == nullptr) return ok_status();
  const Status able = check_batch_url(*model, endpoint);
  return able.ok() ? able
                   : invalid_argument(fmt::format("endpoint {}", able.message()), "endpoint");
}

HttpResponse answer_of(const Result<BatchRecord>& record) {
  return record.ok() ? json_response(batch_json(*record)) : storage_error(record.status());
}

}  // namespace

void handle_create_batch(RouteCall& call) {
  if (!has_storage(call)) return;
  Result<BatchRecord> record = read_batch(call.body);
  if (!record.ok()) return call.exchange->respond(error_response(record.status()));
  const Status able = check_endpoint(call.state, record->endpoint);
  if (!able.ok()) return call.exchange->respond(error_response(able));
  record->owner = call.caller.owner(call.state.keys);
  run_on_disk(call, [batches = call.state.batches, record = std::move(*record)] {
    return answer_of(batches->create(record));
  });
}

void handle_batches(RouteCall& call) {
  if (!has_storage(call)) return;
  const auto limit =
      query_integer(call.request.query, "limit", kBatchesListed, 1, kBatchesListedMax);
  if (!limit.ok()) return call.exchange->respond(error_response(limit.status()));
  const auto page = call.state.batches->list(call.caller.owner(call.state.keys),
                                             query_value(call.request.query, "after").value_or(""),
                                             static_cast<size_t>(*limit));
  if (!page.ok()) return call.exchange->respond(error_response(page.status()));
  Json data = Json::array();
  for (const BatchRecord& record : page->batches) data.push(batch_json(record));
  respond_json(call, list_json(std::move(data), page->has_more));
}

void handle_batch(RouteCall& call) {
  if (!has_storage(call)) return;
  const auto record = call.state.batches->find(call.caller.owner(call.state.keys), call.parameter);
  if (!record) {
    return call.exchange->respond(error_response(404, "there is no batch of that id", "batch_id"));
  }
  respond_json(call, batch_json(*record));
}

void handle_cancel_batch(RouteCall& call) {
  if (!has_storage(call)) return;
  run_on_disk(call, [batches = call.state.batches, id = call.parameter,
                     owner = call.caller.owner(call.state.keys)] {
    return answer_of(batches->cancel(owner, id));
  });
}

}  // namespace headrace
