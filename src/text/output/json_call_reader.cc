// Calls as JSON objects, {"name": ..., "arguments": {...}}, one, several or a list of them: Hermes
// and Qwen in <tool_call>, Llama 3 (with "parameters"), Granite, Phi-4, Jamba, Command (with
// "tool_name"), Mistral's first form; and Apertus' {NAME: {...}}.
#include <utility>

#include "base/json.h"
#include "text/output/call_reader.h"
#include "text/output/json_scanner.h"

namespace headrace {
namespace {

class JsonCallReader final : public CallReader {
 public:
  JsonCallReader(const ToolList* tools, bool keyed) : tools_(tools), keyed_(keyed) {}

  bool is_closed() const override { return list_closed_ && fence_ == 0; }

  Step read(char c, CallSink& sink) override {
    switch (place_) {
      case Place::kFirst:
      case Place::kNext:
        return between_calls(c);
      case Place::kClosing:
        return behind_doubled(c, sink);
      case Place::kKey:
      case Place::kValue:
        return scan(c, sink);
      default:
        break;
    }
    if (is_layout_space(c)) return Step::kTaken;
    if (place_ == Place::kColon) {
      if (c != ':') return Step::kBroken;
      place_ = Place::kValue;
      begin_value();
      return Step::kTaken;
    }
    if (c == '}') return call_ends(sink);
    if (place_ == Place::kBehindValue) {
      if (c != ',') return Step::kBroken;
      place_ = Place::kKeyOrEnd;
      return Step::kTaken;
    }
    if (c == '{' && place_ == Place::kKeyOrEnd && key_.empty() && !doubled_) {
      doubled_ = true;
      return Step::kTaken;
    }
    if (c != '"') return Step::kBroken;
    place_ = Place::kKey;
    begin_value();
    return scan(c, sink);
  }

 private:
  static constexpr size_t kValueBytesMax = size_t{64} << 10;  // that are held
  enum class Place : uint8_t {
    kFirst,
    kNext,
    kKeyOrEnd,
    kKey,
    kColon,
    kValue,
    kBehindValue,
    kClosing,  // of a call in doubled braces, behind its own
  };

  Step between_calls(char c) {
    if (is_layout_space(c) && fence_ == 0) return Step::kTaken;
    if (c == '{' && fence_ == 0 && !list_closed_) {
      place_ = Place::kKeyOrEnd;
      doubled_ = false;
      key_.clear();
      name_.clear();
      arguments_ = "{}";
      begun_ = false;
      return Step::kTaken;
    }
    if (c == '[' && place_ == Place::kFirst && !in_list_) {
      in_list_ = true;
      return Step::kTaken;
    }
    if (place_ == Place::kFirst) return Step::kBroken;
    if (tools_ && !in_list_ && c == '`') return ++fence_ == 3 ? Step::kDone : Step::kTaken;
    if (fence_ > 0) return Step::kBroken;
    if (c == (in_list_ ? ',' : ';') && !list_closed_) return Step::kTaken;
    if (!in_list_) return Step::kDoneBefore;
    if (c != ']') return Step::kBroken;
    in_list_ = false;
    list_closed_ = true;
    return tools_ ? Step::kTaken : Step::kDone;  // the fence of a block of code may follow
  }

  // The call ends behind the braces that close it: one where the second is forgotten, or too many.
  Step behind_doubled(char c, CallSink& sink) {
    if (c == '}' || is_layout_space(c)) return Step::kTaken;
    sink.end();
    place_ = Place::kNext;
    return between_calls(c);
  }

  void begin_value() {
    scanner_ = {};
    value_.clear();
    value_begun_ = false;
  }

  bool begin_call(CallSink& sink) {
    if (name_.empty() || (tools_ && !tools_->has(name_))) return false;
    begun_ = true;
    sink.begin(name_, {});
    return true;
  }

  // Arguments behind the name leave as they come, others when all is known.
  Step scan(char c, CallSink& sink) {
    if (!value_begun_ && is_layout_space(c)) return Step::kTaken;
    const bool first = !std::exchange(value_begun_, true);
    const bool arguments = place_ == Place::kValue && is_arguments();
    if (first && c == '{' && arguments && !begun_ && !name_.empty()) {
      if (!begin_call(sink)) return Step::kBroken;
      streams_ = true;
    }
    const JsonScanner::Step step = scanner_.push(c, value_);
    if (streams_) sink.arguments(value_);
    if (begun_ && place_ == Place::kValue) value_.clear();
    if (step == JsonScanner::Step::kBroken || value_.size() > kValueBytesMax) return Step::kBroken;
    if (step == JsonScanner::Step::kMore) return Step::kTaken;
    if (!value_ends()) return Step::kBroken;
    return step == JsonScanner::Step::kDone ? Step::kTaken : read(c, sink);
  }

  // Where only the names of tools tell a call from other JSON, that is given back as soon as a key
  // says that it is other JSON.
  bool is_key_of_a_call() const {
    return is_name() || is_arguments() || key_ == "type" || key_ == "id";
  }
  bool is_name() const { return !keyed_ && (key_ == "name" || key_ == "tool_name"); }
  bool is_arguments() const { return keyed_ || key_ == "arguments" || key_ == "parameters"; }

  bool value_ends() {
    if (place_ == Place::kKey) {
      place_ = Place::kColon;
      if (keyed_ && !key_.empty()) return false;
      key_ = text_of(value_);
      if (keyed_) name_ = key_;
      return begun_ || !tools_ || is_key_of_a_call();
    }
    place_ = Place::kBehindValue;
    streams_ = false;
    if (begun_) return true;
    if (is_name()) {
      name_ = text_of(value_);
      return !name_.empty();
    }
    if (is_arguments() && value_ != "null") arguments_ = value_;
    return true;
  }

  Step call_ends(CallSink& sink) {
    if (!begun_) {
      if (!begin_call(sink)) return Step::kBroken;
      sink.arguments(arguments_);
    }
    if (!doubled_) sink.end();
    place_ = doubled_ ? Place::kClosing : Place::kNext;
    return Step::kTaken;
  }

  static std::string text_of(const std::string& json) {
    const Result<Json> text = parse_json(json);
    return text.ok() && text->is_string() ? text->as_string() : std::string();
  }

  const ToolList* const tools_;
  const bool keyed_;
  Place place_ = Place::kFirst;
  bool in_list_ = false, list_closed_ = false;
  bool doubled_ = false;  // {{"name": ...}}, as Qwen2.5-Coder's template shows it
  int fence_ = 0;         // of the three marks that close a block of code behind the call
  JsonScanner scanner_;
  std::string key_, value_;  // as written
  bool value_begun_ = false;
  std::string name_, arguments_;
  bool begun_ = false;
  bool streams_ = false;  // the value under way leaves as it comes
};

}  // namespace

std::unique_ptr<CallReader> make_json_call_reader(const ToolList* tools, bool keyed) {
  return std::make_unique<JsonCallReader>(tools, keyed);
}

}  // namespace headrace
