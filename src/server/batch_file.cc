#include "server/batch_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/private_file.h"
#include "server/durable_file.h"
#include "server/random_id.h"
#include "server/server_state.h"

namespace headrace {
namespace {

constexpr size_t kCustomIdBytesMax = 512;
constexpr size_t kPieceBytes = 256 << 10;  // of a file, mapped at a time

std::string_view text_of(const MappedFile& file) {
  const auto bytes = file.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void let_go(const MappedFile& file, std::string_view part) {
  file.release({reinterpret_cast<const std::byte*>(part.data()), part.size()});
}

// The line at the beginning of `rest`, without its end; nothing when it is longer than `bytes_max`.
std::optional<std::string_view> next_line(const MappedFile& file, std::string_view rest,
                                          size_t bytes_max) {
  const size_t looked_max = std::min(rest.size(), bytes_max + 1);
  for (size_t looked = 0; looked < looked_max; looked += kPieceBytes) {
    const std::string_view piece = rest.substr(looked, std::min(kPieceBytes, looked_max - looked));
    if (const size_t end = piece.find('\n'); end != piece.npos) return rest.substr(0, looked + end);
    let_go(file, piece);
  }
  return rest.size() <= bytes_max ? std::optional(rest) : std::nullopt;
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

Result<std::string> text_member(const Json& object, std::string_view key) {
  const Json* member = object.find(key);
  if (member == nullptr) return invalid_argument(fmt::format("{} is missing", key));
  if (!member->is_string()) return invalid_argument(fmt::format("{} must be a text", key));
  return member->as_string();
}

// One of kBatchUrls.
Result<std::string_view> url_of(const Json& line, const BatchRules& rules) {
  HR_ASSIGN_OR_RETURN(const std::string url, text_member(line, "url"));
  if (!rules.url.empty() && url != rules.url) {
    return invalid_argument(fmt::format("url must be {}, as the batch's endpoint", rules.url));
  }
  const auto* const found = std::find(kBatchUrls.begin(), kBatchUrls.end(), url);
  if (found == kBatchUrls.end()) {
    return invalid_argument(fmt::format("url must be one of {}", fmt::join(kBatchUrls, ", ")));
  }
  return *found;
}

Status check_method(const Json& line) {
  HR_ASSIGN_OR_RETURN(const std::string method, text_member(line, "method"));
  return method == "POST" ? ok_status() : invalid_argument("method must be POST");
}

Status check_body(const Json& line) {
  const Json* body = line.find("body");
  if (body == nullptr || !body->is_object()) return invalid_argument("body must be an object");
  const Json* stream = body->find("stream");
  if (stream != nullptr && !(stream->is_bool() && !stream->as_bool()) && !stream->is_null()) {
    return invalid_argument("body.stream must be false: a batch has whole answers");
  }
  return ok_status();
}

// For the order of the job only: what is no number is refused when the request is read.
int64_t declared_tokens(const Json& body) {
  for (const std::string_view name : {"max_completion_tokens", "max_tokens", "max_output_tokens"}) {
    const Json* value = body.find(name);
    if (value != nullptr && value->is_int()) return value->as_int();
  }
  return INT64_MAX;
}

}  // namespace

Result<BatchRequests> BatchRequests::open(const std::string& path, const BatchRules& rules) {
  HR_ASSIGN_OR_RETURN(auto file, MappedFile::open(path));
  BatchRequests requests(file);
  const std::string_view text = text_of(*file);
  size_t held = 0;  // the beginning of what may still be in memory
  for (size_t number = 1, at = 0; at < text.size(); ++number) {
    const auto line = next_line(*file, text.substr(at), rules.line_bytes_max);
    const Status status =
        line ? requests.add(*line, rules)
             : invalid_argument(fmt::format("has more than {} bytes", rules.line_bytes_max));
    if (!status.ok()) {
      return invalid_argument(fmt::format("{}: line {}: {}", path, number, status.message()),
                              fmt::format("line {}", number));
    }
    at += line->size() + 1;
    if (at - held < kPieceBytes) continue;
    let_go(*file, text.substr(held, at - held));
    held = at;
  }
  if (requests.size() == 0) return invalid_argument(path + ": holds no requests");
  return requests;
}

Status BatchRequests::add(std::string_view line, const BatchRules& rules) {
  if (is_blank(line)) return ok_status();
  if (requests_.size() == rules.requests_max) {
    return invalid_argument(fmt::format("there are more than {} requests", rules.requests_max));
  }
  HR_ASSIGN_OR_RETURN(const Json json, parse_json(line, rules.json));
  if (!json.is_object()) return invalid_argument("must be a JSON object");
  HR_ASSIGN_OR_RETURN(std::string id, text_member(json, "custom_id"));
  if (id.empty() || id.size() > kCustomIdBytesMax) {
    return invalid_argument(fmt::format("custom_id must have 1 to {} bytes", kCustomIdBytesMax));
  }
  HR_RETURN_IF_ERROR(check_method(json));
  HR_ASSIGN_OR_RETURN(const std::string_view url, url_of(json, rules));
  HR_RETURN_IF_ERROR(check_body(json));
  if (!places_.emplace(id, requests_.size()).second) {
    return invalid_argument("custom_id is the same as an earlier line's");
  }
  requests_.push_back({std::move(id), line, url, declared_tokens(*json.find("body"))});
  return ok_status();
}

int64_t BatchRequests::find(const std::string& custom_id) const {
  const auto found = places_.find(custom_id);
  return found == places_.end() ? -1 : static_cast<int64_t>(found->second);
}

Result<BatchJournal> BatchJournal::open(const std::string& path, const BatchRequests& requests) {
  const int file = open_private_file(path, O_APPEND);
  if (file < 0) return disk_error(path, "cannot be written");
  BatchJournal journal(path, file, requests.size());
  if (::flock(file, LOCK_EX | LOCK_NB) != 0) {
    return unavailable(path + ": another job is writing it");
  }
  HR_RETURN_IF_ERROR(journal.read_back(requests));
  return journal;
}

BatchJournal::BatchJournal(BatchJournal&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      done_(std::move(other.done_)),
      done_count_(other.done_count_),
      refused_count_(other.refused_count_) {}

BatchJournal::~BatchJournal() {
  if (file_ >= 0) ::close(file_);
}

Status BatchJournal::read_back(const BatchRequests& requests) {
  size_t whole = 0;  // bytes of whole lines
  {
    HR_ASSIGN_OR_RETURN(const auto mapped, MappedFile::open(path_));
    const std::string_view text = text_of(*mapped);
    for (size_t number = 1; whole < text.size(); ++number) {
      const size_t end = text.find('\n', whole);
      if (end == std::string_view::npos) break;  // cut off while it was written
      HR_RETURN_IF_ERROR(mark_done(text.substr(whole, end - whole), number, requests));
      whole = end + 1;
    }
    if (whole == text.size()) return ok_status();
    // A kill leaves the beginning of a line of ours; anything else is somebody's text.
    constexpr std::string_view kStart = R"({"id":"batch_req_)";
    const std::string_view cut = text.substr(whole);
    if (!cut.starts_with(kStart.substr(0, std::min(cut.size(), kStart.size())))) {
      return invalid_argument(path_ + ": does not end as a file of answers: name another file");
    }
  }
  if (::ftruncate(file_, static_cast<off_t>(whole)) != 0) {
    return disk_error(path_, "cannot be cut to whole lines");
  }
  return ok_status();
}

Status BatchJournal::mark_done(std::string_view line, size_t number,
                               const BatchRequests& requests) {
  const auto refuse = [&](std::string_view what) {
    return invalid_argument(fmt::format("{}: line {}: {}: name another file", path_, number, what));
  };
  const Result<Json> json = parse_json(line);
  const Json* id = json.ok() ? json->find("custom_id") : nullptr;
  if (id == nullptr || !id->is_string()) return refuse("is no answer of a batch job");
  const int64_t place = requests.find(id->as_string());
  if (place < 0) return refuse("answers a custom_id that is not among the requests");
  if (done_[static_cast<size_t>(place)]) return refuse("answers a custom_id a second time");
  const Json* response = json->find("response");
  const Json* status = response != nullptr ? response->find("status_code") : nullptr;
  if (status == nullptr || !status->is_int()) return refuse("has no status of an answer");
  note_done(static_cast<size_t>(place), status->as_int());
  return ok_status();
}

Status BatchJournal::append(size_t request, const BatchRequest& line, int http_status,
                            std::string_view body) {
  std::string text = fmt::format(R"({{"id":"batch_req_{}","custom_id":)", random_hex_id());
  append_json_string(text, line.custom_id);
  text += fmt::format(R"(,"response":{{"status_code":{},"request_id":"{}","body":)", http_status,
                      random_hex_id());
  text += body;
  text += "},\"error\":null}\n";
  // One call a line: a kill cuts at most the last one.
  if (!write_all(file_, text)) return disk_error(path_, "cannot be written");
  note_done(request, http_status);
  return ok_status();
}

void BatchJournal::note_done(size_t request, int64_t http_status) {
  done_[request] = true;
  ++done_count_;
  if (http_status >= 400) ++refused_count_;
}

Status BatchJournal::sync() {
  return ::fdatasync(file_) == 0 ? ok_status() : disk_error(path_, "cannot be synced");
}

}  // namespace headrace
