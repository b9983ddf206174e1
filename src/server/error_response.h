// Errors as clients of the OpenAI API read them: {"error": {message, type, param, code}}. Messages
// come from a closed set: field names and numbers, never prompt text, paths or addresses.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "server/http_message.h"

namespace headrace {

// "BadRequestError" for 400, and so on.
std::string_view error_type(int http_status);
int http_status_of(StatusCode code);

Json error_json(int http_status, std::string_view message, std::string_view param = {});
HttpResponse error_response(int http_status, std::string_view message, std::string_view param = {});
// 429 that tells when to come again: Retry-After in whole seconds, rounded up, and retry-after-ms,
// which OpenAI's clients prefer.
HttpResponse too_many_requests(std::string_view message, double retry_seconds);
// kExhausted becomes 429 with Retry-After, kUnavailable 503, kInvalidArgument 400, ...
HttpResponse error_response(const Status& status);
// The same of what a request's own content made of it: a bound that it hits (of its template, of a
// pattern's matches) is hit again however often it comes, so kExhausted is 400.
HttpResponse bad_request_response(const Status& status);

// How the families of routes word an error: OpenAI's as above, Ollama's as {"error": message}, text
// generation inference's as {"error": message, "error_type": "validation"}, Anthropic's as
// {"type": "error", "error": {type, message}}.
enum class ErrorForm : uint8_t { kOpenAi, kOllama, kTgi, kAnthropic };
ErrorForm error_form_of(std::string_view path);
Json error_json(ErrorForm form, int http_status, std::string_view message);
// An error of error_response() in the words of `form`; any other answer stays as it is.
void put_in_form(ErrorForm form, HttpResponse& response);

}  // namespace headrace
