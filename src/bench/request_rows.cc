#include "bench/request_rows.h"

#include <fmt/format.h>

#include "base/json.h"

namespace headrace {

Result<RequestRowFile> RequestRowFile::open(const std::string& path) {
  RequestRowFile rows;
  rows.path_ = path;
  if (path.empty()) return rows;
  rows.file_.open(path);
  if (!rows.file_) {
    return invalid_argument(fmt::format("--rows {}: cannot be written; name another file", path));
  }
  return rows;
}

void RequestRowFile::write(const RequestRow& row) {
  if (path_.empty()) return;
  Json json = Json::object();
  if (!row.policy.empty()) json.set("policy", row.policy);
  json.set("arrival", row.arrival_seconds);
  if (!row.tenant.empty()) json.set("tenant", row.tenant);
  json.set("prompt_tokens", row.prompt_tokens).set("output_tokens", row.output_tokens);
  if (row.error.empty()) {
    json.set("ttft", row.ttft_seconds).set("tpot", row.tpot_seconds);
    json.set("completion", row.completion_seconds);
  } else {
    json.set("error", row.error);
  }
  file_ << write_json(json) << '\n';
}

Status RequestRowFile::close() {
  if (path_.empty()) return ok_status();
  file_.close();
  if (file_) return ok_status();
  return invalid_argument(fmt::format("--rows {}: not everything could be written", path_));
}

}  // namespace headrace
