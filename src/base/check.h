// CHECK: the lane for bugs. It stays on in every build; a failed CHECK ends the process.
// CHECK(x) is an expression of type void. Input from outside must never reach a CHECK unchecked.
#pragma once

namespace headrace {
[[noreturn]] void check_failed(const char* expression, const char* file, int line);
[[noreturn]] void check_failed_message(const char* expression, const char* message,
                                       const char* file, int line);
}  // namespace headrace

#define CHECK(condition)                        \
  (__builtin_expect(!!(condition), 1) ? (void)0 \
                                      : ::headrace::check_failed(#condition, __FILE__, __LINE__))
// CHECK_MSG(x, "why it must hold")
#define CHECK_MSG(condition, message) \
  (__builtin_expect(!!(condition), 1) \
       ? (void)0                      \
       : ::headrace::check_failed_message(#condition, message, __FILE__, __LINE__))
