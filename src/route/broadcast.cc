#include "route/broadcast.h"

#include <optional>
#include <string>
#include <vector>

#include "route/worker_ask.h"
#include "server/error_response.h"
#include "server/header_text.h"

namespace headrace {
namespace {

constexpr double kBroadcastSeconds = 300;  // a model may be loaded

class Broadcast : public std::enable_shared_from_this<Broadcast> {
 public:
  Broadcast(boost::asio::io_context& io, RouteContext& context, HttpRequest request,
            std::shared_ptr<Exchange> exchange)
      : io_(io), context_(context), request_(std::move(request)), exchange_(std::move(exchange)) {}

  void ask_next() {
    auto lease = context_.table.choose_next(asked_);
    if (!lease) return respond();
    asked_.push_back(lease->id());
    WorkerQuestion question;
    question.target = std::make_shared<const HttpTarget>(lease->target());
    question.method = request_.method;
    question.path = request_.path + (request_.query.empty() ? "" : "?" + request_.query);
    question.body = request_.body;
    question.seconds_max = kBroadcastSeconds;
    question.headers = {{"Content-Type", "application/json"},
                        {std::string(kRouterHeader), context_.options.router_id},
                        {"X-Request-Id", request_.id}};
    const std::string& key = context_.options.worker_key;
    if (!key.empty()) question.headers.push_back({"Authorization", "Bearer " + key});
    for (const std::string_view name : {"authorization", "x-api-key"}) {
      const std::string_view theirs = request_.header(name);
      if (key.empty() && !theirs.empty()) {
        question.headers.push_back({std::string(name), std::string(theirs)});
      }
    }
    ask_worker(io_, std::move(question),
               [self = shared_from_this()](std::shared_ptr<const WorkerReply> reply) {
                 self->exchange_->dispatch([self, reply] { self->on_reply(*reply); });
               });
  }

 private:
  void on_reply(const WorkerReply& reply) {
    answer_ = HttpResponse();
    answer_->status = reply.status.ok() ? reply.http_status : 503;
    if (!reply.content_type.empty()) answer_->content_type = reply.content_type;
    for (const HttpHeader& header : reply.headers) {
      if (to_lower(header.name) == "retry-after") answer_->headers.push_back(header);
    }
    answer_->body = reply.body;
    const bool success = answer_->status >= 200 && answer_->status < 300;
    if (!success) return respond();
    ask_next();
  }

  void respond() {
    if (!answer_ || (answer_->status == 503 && answer_->body.empty())) {
      return exchange_->respond(error_response(503, "a worker did not answer: send it again"));
    }
    exchange_->respond(*std::move(answer_));
  }

  boost::asio::io_context& io_;
  RouteContext& context_;
  const HttpRequest request_;
  const std::shared_ptr<Exchange> exchange_;
  std::vector<int> asked_;
  std::optional<HttpResponse> answer_;  // of the last worker that was asked
};

}  // namespace

void broadcast_request(boost::asio::io_context& io, RouteContext& context, HttpRequest request,
                       std::shared_ptr<Exchange> exchange) {
  std::make_shared<Broadcast>(io, context, std::move(request), std::move(exchange))->ask_next();
}

}  // namespace headrace
