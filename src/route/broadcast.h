// A request that changes workers (their caches, adapters, models) goes to each that is up, one
// after the other; the answer is the first that is no success, else the last.
#pragma once

#include <utility>  // before asio: Boost 1.74 forgets it

#include <boost/asio/io_context.hpp>
#include <memory>

#include "route/route_context.h"
#include "server/exchange.h"

namespace headrace {

void broadcast_request(boost::asio::io_context& io, RouteContext& context, HttpRequest request,
                       std::shared_ptr<Exchange> exchange);

}  // namespace headrace
