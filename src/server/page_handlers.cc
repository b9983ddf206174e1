// The web page: `/` for browsers, and its files under /page/. All of it is open, as it holds
// nothing of this server; what it asks the other routes for needs a key where they do.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "server/content_encoding.h"
#include "server/error_response.h"
#include "server/handlers.h"
#include "server/page_files.h"

namespace headrace {
namespace {

constexpr std::string_view kIndexName = "index.html";

// What the page may do: run its own scripts, and talk to this server. It makes no markup of text.
constexpr std::string_view kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

std::string_view page_type_of(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "application/octet-stream";
}

const PageFile* find_page_file(std::string_view name) {
  for (const PageFile& file : page_files()) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

// Whether If-None-Match names the tag, as it was sent or as proxies weaken it.
bool is_unchanged(std::string_view if_none_match, std::string_view etag) {
  return if_none_match == "*" || if_none_match.find(etag) != if_none_match.npos;
}

HttpResponse page_response(const PageFile& file, const HttpRequest& request) {
  HttpResponse response;
  // Weak, as one tag is of all codings.
  response.headers = {{"ETag", fmt::format("W/{}", file.etag)},
                      {"Cache-Control", "no-cache"},
                      {"Vary", "Accept, Accept-Encoding"}};
  if (is_unchanged(request.header("if-none-match"), file.etag)) {
    response.status = 304;
    response.content_type.clear();
    return response;
  }
  response.content_type = page_type_of(file.name);
  response.headers.push_back({"Content-Security-Policy", std::string(kPagePolicy)});
  response.headers.push_back({"X-Content-Type-Options", "nosniff"});
  response.headers.push_back({"Referrer-Policy", "no-referrer"});
  response.headers.push_back({"Cross-Origin-Opener-Policy", "same-origin"});
  if (takes_gzip(request.header("accept-encoding"))) {
    response.headers.push_back({"Content-Encoding", "gzip"});
    response.body = file.gzip;
  } else {
    response.body = gunzip(file.gzip, file.plain_bytes);
  }
  return response;
}

// Browsers name HTML among what they take; clients of Ollama and probes do not.
bool wants_page(const RouteCall& call) {
  return call.state.page &&
         call.request.header("accept").find("text/html") != std::string_view::npos;
}

}  // namespace

void handle_root(RouteCall& call) {
  const PageFile* const index = find_page_file(kIndexName);
  if (index != nullptr && wants_page(call)) {
    return call.exchange->respond(page_response(*index, call.request));
  }
  HttpResponse response;
  response.content_type = "text/plain; charset=utf-8";
  if (call.state.page) response.headers.push_back({"Vary", "Accept"});
  response.body = "Ollama is running";
  call.exchange->respond(std::move(response));
}

void handle_page_file(RouteCall& call) {
  const PageFile* const file = find_page_file(call.parameter);
  if (file == nullptr || !call.state.page) {
    return call.exchange->respond(error_response(
        404, call.state.page
                 ? fmt::format("the page has no file \"{}\"", call.parameter.substr(0, 100))
                 : "the page is switched off (--no-webui)"));
  }
  call.exchange->respond(page_response(*file, call.request));
}

}  // namespace headrace
