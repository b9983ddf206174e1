#include "server/batch_results.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "server/durable_file.h"
#include "server/random_id.h"
#include "server/server_state.h"

namespace headrace {
namespace {

std::string unanswered_line(const BatchRequest& request, const UnansweredReason& reason) {
  std::string line = fmt::format(R"({{"id":"batch_req_{}","custom_id":)", random_hex_id());
  append_json_string(line, request.custom_id);
  line += fmt::format(R"(,"response":null,"error":{{"code":"{}","message":)", reason.code);
  append_json_string(line, reason.message);
  line += "}}\n";
  return line;
}

// REQUIRES: an answer's line, as BatchJournal::open() has checked it
bool is_refused(std::string_view line) {
  const Result<Json> json = parse_json(line);
  return !json.ok() || json->find("response")->find("status_code")->as_int() >= 400;
}

Status commit_unless_empty(DurableFile& file) {
  return file.size() > 0 ? file.commit() : ok_status();
}

}  // namespace

Result<BatchResultCounts> write_batch_results(const BatchRequests& requests,
                                              const BatchJournal& journal,
                                              const std::string& journal_path,
                                              const UnansweredReason& reason,
                                              const BatchResultPaths& paths) {
  HR_ASSIGN_OR_RETURN(DurableFile output, DurableFile::create(paths.output));
  HR_ASSIGN_OR_RETURN(DurableFile errors, DurableFile::create(paths.errors));
  HR_ASSIGN_OR_RETURN(const auto mapped, MappedFile::open(journal_path));
  BatchResultCounts counts;
  std::string_view rest(reinterpret_cast<const char*>(mapped->bytes().data()),
                        mapped->bytes().size());
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, std::min(rest.find('\n'), rest.size() - 1) + 1);
    rest.remove_prefix(line.size());
    const bool refused = is_refused(line);
    HR_RETURN_IF_ERROR((refused ? errors : output).append(line));
    ++(refused ? counts.errors : counts.output);
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    if (journal.is_done(i)) continue;
    HR_RETURN_IF_ERROR(errors.append(unanswered_line(requests[i], reason)));
    ++counts.errors;
  }
  HR_RETURN_IF_ERROR(commit_unless_empty(output));
  HR_RETURN_IF_ERROR(commit_unless_empty(errors));
  return counts;
}

}  // namespace headrace
