// One request through an Engine, read by the thread that started it: the engine's emissions, in
// order, without callbacks.
#pragma once

#include <memory>
#include <optional>

#include "base/status.h"
#include "engine/engine.h"
#include "sched/request.h"

namespace headrace {

// next() on one thread; cancel() on any.
class RequestReader {
 public:
  // Fills in the request's id. Errors are Engine::submit()'s. `engine` must outlive this.
  static Result<std::unique_ptr<RequestReader>> submit(Engine& engine, Request request);
  ~RequestReader();  // cancels what still runs

  // Waits for the next emission. Empty after the last one.
  std::optional<Emission> next();
  // Ends the request; next() then gives what is left, with FinishReason::kAbort.
  void cancel() { engine_.cancel(id_); }

 private:
  struct Mailbox;
  RequestReader(Engine& engine, RequestId id);

  Engine& engine_;
  const RequestId id_;
  std::shared_ptr<Mailbox> mailbox_;
};

}  // namespace headrace
