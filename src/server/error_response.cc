#include "server/error_response.h"

#include <cmath>

#include <fmt/format.h>

namespace headrace {

std::string_view error_type(int http_status) {
  switch (http_status) {
    case 400:
      return "BadRequestError";
    case 401:
      return "AuthenticationError";
    case 403:
      return "PermissionDeniedError";
    case 404:
      return "NotFoundError";
    case 405:
      return "MethodNotAllowedError";
    case 408:
      return "RequestTimeoutError";
    case 413:
      return "PayloadTooLargeError";
    case 415:
      return "UnsupportedMediaTypeError";
    case 429:
      return "RateLimitError";
    case 431:
      return "HeadersTooLargeError";
    case 503:
      return "ServiceUnavailable";
  }
  return http_status < 500 ? "BadRequestError" : "InternalServerError";
}

namespace {

std::string_view anthropic_error_type(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
  }
  return http_status < 500 ? "invalid_request_error" : "api_error";
}

}  // namespace

int http_status_of(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnsupported:
      return 400;
    case StatusCode::kNotFound:
      return 404;
    case StatusCode::kExhausted:
      return 429;
    case StatusCode::kUnavailable:
      return 503;
    case StatusCode::kOk:
    case StatusCode::kCorrupt:
    case StatusCode::kInternal:
      return 500;
  }
  return 500;
}

Json error_json(int http_status, std::string_view message, std::string_view param) {
  Json error = Json::object();
  error.set("message", message).set("type", error_type(http_status));
  error.set("param", param.empty() ? Json() : Json(param)).set("code", http_status);
  Json json = Json::object();
  json.set("error", std::move(error));
  return json;
}

HttpResponse error_response(int http_status, std::string_view message, std::string_view param) {
  HttpResponse response;
  response.status = http_status;
  response.body = write_json(error_json(http_status, message, param));
  if (http_status == 429) response.headers.push_back({"Retry-After", "1"});
  if (http_status == 503) response.headers.push_back({"Retry-After", "5"});
  if (http_status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

HttpResponse too_many_requests(std::string_view message, double retry_seconds) {
  HttpResponse response = error_response(429, message);
  const double milliseconds = std::ceil(retry_seconds * 1e3);
  for (HttpHeader& header : response.headers) {
    if (header.name == "Retry-After")
      header.value = fmt::format("{:.0f}", std::ceil(retry_seconds));
  }
  response.headers.push_back({"retry-after-ms", fmt::format("{:.0f}", milliseconds)});
  return response;
}

HttpResponse error_response(const Status& status) {
  const int http_status = http_status_of(status.code());
  const bool internal = http_status == 500;  // what went wrong inside is not the client's to read
  return error_response(http_status, internal ? "internal error" : status.message(),
                        status.field());
}

HttpResponse bad_request_response(const Status& status) {
  if (status.code() != StatusCode::kExhausted) return error_response(status);
  return error_response(400, status.message(), status.field());
}

ErrorForm error_form_of(std::string_view path) {
  if (path.starts_with("/api/")) return ErrorForm::kOllama;
  if (path == "/v1/messages" || path.starts_with("/v1/messages/")) return ErrorForm::kAnthropic;
  return path == "/" || path == "/generate_stream" ? ErrorForm::kTgi : ErrorForm::kOpenAi;
}

namespace {

std::string_view tgi_error_type(int http_status) {
  if (http_status == 429 || http_status == 503) return "overloaded";
  return http_status < 500 ? "validation" : "generation";
}

}  // namespace

Json error_json(ErrorForm form, int http_status, std::string_view message) {
  if (form == ErrorForm::kOpenAi) return error_json(http_status, message);
  if (form == ErrorForm::kAnthropic) {
    Json error = Json::object().set("type", anthropic_error_type(http_status));
    error.set("message", message);
    return Json::object().set("type", "error").set("error", std::move(error));
  }
  Json json = Json::object().set("error", message);
  if (form == ErrorForm::kTgi) json.set("error_type", tgi_error_type(http_status));
  return json;
}

namespace {

// By which Anthropic's clients know that they are to go on without: they send all messages then.
void tell_of_thread(const Json* param, Json& json) {
  if (param == nullptr || *param != Json("thread")) return;
  Json details = Json::object().set("error_code", "thread_unsupported_request");
  details.set("unsupported", Json(Json::Array{Json("thread")}));
  Json error = *json.find("error");
  json.set("error", error.set("details", std::move(details)));
}

}  // namespace

void put_in_form(ErrorForm form, HttpResponse& response) {
  if (response.status < 400 || form == ErrorForm::kOpenAi) return;
  const Result<Json> body = parse_json(response.body);
  const Json* error = body.ok() ? body->find("error") : nullptr;
  const Json* message = error ? error->find("message") : nullptr;
  if (!message || !message->is_string()) return;
  Json json = error_json(form, response.status, message->as_string());
  if (form == ErrorForm::kAnthropic) tell_of_thread(error->find("param"), json);
  response.body = write_json(json);
}

}  // namespace headrace
