// /v1/uploads, as OpenAI's API has it: a file that comes in parts.
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "server/batch_service.h"
#include "server/error_response.h"
#include "server/handlers.h"
#include "server/multipart.h"
#include "server/request_fields.h"
#include "server/stored_json.h"

namespace headrace {
namespace {

constexpr double kUploadBytesMax = 200 << 20;  // as a file of /v1/files
constexpr size_t kLabelBytesMax = 256;

Result<std::string> label_of(const Json& body, const char* name) {
  const Json* value = body.find(name);
  if (value && value->is_string() && is_label(value->as_string(), kLabelBytesMax)) {
    return value->as_string();
  }
  return field_error(name, fmt::format("1 to {} bytes of UTF-8", kLabelBytesMax),
                     value ? *value : Json());
}

Result<Upload> read_new_upload(const Json& body, std::string owner) {
  Upload upload;
  upload.file.owner = std::move(owner);
  HR_ASSIGN_OR_RETURN(upload.file.filename, label_of(body, "filename"));
  HR_RETURN_IF_ERROR(label_of(body, "mime_type").status());
  HR_ASSIGN_OR_RETURN(upload.file.purpose, label_of(body, "purpose"));
  if (upload.file.purpose != "batch") {
    return invalid_argument("purpose must be batch: files are kept for batches only", "purpose");
  }
  const Json* bytes = body.find("bytes");
  const bool good = bytes && bytes->is_int() && bytes->as_int() >= 1 &&
                    static_cast<double>(bytes->as_int()) <= kUploadBytesMax;
  if (!good) {
    return field_error("bytes", fmt::format("an integer in [1, {}]", kUploadBytesMax),
                       bytes ? *bytes : Json());
  }
  upload.file.bytes = bytes->as_int();
  if (const Json* expiry = body.find("expires_after"); expiry && !expiry->is_null()) {
    HR_ASSIGN_OR_RETURN(upload.file_seconds, read_expires_after("expires_after", *expiry));
  }
  return upload;
}

Json upload_json(const Upload& upload, std::string_view status) {
  Json json = Json::object();
  json.set("id", upload.id).set("object", "upload").set("bytes", upload.file.bytes);
  json.set("created_at", upload.file.created_unix_s).set("expires_at", upload.expires_unix_s);
  json.set("filename", upload.file.filename).set("purpose", upload.file.purpose);
  return json.set("status", status).set("file", Json());
}

Json part_json(const UploadPart& part) {
  Json json = Json::object().set("id", part.id).set("object", "upload.part");
  return json.set("created_at", part.created_unix_s).set("upload_id", part.upload_id);
}

// What the last request of an upload says.
struct Completion {
  std::vector<std::string> part_ids;
  std::string md5;
};

Result<Completion> read_completion(const Json& body) {
  Completion completion;
  const Json* ids = body.find("part_ids");
  const auto wrong = [&] {
    return field_error("part_ids", "a list of ids of parts", ids ? *ids : Json());
  };
  if (!ids || !ids->is_array() || ids->as_array().empty()) return wrong();
  for (const Json& id : ids->as_array()) {
    if (!id.is_string()) return wrong();
    completion.part_ids.push_back(id.as_string());
  }
  const Json* md5 = body.find("md5");
  if (!md5 || md5->is_null()) return completion;
  constexpr size_t kDigits = 32;
  if (!md5->is_string() || md5->as_string().size() != kDigits) {
    return field_error("md5", "32 hexadecimal digits", *md5);
  }
  completion.md5 = md5->as_string();
  return completion;
}

// The rest of a path, or of a form, ends with the call: work on the disk owns what it needs.
struct DiskCall {
  BatchService* batches;
  std::string owner, id;
};
DiskCall disk_call(RouteCall& call) {
  return {call.state.batches, call.caller.owner(call.state.keys), call.parameter};
}

HttpResponse add_part(const DiskCall& call, const HttpRequest& request) {
  const auto form = parse_form(request.header("content-type"), request.body);
  if (!form.ok()) return error_response(form.status());
  const FormPart* data = find_part(*form, "data");
  if (!data) return error_response(invalid_argument("data is missing", "data"));
  const auto part = call.batches->uploads().add_part(call.owner, call.id, data->content);
  return part.ok() ? json_response(part_json(*part)) : storage_error(part.status());
}

HttpResponse complete(const DiskCall& call, const Completion& completion) {
  UploadStore& uploads = call.batches->uploads();
  const auto upload = uploads.find(call.owner, call.id);
  if (!upload.ok()) return error_response(upload.status());
  const auto file = uploads.complete(call.owner, call.id, completion.part_ids, completion.md5);
  if (!file.ok()) return storage_error(file.status());
  return json_response(upload_json(*upload, "completed").set("file", file_json(*file)));
}

}  // namespace

void handle_create_upload(RouteCall& call) {
  if (!has_storage(call)) return;
  Result<Upload> upload = read_new_upload(call.body, call.caller.owner(call.state.keys));
  if (!upload.ok()) return call.exchange->respond(error_response(upload.status()));
  run_on_disk(call, [batches = call.state.batches, upload = std::move(*upload)] {
    const auto created = batches->uploads().create(upload);
    return created.ok() ? json_response(upload_json(*created, "pending"))
                        : storage_error(created.status());
  });
}

void handle_upload_part(RouteCall& call) {
  if (!has_storage(call)) return;
  auto request = std::make_shared<HttpRequest>(std::move(call.request));
  run_on_disk(call, [disk = disk_call(call), request] { return add_part(disk, *request); });
}

void handle_complete_upload(RouteCall& call) {
  if (!has_storage(call)) return;
  Result<Completion> completion = read_completion(call.body);
  if (!completion.ok()) return call.exchange->respond(error_response(completion.status()));
  run_on_disk(call, [disk = disk_call(call), completion = std::move(*completion)] {
    return complete(disk, completion);
  });
}

void handle_cancel_upload(RouteCall& call) {
  if (!has_storage(call)) return;
  run_on_disk(call, [disk = disk_call(call)] {
    const auto upload = disk.batches->uploads().cancel(disk.owner, disk.id);
    return upload.ok() ? json_response(upload_json(*upload, "cancelled"))
                       : error_response(upload.status());
  });
}

}  // namespace headrace
