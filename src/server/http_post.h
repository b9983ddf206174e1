// A POST to another server, for what this one tells of itself. Blocking: for threads of their own.
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"
#include "server/http_channel.h"
#include "server/http_message.h"

namespace headrace {

// The status of the answer, whose body is not read. `seconds`: for each of connect, send and
// receive. `trust`: the authorities of a target with TLS; REQUIRES: one, if it has.
// kUnavailable where there is no answer, or the target cannot show who it is.
Result<int> post_http(const HttpTarget& target, std::span<const HttpHeader> headers,
                      std::string_view body, double seconds, const TlsTrust* trust = nullptr);

}  // namespace headrace
