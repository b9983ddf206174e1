#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace headrace {

void check_failed(const char* expression, const char* file, int line) {
  check_failed_message(expression, "", file, line);
}

void check_failed_message(const char* expression, const char* message, const char* file, int line) {
  std::fprintf(stderr, "headrace: bug: CHECK(%s) failed at %s:%d%s%s\n", expression, file, line,
               *message ? ": " : "", message);
  std::fflush(stderr);
  std::abort();
}

}  // namespace headrace
