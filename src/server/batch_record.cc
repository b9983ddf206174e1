#include "server/batch_record.h"

#include <array>

#include <fmt/format.h>

namespace headrace {
namespace {

struct StatusRow {
  std::string_view name;
  int64_t BatchRecord::*since;  // nullptr: created_at tells
  bool final = false;
};
constexpr std::array<StatusRow, kBatchStatusCount> kStatusRows = {{
    {"validating", nullptr},
    {"failed", &BatchRecord::failed_at, true},
    {"in_progress", &BatchRecord::in_progress_at},
    {"finalizing", &BatchRecord::finalizing_at},
    {"completed", &BatchRecord::completed_at, true},
    {"expired", &BatchRecord::expired_at, true},
    {"cancelling", &BatchRecord::cancelling_at},
    {"cancelled", &BatchRecord::cancelled_at, true},
}};
const StatusRow& row_of(BatchStatus status) { return kStatusRows[static_cast<size_t>(status)]; }

// The members that are kept as they are.
struct TextRow {
  std::string_view name;
  std::string BatchRecord::*member;
};
constexpr TextRow kTextRows[] = {{"id", &BatchRecord::id},
                                 {"owner", &BatchRecord::owner},
                                 {"endpoint", &BatchRecord::endpoint},
                                 {"input_file_id", &BatchRecord::input_file_id},
                                 {"output_file_id", &BatchRecord::output_file_id},
                                 {"error_file_id", &BatchRecord::error_file_id},
                                 {"error", &BatchRecord::error}};
struct NumberRow {
  std::string_view name;
  int64_t BatchRecord::*member;
};
constexpr NumberRow kNumberRows[] = {{"output_seconds", &BatchRecord::output_seconds},
                                     {"error_line", &BatchRecord::error_line},
                                     {"total", &BatchRecord::total},
                                     {"completed", &BatchRecord::completed},
                                     {"failed", &BatchRecord::failed}};
// Not in what earlier versions wrote: 0 there.
constexpr NumberRow kStartRows[] = {{"starts", &BatchRecord::starts},
                                    {"answers_seen", &BatchRecord::answers_seen}};
constexpr NumberRow kTimeRows[] = {
    {"created_at", &BatchRecord::created_at},     {"in_progress_at", &BatchRecord::in_progress_at},
    {"expires_at", &BatchRecord::expires_at},     {"finalizing_at", &BatchRecord::finalizing_at},
    {"completed_at", &BatchRecord::completed_at}, {"failed_at", &BatchRecord::failed_at},
    {"expired_at", &BatchRecord::expired_at},     {"cancelling_at", &BatchRecord::cancelling_at},
    {"cancelled_at", &BatchRecord::cancelled_at}};
struct StateRow {
  std::string_view name;
  BatchStatus BatchRecord::*member;
};
constexpr StateRow kStateRows[] = {{"status", &BatchRecord::status}, {"end", &BatchRecord::end}};

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json errors_json(const BatchRecord& record) {
  if (record.error.empty()) return {};
  Json error = Json::object();
  error.set("code", "invalid_batch").set("message", record.error).set("param", Json());
  error.set("line", record.error_line > 0 ? Json(record.error_line) : Json());
  Json errors = Json::object();
  errors.set("object", "list").set("data", Json(Json::Array{std::move(error)}));
  return errors;
}

Status read_status(const Json& json, const StateRow& row, BatchRecord& record) {
  const Json* value = json.find(row.name);
  for (int i = 0; value && value->is_string() && i < kBatchStatusCount; ++i) {
    if (kStatusRows[static_cast<size_t>(i)].name != value->as_string()) continue;
    record.*row.member = static_cast<BatchStatus>(i);
    return ok_status();
  }
  return corrupt(fmt::format("{} is no status", row.name));
}

Status read_number(const Json& json, const NumberRow& row, BatchRecord& record) {
  const Json* value = json.find(row.name);
  if (!value || !value->is_int()) return corrupt(fmt::format("{} is missing", row.name));
  record.*row.member = value->as_int();
  return ok_status();
}

}  // namespace

std::string_view batch_status_name(BatchStatus status) { return row_of(status).name; }
bool is_final(BatchStatus status) { return row_of(status).final; }

void BatchRecord::become(BatchStatus next, int64_t now_unix_s) {
  status = next;
  if (int64_t BatchRecord::*since = row_of(next).since; since && this->*since == 0) {
    this->*since = now_unix_s;
  }
}

Json batch_json(const BatchRecord& record) {
  const bool ended = is_final(record.status);
  Json json = Json::object();
  json.set("id", record.id).set("object", "batch").set("endpoint", record.endpoint);
  json.set("errors", errors_json(record)).set("input_file_id", record.input_file_id);
  json.set("completion_window", "24h").set("status", batch_status_name(record.status));
  json.set("output_file_id", ended ? text_or_null(record.output_file_id) : Json());
  json.set("error_file_id", ended ? text_or_null(record.error_file_id) : Json());
  for (const NumberRow& row : kTimeRows) {
    json.set(row.name, record.*row.member > 0 ? Json(record.*row.member) : Json());
  }
  Json counts = Json::object();
  counts.set("total", record.total).set("completed", record.completed);
  counts.set("failed", record.failed);
  json.set("request_counts", std::move(counts)).set("metadata", record.metadata);
  return json;
}

std::string write_batch_record(const BatchRecord& record) {
  Json json = Json::object();
  for (const TextRow& row : kTextRows) json.set(row.name, record.*row.member);
  for (const NumberRow& row : kNumberRows) json.set(row.name, record.*row.member);
  for (const NumberRow& row : kStartRows) json.set(row.name, record.*row.member);
  for (const NumberRow& row : kTimeRows) json.set(row.name, record.*row.member);
  for (const StateRow& row : kStateRows) {
    json.set(row.name, batch_status_name(record.*row.member));
  }
  json.set("metadata", record.metadata);
  return write_json(json);
}

Result<BatchRecord> read_batch_record(std::string_view text) {
  HR_ASSIGN_OR_RETURN(const Json json, parse_json(text));
  if (!json.is_object()) return corrupt("is no object");
  BatchRecord record;
  for (const TextRow& row : kTextRows) {
    const Json* value = json.find(row.name);
    if (!value || !value->is_string()) return corrupt(fmt::format("{} is missing", row.name));
    record.*row.member = value->as_string();
  }
  for (const NumberRow& row : kNumberRows) HR_RETURN_IF_ERROR(read_number(json, row, record));
  for (const NumberRow& row : kStartRows) {
    if (json.find(row.name)) HR_RETURN_IF_ERROR(read_number(json, row, record));
  }
  for (const NumberRow& row : kTimeRows) HR_RETURN_IF_ERROR(read_number(json, row, record));
  for (const StateRow& row : kStateRows) HR_RETURN_IF_ERROR(read_status(json, row, record));
  if (const Json* metadata = json.find("metadata")) record.metadata = *metadata;
  return record;
}

}  // namespace headrace
