#include "server/request_guard.h"

#include <utility>  // before asio: Boost 1.74 forgets it

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <cctype>

#include <fmt/format.h>

#include "base/json.h"
#include "server/error_response.h"
#include "server/header_text.h"

namespace headrace {
namespace {

constexpr size_t kShownBytesMax = 100;  // of what a client sent, in a message

std::string_view shown(std::string_view text) { return text.substr(0, kShownBytesMax); }

std::optional<boost::asio::ip::address> address_of(std::string_view text) {
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(std::string(text), error);
  return error ? std::nullopt : std::optional(address);
}

// "name:port", "name", "[address]:port" -> the name or the address, in lower case and without the
// root's dot.
std::string host_name(std::string_view host) {
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    return to_lower(host.substr(1, end == host.npos ? host.npos : end - 1));
  }
  std::string name = to_lower(host.substr(0, host.find(':')));
  if (name.ends_with('.')) name.pop_back();
  return name;
}

// Browsers take every name under localhost for this machine and ask no resolver (RFC 6761).
bool is_localhost(std::string_view name) {
  return name == "localhost" || name.ends_with(".localhost");
}

// The part of an origin behind "http://" or "https://"; "null" is what a page without an origin of
// its own sends. Nothing: it is no web page but a program that names its own scheme.
std::optional<std::string_view> web_authority(std::string_view origin) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (origin.starts_with(scheme)) return origin.substr(scheme.size());
  }
  return origin == "null" ? std::optional<std::string_view>("") : std::nullopt;
}

// Every browser of today says one of the first two about a form that a page sends; a program says
// none.
bool came_from_a_page(const HttpRequest& request) {
  constexpr std::string_view kSaidByBrowsers[] = {"origin", "sec-fetch-site", "referer"};
  return std::any_of(std::begin(kSaidByBrowsers), std::end(kSaidByBrowsers),
                     [&](std::string_view name) { return !request.header(name).empty(); });
}

bool changes_nothing(std::string_view method) {
  return method == "GET" || method == "HEAD" || method == "OPTIONS";
}

}  // namespace

bool is_loopback_host(std::string_view host) {
  const auto address = address_of(host);
  return address ? address->is_loopback() : is_localhost(host_name(host));
}

RequestGuard::RequestGuard(std::string_view listens_on, std::vector<std::string> allowed_hosts)
    : checks_host_(!allowed_hosts.empty() || is_loopback_host(listens_on)) {
  for (const std::string& host : allowed_hosts) {
    if (host == "*") checks_host_ = false;
    allowed_hosts_.push_back(host_name(host));
  }
}

// An address cannot be rebound: a page that was loaded from it is the server's own.
bool RequestGuard::is_ours(std::string_view host) const {
  const std::string name = host_name(host);
  return name.empty() || is_localhost(name) || address_of(name) ||
         std::find(allowed_hosts_.begin(), allowed_hosts_.end(), name) != allowed_hosts_.end();
}

std::optional<HttpResponse> RequestGuard::refuse(
    const HttpRequest& request, std::span<const std::string> allowed_origins) const {
  const std::string_view host = request.header("host");
  if (checks_host_ && !is_ours(host)) {
    return error_response(
        403, fmt::format("this server does not answer to the Host \"{}\": start it with "
                         "--allowed-hosts and that name if it is the server's",
                         shown(host)));
  }
  const std::string_view origin = request.header("origin");
  const auto authority = web_authority(origin);
  if (!authority || changes_nothing(request.method) || to_lower(*authority) == to_lower(host)) {
    return std::nullopt;
  }
  const bool allowed =
      std::any_of(allowed_origins.begin(), allowed_origins.end(),
                  [&](const std::string& one) { return one == "*" || one == origin; });
  if (allowed) return std::nullopt;
  return error_response(403, fmt::format("a web page of \"{}\" may not call this server: start it "
                                         "with --allowed-origins and that origin to allow it",
                                         shown(origin)));
}

std::optional<HttpResponse> refuse_content_type(const HttpRequest& request) {
  const std::string_view header = request.header("content-type");
  std::string type = to_lower(header.substr(0, header.find(';')));
  type.erase(0, type.find_first_not_of(" \t"));
  type.erase(type.find_last_not_of(" \t") + 1);
  const bool is_json =
      type == "application/json" || (type.starts_with("application/") && type.ends_with("+json"));
  if (header.empty() || is_json || !came_from_a_page(request)) return std::nullopt;
  return error_response(
      415, fmt::format("the body's Content-Type is \"{}\", but this route takes JSON: send the "
                       "header \"Content-Type: application/json\"",
                       shown(header)));
}

std::optional<HttpResponse> refuse_content_encoding(const HttpRequest& request) {
  const std::string_view header = request.header("content-encoding");
  if (header.empty() || to_lower(trim(header)) == "identity") return std::nullopt;
  return error_response(415, fmt::format("the body's Content-Encoding is \"{}\", but bodies are "
                                         "read as they are: send it without compression",
                                         shown(header)));
}

Result<std::vector<std::string>> parse_origins(const std::string& text) {
  if (text.empty()) return std::vector<std::string>();
  if (!text.starts_with('[')) return std::vector<std::string>{text};
  const Result<Json> json = parse_json(text);
  if (!json.ok()) return json.status().with_context("--allowed-origins");
  std::vector<std::string> origins;
  for (const Json& origin : json->as_array()) {
    if (!origin.is_string()) return invalid_argument("--allowed-origins must hold texts only");
    origins.push_back(origin.as_string());
  }
  return origins;
}

}  // namespace headrace
