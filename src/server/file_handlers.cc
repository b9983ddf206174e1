// /v1/files: what batches read and write. The disk is waited for on the batch service's thread;
// what a client downloads is read in pieces as it takes them.
#include <algorithm>
#include <charconv>
#include <fstream>
#include <utility>

#include <fmt/format.h>

#include "server/batch_service.h"
#include "server/error_response.h"
#include "server/handlers.h"
#include "server/multipart.h"
#include "server/query.h"
#include "server/stored_json.h"

namespace headrace {
namespace {

constexpr size_t kFilenameBytesMax = 256;
constexpr size_t kPieceBytes = 64 << 10;
constexpr int64_t kFilesListed = 10'000;

// `expires_after[anchor]` and `expires_after[seconds]`; 0: the form has none.
Result<int64_t> expiry_of(const std::vector<FormPart>& form) {
  const FormPart* anchor = find_part(form, "expires_after[anchor]");
  const FormPart* seconds = find_part(form, "expires_after[seconds]");
  if (!anchor && !seconds) return int64_t{0};
  Json json = Json::object();
  if (anchor) json.set("anchor", anchor->content);
  int64_t value = 0;
  if (seconds) {
    const std::string_view text = seconds->content;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) json.set("seconds", value);
  }
  return read_expires_after("expires_after", json);
}

Result<StoredFile> read_upload(const std::vector<FormPart>& form) {
  const FormPart* purpose = find_part(form, "purpose");
  const FormPart* content = find_part(form, "file");
  if (!purpose || purpose->content != "batch") {
    return invalid_argument("purpose must be batch: files are kept for batches only", "purpose");
  }
  if (!content) return invalid_argument("file is missing", "file");
  if (content->content.empty()) return invalid_argument("file is empty", "file");
  StoredFile file;
  file.filename = content->filename.empty() ? "file" : content->filename;
  if (!is_label(file.filename, kFilenameBytesMax)) {
    return invalid_argument(
        fmt::format("the file's name must have 1 to {} bytes of UTF-8", kFilenameBytesMax), "file");
  }
  file.purpose = purpose->content;
  file.created_unix_s = unix_seconds();
  HR_ASSIGN_OR_RETURN(const int64_t seconds, expiry_of(form));
  if (seconds > 0) file.expires_unix_s = file.created_unix_s + seconds;
  return file;
}

// On the disk's thread.
HttpResponse upload(BatchService& batches, const std::string& owner, const HttpRequest& request) {
  const auto form = parse_form(request.header("content-type"), request.body);
  if (!form.ok()) return error_response(form.status());
  Result<StoredFile> file = read_upload(*form);
  if (!file.ok()) return error_response(file.status());
  file->owner = owner;
  const auto stored = batches.files().upload(std::move(*file), find_part(*form, "file")->content);
  return stored.ok() ? json_response(file_json(*stored)) : storage_error(stored.status());
}

std::optional<StoredFile> find_file(RouteCall& call) {
  return call.state.batches->files().find(call.caller.owner(call.state.keys), call.parameter);
}

void respond_no_file(RouteCall& call) {
  call.exchange->respond(error_response(404, "there is no file of that id", "file_id"));
}

Result<FileQuery> read_query(const HttpRequest& request) {
  FileQuery query;
  HR_ASSIGN_OR_RETURN(const int64_t limit,
                      query_integer(request.query, "limit", kFilesListed, 1, kFilesListed));
  query.limit = static_cast<size_t>(limit);
  query.after = query_value(request.query, "after").value_or("");
  query.purpose = query_value(request.query, "purpose").value_or("");
  const std::string order = query_value(request.query, "order").value_or("desc");
  if (order != "asc" && order != "desc") {
    return invalid_argument("order must be asc or desc", "order");
  }
  query.oldest_first = order == "asc";
  return query;
}

// Sends a file as fast as its reader takes it. On the exchange's strand; the connection keeps it.
class FileDownload final : public ExchangeObserver {
 public:
  FileDownload(std::ifstream file, std::shared_ptr<Exchange> exchange)
      : file_(std::move(file)), exchange_(std::move(exchange)) {}

  void on_writable() override { send(); }
  void on_peer_gone() override { done_ = true; }

  void send() {
    std::string piece;
    while (!done_ && !exchange_->over_unsent_limit()) {
      piece.resize(kPieceBytes);
      file_.read(piece.data(), static_cast<std::streamsize>(piece.size()));
      piece.resize(static_cast<size_t>(file_.gcount()));
      if (!file_) {  // its end, or what cannot be read: then it is shorter than its head has told
        done_ = true;
        exchange_->end_stream(piece);  // may destroy this: nothing below
        return;
      }
      exchange_->write(piece);
    }
  }

 private:
  std::ifstream file_;
  const std::shared_ptr<Exchange> exchange_;  // lets go of this at its end
  bool done_ = false;
};

}  // namespace

void handle_upload_file(RouteCall& call) {
  if (!has_storage(call)) return;
  auto request = std::make_shared<HttpRequest>(std::move(call.request));
  run_on_disk(call,
              [batches = call.state.batches, request, owner = call.caller.owner(call.state.keys)] {
                return upload(*batches, owner, *request);
              });
}

void handle_files(RouteCall& call) {
  if (!has_storage(call)) return;
  const Result<FileQuery> query = read_query(call.request);
  if (!query.ok()) return call.exchange->respond(error_response(query.status()));
  const auto page = call.state.batches->files().list(call.caller.owner(call.state.keys), *query);
  if (!page.ok()) return call.exchange->respond(error_response(page.status()));
  Json data = Json::array();
  for (const StoredFile& file : page->files) data.push(file_json(file));
  respond_json(call, list_json(std::move(data), page->has_more));
}

void handle_file(RouteCall& call) {
  if (!has_storage(call)) return;
  const auto file = find_file(call);
  file ? respond_json(call, file_json(*file)) : respond_no_file(call);
}

void handle_file_content(RouteCall& call) {
  if (!has_storage(call)) return;
  const auto file = find_file(call);
  if (!file) return respond_no_file(call);
  std::ifstream content(call.state.batches->files().content_path(file->id), std::ios::binary);
  if (!content) return respond_no_file(call);
  HttpResponse head;
  head.content_type = "application/octet-stream";
  head.stream_bytes = static_cast<uint64_t>(file->bytes);
  auto download = std::make_shared<FileDownload>(std::move(content), call.exchange);
  call.exchange->observe(download);
  call.exchange->begin_stream(std::move(head));
  if (call.request.method == "HEAD") return call.exchange->end_stream("");
  download->send();
}

void handle_delete_file(RouteCall& call) {
  if (!has_storage(call)) return;
  run_on_disk(call, [batches = call.state.batches, id = call.parameter,
                     owner = call.caller.owner(call.state.keys)] {
    const Status status = batches->files().remove(owner, id);
    if (!status.ok()) return error_response(status);
    Json json = Json::object();
    json.set("id", id).set("object", "file").set("deleted", true);
    return json_response(json);
  });
}

}  // namespace headrace
