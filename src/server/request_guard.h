// What a request must look like before anything is done for it, so that a web page that somebody
// has open cannot use a server which that machine can reach: its Host, its Origin, its
// Content-Type. Programs other than browsers meet none of it by accident.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/http_message.h"

namespace headrace {

// Any thread.
class RequestGuard {
 public:
  RequestGuard() = default;  // answers to every name

  // `listens_on`: the address. A server of loopback answers to addresses, localhost and the allowed
  // hosts: a page whose own name was rebound to 127.0.0.1 (DNS rebinding) sends that name. Any
  // other server answers to every name, unless there are allowed hosts. "*" allows every name.
  RequestGuard(std::string_view listens_on, std::vector<std::string> allowed_hosts);

  // 403 for a Host that is not this server's, and for what a page of another site would change or
  // compute. `allowed_origins`: the pages that may; "*": all. Only the head is looked at.
  std::optional<HttpResponse> refuse(const HttpRequest& request,
                                     std::span<const std::string> allowed_origins) const;

 private:
  bool is_ours(std::string_view host) const;

  bool checks_host_ = false;
  std::vector<std::string> allowed_hosts_;  // lower case, without a port
};

// 415 for a body that a browser sends as something else than JSON: a page may send text and forms
// to other sites unasked, but JSON only where the server allows it (CORS). Saying nothing is
// allowed. A request without Origin, Sec-Fetch-Site and Referer is no page's, and its type is not
// looked at: `curl -d` says that a body is a form whatever it holds, and Ollama's examples are
// written so.
std::optional<HttpResponse> refuse_content_type(const HttpRequest& request);
// 415 for a compressed body, which would be read as the text that it is not.
std::optional<HttpResponse> refuse_content_encoding(const HttpRequest& request);

// Of --allowed-origins: a JSON array of texts, or one origin; empty: none.
Result<std::vector<std::string>> parse_origins(const std::string& text);

// Whether the text is an address of this machine alone, or localhost.
bool is_loopback_host(std::string_view host);

}  // namespace headrace
