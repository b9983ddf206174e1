#include "route/broadcast.h"

#include <string>
#include <vector>

#include "route/worker_ask.h"
#include "server/error_response.h"

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
                        {std::string(kRouterHeader), context_.options.router_id}};
    const std::string& key = context_.options.worker_key;
    const std::string theirs(request_.header("authorization"));
    const std::string bearer = key.empty() ? theirs : "Bearer " + key;
    if (!bearer.empty()) question.headers.push_back({"Authorization", bearer});
    ask_worker(io_, std::move(question),
               [self = shared_from_this()](std::shared_ptr<const WorkerReply> reply) {
                 self->exchange_->dispatch([self, reply] { self->on_reply(*reply); });
               });
  }

 private:
  void on_reply(const WorkerReply& reply) {
    status_ = reply.status.ok() ? reply.http_status : 503;
    body_ = reply.body;
    const bool success = status_ >= 200 && status_ < 300;
    if (!success) return respond();
    ask_next();
  }

  void respond() {
    if (status_ == 0 || (status_ == 503 && body_.empty())) {
      return exchange_->respond(error_response(503, "a worker did not answer: send it again"));
    }
    HttpResponse response;
    response.status = status_;
    response.body = std::move(body_);
    exchange_->respond(std::move(response));
  }

  boost::asio::io_context& io_;
  RouteContext& context_;
  const HttpRequest request_;
  const std::shared_ptr<Exchange> exchange_;
  std::vector<int> asked_;
  int status_ = 0;
  std::string body_;
};

}  // namespace

void broadcast_request(boost::asio::io_context& io, RouteContext& context, HttpRequest request,
                       std::shared_ptr<Exchange> exchange) {
  std::make_shared<Broadcast>(io, context, std::move(request), std::move(exchange))->ask_next();
}

}  // namespace headrace
