// Asks a worker something small, beside the requests that pass: one answer on a connection of its
// own.
#pragma once

#include <utility>  // before asio: Boost 1.74 forgets it

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/http_channel.h"

namespace headrace {

struct WorkerReply {
  Status status;        // kUnavailable: nobody answers, or not in time; kCorrupt: no HTTP
  int http_status = 0;  // of an answer
  std::string content_type;
  std::vector<HttpHeader> headers;  // as WorkerAnswer's
  std::string body;
};

struct WorkerQuestion {
  std::shared_ptr<const HttpTarget> target;
  std::string method = "GET";
  std::string path;
  std::vector<HttpHeader> headers;
  std::string body;
  double seconds_max = 5;  // in which all of the answer must come
};

// `on_reply` is called once, on some thread of `io`.
void ask_worker(boost::asio::io_context& io, WorkerQuestion question,
                std::function<void(std::shared_ptr<const WorkerReply>)> on_reply);

}  // namespace headrace
