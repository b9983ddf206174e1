// What is told of every request: an id on its answer, and a line in the log when it has ended.
#pragma once

#include <memory>
#include <string>

#include "server/exchange.h"
#include "server/http_message.h"

namespace headrace {

// The client's X-Request-Id where it can be echoed, else one made here.
std::string request_id_of(const HttpRequest& request, size_t bytes_max);

enum class AccessLog : bool { kOff, kOn };

// `request` has its id. Hands on to `exchange`, adds X-Request-Id (to those of Anthropic's routes
// also request-id) to the answer and, where `log` says so, writes
//   POST /v1/completions 200 12.3 ms 456 bytes id=...
// when the answer has ended; 499 for a peer that left before. The query, where secrets may be, is
// left out, and so is every word of prompts and answers.
std::shared_ptr<Exchange> identified_exchange(std::shared_ptr<Exchange> exchange,
                                              const HttpRequest& request, AccessLog log);

// The same of a request that is answered unread, for its answer; with the id of request_id_of()
// and the path where the head could be read.
HttpResponse identified_refusal(HttpResponse response, AccessLog log, std::string id = "",
                                std::string_view path = "");

}  // namespace headrace
