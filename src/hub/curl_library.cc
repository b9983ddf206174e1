#include "hub/curl_library.h"

#include <array>

#include <fmt/format.h>

#include "tensor/shared_library.h"

namespace headrace {
namespace {

constexpr std::array kCurlPlaces = {"libcurl.so.4", "libcurl-gnutls.so.4"};

bool load_curl(const SharedLibrary& library, CurlLibrary& curl) {
  return library.find("curl_global_init", curl.global_init) &&
         library.find("curl_easy_init", curl.easy_init) &&
         library.find("curl_easy_setopt", curl.easy_setopt) &&
         library.find("curl_easy_getinfo", curl.easy_getinfo) &&
         library.find("curl_easy_perform", curl.easy_perform) &&
         library.find("curl_easy_reset", curl.easy_reset) &&
         library.find("curl_easy_cleanup", curl.easy_cleanup) &&
         library.find("curl_easy_strerror", curl.easy_strerror) &&
         library.find("curl_slist_append", curl.slist_append) &&
         library.find("curl_slist_free_all", curl.slist_free_all);
}

Result<CurlLibrary> open_curl() {
  const SharedLibrary library(kCurlPlaces);
  CurlLibrary curl{};
  if (library.is_open() && load_curl(library, curl) &&
      curl.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) {
    return curl;
  }
  return unavailable(
      fmt::format("nothing can be fetched without libcurl: {} not found; install libcurl4",
                  places_text(kCurlPlaces)));
}

}  // namespace

Result<const CurlLibrary*> CurlLibrary::open() {
  static const Result<CurlLibrary> curl = open_curl();
  if (!curl.ok()) return curl.status();
  return &curl.value();
}

}  // namespace headrace
