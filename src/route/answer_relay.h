// The client's side of a proxied request: hands on a worker's answer, whole or as it comes, and
// ends it with an error where nobody can.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "route/request_facts.h"
#include "route/worker_answer.h"
#include "server/error_response.h"
#include "server/exchange.h"

namespace headrace {

// The answer as the client gets it, but for what the router's own edge says.
HttpResponse response_of(const WorkerAnswer& answer, std::string body);

// All on the exchange's strand.
class AnswerRelay {
 public:
  AnswerRelay(std::shared_ptr<Exchange> exchange, ErrorForm form)
      : exchange_(std::move(exchange)), form_(form) {}

  bool begun() const { return begun_; }
  void respond(HttpResponse response);

  // Begins the answer with the head of the worker's, if it has not begun.
  void begin(const WorkerAnswer& answer);
  void write(std::string_view bytes) { exchange_->write(bytes); }
  // With the last of it, if any is left.
  void end(std::string_view last) { exchange_->end_stream(last); }
  // An answer that cannot go on: as a response, or as the last event of a stream, `event` if there
  // is one.
  void fail(int status, const std::string& message, std::string_view event, StreamFraming framing);

 private:
  const std::shared_ptr<Exchange> exchange_;
  const ErrorForm form_;
  bool begun_ = false;
};

}  // namespace headrace
