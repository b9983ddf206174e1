// A request that waits for its model to be loaded.
#pragma once

#include <functional>
#include <memory>

#include "server/exchange.h"
#include "server/model_pool.h"
#include "server/server_state.h"

namespace headrace {

// Calls `then` on the pool's thread with the model, once it is loaded; it must not block. Where
// there will be none, the exchange is answered: it cannot be loaded, or not within
// RequestLimits::model_load_seconds_max. A client that leaves is forgotten. Any thread.
void wait_for_model(ServerState& state, const std::shared_ptr<Exchange>& exchange, size_t place,
                    ModelPool::Why why, std::function<void(ModelLease)> then);

}  // namespace headrace
