// libcurl, opened when something is fetched: linked, it and the 28 libraries that it needs would
// add 10 ms to each start of the program. It travels in lib/ beside the program.
#pragma once

#define CURL_DISABLE_TYPECHECK  // its checks call functions by their names
#include <curl/curl.h>
#undef curl_easy_setopt
#undef curl_easy_getinfo

#include "base/status.h"

namespace headrace {

// The functions that are called. Any thread; a handle is one thread's at a time.
struct CurlLibrary {
  // One a process. kUnavailable: it is not there.
  static Result<const CurlLibrary*> open();

  decltype(&::curl_global_init) global_init;
  decltype(&::curl_easy_init) easy_init;
  decltype(&::curl_easy_setopt) easy_setopt;
  decltype(&::curl_easy_getinfo) easy_getinfo;
  decltype(&::curl_easy_perform) easy_perform;
  decltype(&::curl_easy_reset) easy_reset;
  decltype(&::curl_easy_cleanup) easy_cleanup;
  decltype(&::curl_easy_strerror) easy_strerror;
  decltype(&::curl_slist_append) slist_append;
  decltype(&::curl_slist_free_all) slist_free_all;
};

}  // namespace headrace
