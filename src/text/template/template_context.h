// The budgets of one render, and the only place that makes strings, lists and dicts, so that none
// escapes them.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/chat_template.h"
#include "text/template/template_error.h"
#include "text/template/template_value.h"

namespace headrace {

class TemplateContext {
 public:
  TemplateContext(const TemplateLimits& limits, int64_t now_unix_s)
      : limits_(limits), now_unix_s_(now_unix_s) {}
  TemplateContext(const TemplateContext&) = delete;
  TemplateContext& operator=(const TemplateContext&) = delete;

  const TemplateLimits& limits() const { return limits_; }
  int64_t now_unix_s() const { return now_unix_s_; }

  void set_line(int line) { line_ = line; }
  int line() const { return line_; }
  [[noreturn]] void fail(std::string message) const { template_error(line_, std::move(message)); }

  // Counts `steps` of work, and fails when the budget is spent.
  void charge(size_t steps) {
    if (steps > steps_left()) fail_steps();
    steps_used_ += static_cast<int64_t>(steps);
  }
  // Reading or making `bytes` of text: a step for each KiB.
  void charge_bytes(size_t bytes) { charge(bytes / 1024); }
  // Fails if a string of `bytes` would be too long.
  void check_string_size(size_t bytes) const {
    if (bytes > limits_.output_bytes_max) fail_output();
  }

  Value make_string(std::string text);
  Value make_list(std::vector<Value> items, ListKind kind = ListKind::kList);
  // Later values of equal keys win.
  Value make_dict(std::vector<std::pair<Value, Value>> entries);
  // `json` must outlive the render: strings are views of it.
  Value from_json(const Json& json);

  // out += text, within the bounds.
  void append(std::string& out, std::string_view text);

 private:
  size_t steps_left() const { return static_cast<size_t>(limits_.steps_max - steps_used_); }
  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_output() const;
  void hold_bytes(size_t bytes);
  int child_depth(int deepest) const;

  const TemplateLimits limits_;
  const int64_t now_unix_s_;
  int line_ = 1;
  int64_t steps_used_ = 0;
  size_t live_bytes_ = 0;  // of strings, lists and dicts that are alive
};

}  // namespace headrace
