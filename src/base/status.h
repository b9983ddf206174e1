// Status and Result<T>: the lane for errors of the world (files, requests, memory at start).
//
// A bug is CHECK (base/check.h); "not now" is an optional or a bool. Neither is a Status.
// A message is one line that names the thing and, where there is one, the remedy.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace headrace {

enum class StatusCode {
  kOk,
  kInvalidArgument,  // the caller's input is wrong
  kNotFound,         // a file, model or name does not exist
  kCorrupt,          // a file contradicts itself or its format
  kUnsupported,      // well-formed, but not something this build can do
  kExhausted,        // a bound was hit (memory, budget)
  kUnavailable,      // draining, still loading
  kInternal,         // an invariant failed where the process can go on
};

std::string_view status_code_name(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message, std::string field = {})
      : code_(code), message_(std::move(message)), field_(std::move(field)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // The request field or file key at fault; empty when there is none.
  const std::string& field() const { return field_; }
  // "message" with a prefix such as a file name put in front.
  Status with_context(std::string_view context) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
  std::string field_;
};

inline Status ok_status() { return {}; }
inline Status invalid_argument(std::string message, std::string field = {}) {
  return {StatusCode::kInvalidArgument, std::move(message), std::move(field)};
}
inline Status not_found(std::string message, std::string field = {}) {
  return {StatusCode::kNotFound, std::move(message), std::move(field)};
}
inline Status corrupt(std::string message, std::string field = {}) {
  return {StatusCode::kCorrupt, std::move(message), std::move(field)};
}
inline Status unsupported(std::string message, std::string field = {}) {
  return {StatusCode::kUnsupported, std::move(message), std::move(field)};
}
inline Status exhausted(std::string message, std::string field = {}) {
  return {StatusCode::kExhausted, std::move(message), std::move(field)};
}
inline Status unavailable(std::string message, std::string field = {}) {
  return {StatusCode::kUnavailable, std::move(message), std::move(field)};
}
inline Status internal_error(std::string message, std::string field = {}) {
  return {StatusCode::kInternal, std::move(message), std::move(field)};
}

// A value or the Status that says why there is none. A Result never holds an ok Status.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {
    CHECK(!std::get<1>(state_).ok());
  }

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  Status status() const { return ok() ? Status() : std::get<1>(state_); }

  // REQUIRES: ok(). Of a temporary the value itself, not a reference into it: in
  // `for (auto& x : *f())` a reference would outlive what it refers to.
  T& value() & { return CHECK(ok()), std::get<0>(state_); }
  const T& value() const& { return CHECK(ok()), std::get<0>(state_); }
  T value() && { return CHECK(ok()), std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace headrace

#define HR_CONCAT_INNER(a, b) a##b
#define HR_CONCAT(a, b) HR_CONCAT_INNER(a, b)

// HR_RETURN_IF_ERROR(f()): returns f's Status from the enclosing function unless it is ok.
#define HR_RETURN_IF_ERROR(expression)           \
  do {                                           \
    ::headrace::Status hr_status = (expression); \
    if (!hr_status.ok()) return hr_status;       \
  } while (false)

// HR_ASSIGN_OR_RETURN(auto x, f()): x is f's value, or f's Status is returned.
#define HR_ASSIGN_OR_RETURN(declaration, expression)                                          \
  auto HR_CONCAT(hr_result_, __LINE__) = (expression);                                        \
  if (!HR_CONCAT(hr_result_, __LINE__).ok()) return HR_CONCAT(hr_result_, __LINE__).status(); \
  declaration = std::move(HR_CONCAT(hr_result_, __LINE__)).value()
