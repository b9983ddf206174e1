// Calls whose arguments stand between tags, as text: Qwen3-Coder, Seed, GLM-4.5, MiniMax M2,
// DeepSeek V3.2 and others. What a value is meant as, the tool's schema says (or the tag itself).
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/json.h"
#include "text/output/call_forms.h"
#include "text/output/json_scanner.h"
#include "text/stop_matcher.h"

namespace headrace {
namespace {

constexpr size_t kKeyBytesMax = 1024;
constexpr size_t kValueBytesMax = size_t{64}
                                  << 10;  // of a value that is no text; else it becomes one

class TaggedCallReader final : public CallReader {
 public:
  TaggedCallReader(const TaggedCallForm& form, const ToolList& tools)
      : form_(form), tools_(tools) {}

  Step read(char c, CallSink& sink) override {
    switch (place_) {
      case Place::kName:
        return read_name(c, sink);
      case Place::kNameEnd:
        return expect(c, form_.name_end,
                      form_.number_end.empty() ? Place::kMember : Place::kNumber);
      case Place::kNumber:
        if (seen_.empty() && c >= '0' && c <= '9') return Step::kTaken;
        return expect(c, form_.number_end, Place::kMember);
      case Place::kMember:
        return read_member(c, sink);
      case Place::kKey:
        return read_word(c, key_, form_.kind_end.empty() ? after_kind() : Place::kKind);
      case Place::kKind:
        return read_word(c, kind_, after_kind());
      case Place::kValueOpen:
        if (seen_.empty() && is_layout_space(c)) return Step::kTaken;
        return expect(c, form_.value_open, Place::kValue);
      case Place::kValue:
        return read_value(c, sink);
      case Place::kTextEnd:
        if (seen_.empty() && is_layout_space(c)) return Step::kTaken;
        return expect(c, form_.value_close, Place::kMember);
    }
    return Step::kBroken;
  }

  void finish(CallSink& sink) override {
    if (place_ == Place::kMember && begun_) sink.arguments("}");
  }

 private:
  enum class Place : uint8_t {
    kName,
    kNameEnd,
    kNumber,
    kMember,
    kKey,
    kKind,
    kValueOpen,
    kValue,
    kTextEnd,  // behind a value's text_close
  };

  Place after_kind() const { return form_.value_open.empty() ? Place::kValue : Place::kValueOpen; }

  Step read_name(char c, CallSink& sink) {
    if (name_.empty() && is_layout_space(c)) return Step::kTaken;
    if (is_call_name_char(c)) {
      name_ += c;
      return name_.size() > kKeyBytesMax ? Step::kBroken : Step::kTaken;
    }
    if (name_.empty()) return Step::kBroken;
    place_ = form_.name_end.empty() ? Place::kMember : Place::kNameEnd;
    return read(c, sink);
  }

  Step expect(char c, std::string_view text, Place next) {
    if (c != text[seen_.size()]) return Step::kBroken;
    seen_ += c;
    if (seen_.size() == text.size()) go(next);
    return Step::kTaken;
  }

  void go(Place next) {
    seen_.clear();
    place_ = next;
    switch (next) {
      case Place::kKey:
        key_.clear();
        kind_.clear();
        until_.emplace(std::vector<std::string>{std::string(form_.key_end)}, false);
        return;
      case Place::kKind:
        until_.emplace(std::vector<std::string>{std::string(form_.kind_end)}, false);
        return;
      case Place::kValue:
        until_.emplace(std::vector<std::string>{std::string(form_.value_close)}, false);
        value_.clear();
        value_begun_ = line_break_ = quoted_ = false;
        may_be_text_ = !form_.text_open.empty();
        return;
      default:
        return;
    }
  }

  Step read_word(char c, std::string& word, Place next) {
    const StopMatcher::Step step = until_->push({&c, 1});
    word += step.text;
    if (word.size() > kKeyBytesMax) return Step::kBroken;
    if (step.stop) go(next);
    return Step::kTaken;
  }

  // Another argument, or the end.
  Step read_member(char c, CallSink& sink) {
    if (seen_.empty() && is_layout_space(c)) return Step::kTaken;
    seen_ += c;
    const bool argument = seen_ == form_.argument_open;
    const bool ends = seen_ == form_.end;
    if (!argument && !ends) {
      const bool may_be = form_.argument_open.starts_with(seen_) || form_.end.starts_with(seen_);
      return may_be ? Step::kTaken : Step::kBroken;
    }
    if (!std::exchange(begun_, true)) {
      sink.begin(name_, {});
      sink.arguments("{");
    }
    if (argument) {
      go(Place::kKey);
      return Step::kTaken;
    }
    sink.arguments("}");
    sink.end();
    return Step::kDone;
  }

