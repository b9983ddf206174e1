#include "server/model_wait.h"

#include <atomic>
#include <utility>

#include <fmt/format.h>

#include "server/error_response.h"

namespace headrace {
namespace {

// Whoever is first settles it: the pool on its thread, or the strand when the time is over or the
// peer has gone. The connection keeps it alive, the pool never does.
class ModelWait final : public ExchangeObserver, public std::enable_shared_from_this<ModelWait> {
 public:
  ModelWait(ServerState& state, std::shared_ptr<Exchange> exchange,
            std::function<void(ModelLease)> then)
      : state_(state), exchange_(std::move(exchange)), then_(std::move(then)) {}
  ~ModelWait() override { give_up(); }

  // On the strand.
  void start(size_t place, ModelPool::Why why) {
    const auto exchange = exchange_;  // settle() lets go of it, on another thread
    exchange->observe(shared_from_this());
    ticket_ =
        state_.models.acquire(place, why, [weak = weak_from_this()](Result<ModelLease> model) {
          if (const auto self = weak.lock()) self->settle(std::move(model));
        });
    const double seconds = state_.limits.model_load_seconds_max;
    if (seconds <= 0 || settled_) return;
    exchange->call_after(seconds, [weak = weak_from_this(), seconds] {
      const auto self = weak.lock();
      if (!self) return;
      self->settle(unavailable(fmt::format(
          "the model was not loaded within {} s: send the request again later", seconds)));
      self->give_up();
    });
  }

  void on_peer_gone() override {
    if (!settled_.exchange(true)) then_ = nullptr;
    give_up();
  }
  void on_writable() override {}

 private:
  void settle(Result<ModelLease> model) {
    if (settled_.exchange(true)) return;
    const auto then = std::exchange(then_, nullptr);
    const auto exchange = std::exchange(exchange_, nullptr);
    if (model.ok()) return then(std::move(*model));
    const Status& status = model.status();
    // What is wrong with a model, its server's owner must know, and clients may.
    exchange->respond(status.code() == StatusCode::kInternal ? error_response(500, status.message())
                                                             : error_response(status));
  }

  void give_up() { state_.models.give_up(ticket_); }

  ServerState& state_;
  std::shared_ptr<Exchange> exchange_;
  std::function<void(ModelLease)> then_;
  ModelPool::Ticket ticket_ = 0;  // the strand's
  std::atomic<bool> settled_{false};
};

}  // namespace

void wait_for_model(ServerState& state, const std::shared_ptr<Exchange>& exchange, size_t place,
                    ModelPool::Why why, std::function<void(ModelLease)> then) {
  exchange->post([&state, exchange, place, why, then = std::move(then)] {
    std::make_shared<ModelWait>(state, exchange, then)->start(place, why);
  });
}

}  // namespace headrace
