#include "server/stored_json.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "server/batch_service.h"
#include "server/error_response.h"
#include "text/utf8.h"

namespace headrace {
namespace {

constexpr int64_t kExpirySecondsMin = 3600, kExpirySecondsMax = 30 * 24 * 3600;

}  // namespace

bool has_storage(RouteCall& call) {
  if (call.state.batches) return true;
  call.exchange->respond(
      error_response(404, "this server keeps no files: it was started without --batch-dir"));
  return false;
}

void run_on_disk(RouteCall& call, std::function<HttpResponse()> work) {
  const bool taken =
      call.state.batches->run_on_disk([exchange = call.exchange, work = std::move(work)] {
        HttpResponse response;
        try {
          response = work();
        } catch (const std::exception& error) {
          log_error("work on the disk threw; answered 500: {}", error.what());
          response = error_response(500, "internal error");
        }
        exchange->post([exchange, response = std::move(response)]() mutable {
          exchange->respond(std::move(response));
        });
      });
  if (!taken) call.exchange->respond(error_response(503, "the disk has too much to do"));
}

HttpResponse json_response(const Json& json) {
  HttpResponse response;
  response.body = write_json(json);
  return response;
}

HttpResponse storage_error(const Status& status) {
  const bool of_client =
      status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kNotFound;
  // Of the disk: its message begins with a path.
  if (of_client || status.message().find('/') == std::string::npos) return error_response(status);
  log_error("{}", status.message());
  return error_response(503, status.code() == StatusCode::kExhausted
                                 ? "the server's disk is full"
                                 : "the server's disk gave an error");
}

Json list_json(Json data, bool has_more) {
  const Json::Array& items = data.as_array();
  const auto id_of = [](const Json& item) { return *item.find("id"); };
  Json first = items.empty() ? Json() : id_of(items.front());
  Json last = items.empty() ? Json() : id_of(items.back());
  Json json = Json::object();
  json.set("object", "list").set("data", std::move(data));
  json.set("first_id", std::move(first)).set("last_id", std::move(last));
  json.set("has_more", has_more);
  return json;
}

Result<int64_t> read_expires_after(std::string_view name, const Json& value) {
  const Json* anchor = value.is_object() ? value.find("anchor") : nullptr;
  const Json* seconds = value.is_object() ? value.find("seconds") : nullptr;
  const bool good = anchor && anchor->is_string() && anchor->as_string() == "created_at" &&
                    seconds && seconds->is_int() && seconds->as_int() >= kExpirySecondsMin &&
                    seconds->as_int() <= kExpirySecondsMax;
  if (good) return seconds->as_int();
  return invalid_argument(fmt::format("{} must have the anchor created_at and seconds in [{}, {}]",
                                      name, kExpirySecondsMin, kExpirySecondsMax),
                          std::string(name));
}

bool is_label(std::string_view text, size_t bytes_max) {
  return !text.empty() && text.size() <= bytes_max && valid_utf8_prefix(text) == text.size() &&
         std::none_of(text.begin(), text.end(),
                      [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

}  // namespace headrace
