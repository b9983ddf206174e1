#include "route/worker_ask.h"

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>

#include "route/worker_answer.h"
#include "route/worker_connection.h"

namespace headrace {
namespace {

constexpr size_t kReplyBytesMax = 4 << 20;

// On its own strand; the callbacks keep it alive.
class Ask : public std::enable_shared_from_this<Ask> {
 public:
  using OnReply = std::function<void(std::shared_ptr<const WorkerReply>)>;

  Ask(boost::asio::io_context& io, WorkerQuestion question, OnReply on_reply)
      : question_(std::move(question)),
        on_reply_(std::move(on_reply)),
        strand_(boost::asio::make_strand(io)),
        timer_(strand_),
        connection_(std::make_shared<WorkerConnection>(io)) {}

  void start() {
    timer_.expires_after(
        std::chrono::milliseconds(static_cast<int64_t>(question_.seconds_max * 1e3)));
    timer_.async_wait([self = shared_from_this()](boost::system::error_code error) {
      if (!error) self->finish(unavailable("no answer in time"));
    });
    connection_->connect(*question_.target, [self = shared_from_this()](auto error) {
      self->on_strand([self, error] { self->on_connected(error); });
    });
  }

 private:
  template <class Task>
  void on_strand(Task task) {
    boost::asio::dispatch(strand_, [self = shared_from_this(), task = std::move(task)] {
      if (self->on_reply_) task();
    });
  }

  void on_connected(boost::system::error_code error) {
    if (error) return finish(unavailable(error.message()));
    std::string head = http_request_text(question_.method, *question_.target, question_.path,
                                         question_.headers, question_.body);
    connection_->write(std::move(head), nullptr, [self = shared_from_this()](auto failed) {
      self->on_strand([self, failed] {
        if (failed) return self->finish(unavailable(failed.message()));
        self->read();
      });
    });
  }

  void read() {
    connection_->read([self = shared_from_this()](auto error, std::string_view bytes) {
      self->on_strand([self, error, bytes] { self->on_read(error, bytes); });
    });
  }

  void on_read(boost::system::error_code error, std::string_view bytes) {
    const Status status = error ? answer_.end() : answer_.feed(bytes);
    if (!status.ok()) return finish(status);
    if (answer_.complete()) return finish(ok_status());
    if (answer_.body().size() > kReplyBytesMax) return finish(corrupt("its answer is too long"));
    read();
  }

  void finish(Status status) {
    if (!on_reply_) return;
    const auto reply = std::make_shared<WorkerReply>();
    reply->status = std::move(status);
    reply->http_status = answer_.status();
    reply->content_type = answer_.content_type();
    reply->headers = answer_.headers();
    reply->body = std::move(answer_.body());
    timer_.cancel();
    connection_->close();
    const OnReply on_reply = std::exchange(on_reply_, nullptr);
    on_reply(reply);
  }

  const WorkerQuestion question_;
  OnReply on_reply_;
  boost::asio::strand<boost::asio::io_context::executor_type> strand_;
  boost::asio::steady_timer timer_;
  std::shared_ptr<WorkerConnection> connection_;
  WorkerAnswer answer_;
};

}  // namespace

void ask_worker(boost::asio::io_context& io, WorkerQuestion question,
                std::function<void(std::shared_ptr<const WorkerReply>)> on_reply) {
  std::make_shared<Ask>(io, std::move(question), std::move(on_reply))->start();
}

}  // namespace headrace