  Step read_value(char c, CallSink& sink) {
    if (!value_begun_) {
      value_begun_ = true;
      begin_value(sink);
      if (form_.lines && c == '\n') return Step::kTaken;
    }
    if (may_be_text_) return read_text_open(c, sink);
    const StopMatcher::Step step = until_->push({&c, 1});
    std::string out;
    for (char byte : step.text) value_byte(byte, out);
    if (step.stop) end_value(out);
    if (!passed_over_) sink.arguments(out);
    if (step.stop) go(in_text_ ? Place::kTextEnd : Place::kMember);
    if (step.stop) in_text_ = false;
    return Step::kTaken;
  }

  // A value may begin with what makes a text of all up to its own end.
  Step read_text_open(char c, CallSink& sink) {
    seen_ += c;
    if (seen_ == form_.text_open) {
      seen_.clear();
      may_be_text_ = false;
      in_text_ = true;
      until_.emplace(std::vector<std::string>{std::string(form_.text_close)}, false);
      return Step::kTaken;
    }
    if (form_.text_open.starts_with(seen_)) return Step::kTaken;
    may_be_text_ = false;
    for (char byte : std::exchange(seen_, {})) read_value(byte, sink);
    return Step::kTaken;
  }

  // A second value of the same name is passed over.
  void begin_value(CallSink& sink) {
    passed_over_ = !keys_.insert(key_).second;
    quoted_ = passed_over_;
    if (!passed_over_) write_key(sink);
  }

  void write_key(CallSink& sink) {
    std::string out = std::exchange(any_argument_, true) ? ", " : "";
    append_json_string(out, key_);
    out += ": ";
    if (form_.kind_end.empty()) {
      meant_ = tools_.kind_of(name_, key_);
    } else {
      meant_ = kind_ == form_.text_kind ? ArgumentKind::kText : ArgumentKind::kOther;
    }
    if (meant_ == ArgumentKind::kText) quote(out);
    sink.arguments(out);
  }

  void quote(std::string& out) {
    out += '"';
    quoted_ = true;
  }

  // The last line break belongs to the tag behind it.
  void value_byte(char c, std::string& out) {
    if (std::exchange(line_break_, false)) plain_byte('\n', out);
    line_break_ = form_.lines && c == '\n';
    if (!line_break_) plain_byte(c, out);
  }

  void plain_byte(char c, std::string& out) {
    if (quoted_) return append_json_escaped(out, c);
    value_ += c;
    if (value_.size() <= kValueBytesMax) return;
    quote(out);
    for (char byte : value_) append_json_escaped(out, byte);
    value_.clear();
  }

  void end_value(std::string& out) {
    if (!quoted_) {
      std::string value = trimmed(value_);
      if (meant_ == ArgumentKind::kBoolean && (value == "True" || value == "False")) {
        value = value == "True" ? "true" : "false";
      }
      if (value == "None") value = "null";
      if (parse_json(value).ok()) {
        out += value;
        return;
      }
      quote(out);
      for (char c : value_) append_json_escaped(out, c);
    }
    out += '"';
  }

  static std::string trimmed(std::string_view text) {
    while (!text.empty() && is_layout_space(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_layout_space(text.back())) text.remove_suffix(1);
    return std::string(text);
  }

  const TaggedCallForm& form_;
  const ToolList& tools_;
  Place place_ = Place::kName;
  std::string seen_;  // of a tag
  std::string name_, key_, kind_;
  std::set<std::string> keys_;  // with a value
  std::optional<StopMatcher> until_;
  bool begun_ = false, any_argument_ = false;

  // The value under way: text leaves as it comes, what may be JSON when it is whole.
  ArgumentKind meant_ = ArgumentKind::kText;
  std::string value_;
  bool value_begun_ = false, quoted_ = false, passed_over_ = false;
  bool may_be_text_ = false, in_text_ = false;  // it may begin, or began, with text_open
  bool line_break_ = false;                     // seen, and not known to be the last
};

}  // namespace

std::unique_ptr<CallReader> make_tagged_call_reader(const TaggedCallForm& form,
                                                    const ToolList& tools) {
  return std::make_unique<TaggedCallReader>(form, tools);
}

}  // namespace headrace
