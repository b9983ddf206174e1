// What the routes of files, batches and responses share: lists, expiry, answers that wait for the
// disk.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "server/handlers.h"

namespace headrace {

// Answers 404 with the remedy when the server keeps no files; true: it does.
bool has_storage(RouteCall& call);

// Answers with what `work` returns, which runs on the thread that may wait for the disk. 503 when
// that has too much to do. `work` must own what it needs: the call is over before it runs.
void run_on_disk(RouteCall& call, std::function<HttpResponse()> work);

HttpResponse json_response(const Json& json);
// An error of storing something: a full or broken disk is logged, and 503 to the client, who is not
// told of paths.
HttpResponse storage_error(const Status& status);

// A page of a list: first_id, last_id and has_more beside the data.
Json list_json(Json data, bool has_more);

// {"anchor": "created_at", "seconds": an hour to 30 days} -> seconds. Errors name `name`.
Result<int64_t> read_expires_after(std::string_view name, const Json& value);

// Text that is shown again: UTF-8 of 1 to `bytes_max` bytes without control characters.
bool is_label(std::string_view text, size_t bytes_max);

}  // namespace headrace
