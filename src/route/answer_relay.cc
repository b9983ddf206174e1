#include "route/answer_relay.h"

#include <utility>

#include "server/header_text.h"
#include "server/sse.h"

namespace headrace {
namespace {

// What the router's own edge says of every answer, or what was said to the router.
bool is_edge_header(std::string_view name) {
  return name == "x-request-id" || name == "request-id" || name == "server" ||
         name.starts_with("access-control-");
}

}  // namespace

HttpResponse response_of(const WorkerAnswer& answer, std::string body) {
  HttpResponse response;
  response.status = answer.status();
  response.content_type = answer.content_type();
  for (const HttpHeader& header : answer.headers()) {
    if (!is_edge_header(to_lower(header.name))) response.headers.push_back(header);
  }
  response.body = std::move(body);
  return response;
}

void AnswerRelay::respond(HttpResponse response) {
  begun_ = true;
  exchange_->respond(std::move(response));
}

void AnswerRelay::begin(const WorkerAnswer& answer) {
  if (std::exchange(begun_, true)) return;
  exchange_->begin_stream(response_of(answer, ""));
}

void AnswerRelay::fail(int status, const std::string& message, std::string_view event,
                       StreamFraming framing) {
  if (!begun_) return respond(error_response(status, message));
  std::string last(event);
  const Json error = error_json(form_, status, message);
  if (last.empty() && framing == StreamFraming::kLines) last = write_json(error) + "\n";
  if (last.empty() && form_ == ErrorForm::kAnthropic) {
    append_named_sse_event(last, error);
  } else if (last.empty()) {
    append_sse_event(last, error);
  }
  exchange_->end_stream(last);
}

}  // namespace headrace
