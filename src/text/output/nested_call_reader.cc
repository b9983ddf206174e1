// Calls whose arguments are tags within tags, each behind a mark: MiniMax M3. Lists and objects
// look alike but for the names of their members; what a value is meant as, the tool's schema says.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/output/argument_schema.h"
#include "text/output/call_forms.h"
#include "text/output/json_scanner.h"
#include "text/stop_matcher.h"

namespace headrace {
namespace {

constexpr size_t kTagBytesMax = 1024, kElementsOpenMax = 64;
constexpr size_t kLeafBytesMax = size_t{64}
                                 << 10;  // of a value that is no text; else it becomes one

class NestedCallReader final : public CallReader {
 public:
  NestedCallReader(const NestedCallForm& form, const ToolList& tools)
      : form_(form), tools_(tools), until_mark_({std::string(form.mark)}, false) {}

  Step read(char c, CallSink& sink) override {
    switch (place_) {
      case Place::kName:
        return read_name(c);
      case Place::kNameEnd:
        return read_name_end(c);
      case Place::kText:
        return read_text(c, sink);
      case Place::kTag:
        return read_tag(c, sink);
    }
    return Step::kBroken;
  }

  void finish(CallSink& sink) override {
    if (place_ == Place::kText && begun_ && open_.size() == 1) sink.arguments("}");
  }

 private:
  enum class Place : uint8_t { kName, kNameEnd, kText, kTag };
  enum class Shape : uint8_t { kLeaf, kObject, kList };

  // A tag that is open: the call itself, an argument, a member or an element.
  struct Element {
    std::string name;
    const Json* schema = nullptr;  // nullptr: nothing is said of it
    Shape shape = Shape::kLeaf;    // as far as it is read
    bool quoted = false;           // its text leaves as it comes
    bool has_members = false;
  };

  Step read_name(char c) {
    if (is_call_name_char(c)) {
      name_ += c;
      return name_.size() > kTagBytesMax ? Step::kBroken : Step::kTaken;
    }
    if (name_.empty()) return Step::kBroken;
    place_ = Place::kNameEnd;
    return read_name_end(c);
  }

  Step read_name_end(char c) {
    if (c != form_.name_end[tag_.size()]) return Step::kBroken;
    tag_ += c;
    if (tag_.size() < form_.name_end.size()) return Step::kTaken;
    parameters_ = tools_.parameters(name_);
    open_.push_back({std::string(form_.call), resolved_schema(parameters_, parameters_),
                     Shape::kObject, false, false});
    place_ = Place::kText;
    return Step::kTaken;
  }

  Step read_text(char c, CallSink& sink) {
    const StopMatcher::Step step = until_mark_.push({&c, 1});
    std::string out;
    for (char byte : step.text) {
      if (!take_text(byte, out)) return Step::kBroken;
    }
    sink.arguments(out);
    if (!step.stop) return Step::kTaken;
    until_mark_.flush();
    tag_.clear();
    place_ = Place::kTag;
    return Step::kTaken;
  }

  // Between members there is layout only.
  bool take_text(char c, std::string& out) {
    Element& element = open_.back();
    if (element.shape != Shape::kLeaf) return is_layout_space(c);
    if (element.quoted) {
      append_json_escaped(out, c);
      return true;
    }
    value_ += c;
    if (value_.size() > kLeafBytesMax) quote_value(element, out);
    return true;
  }

  void quote_value(Element& element, std::string& out) {
    out += '"';
    for (char c : value_) append_json_escaped(out, c);
    value_.clear();
    element.quoted = true;
  }

  Step read_tag(char c, CallSink& sink) {
    tag_ += c;
    if (tag_.size() == 1) return c == '<' ? Step::kTaken : Step::kBroken;
    if (c == '>') return take_tag(sink);
    const bool fits = c != '<' && c != '"' && c != '\n' && tag_.size() <= kTagBytesMax;
    return fits ? Step::kTaken : Step::kBroken;
  }

  Step take_tag(CallSink& sink) {
    const std::string_view name = std::string_view(tag_).substr(1, tag_.size() - 2);
    std::string out = begun_ ? "" : "{";
    const bool fits = name.starts_with('/') ? close(name.substr(1), out) : open(name, out);
    if (!fits) return Step::kBroken;
    if (!std::exchange(begun_, true)) sink.begin(name_, {});
    sink.arguments(out);
    if (open_.empty()) {
      sink.end();
      return Step::kDone;
    }
    place_ = Place::kText;
    return Step::kTaken;
  }

  bool open(std::string_view name, std::string& out) {
    Element& parent = open_.back();
    if (name.empty() || open_.size() == kElementsOpenMax) return false;
    if (parent.shape == Shape::kLeaf && !begin_members(parent, name, out)) return false;
    if (std::exchange(parent.has_members, true)) out += ", ";
    const bool in_list = parent.shape == Shape::kList;
    if (!in_list) {
      append_json_string(out, name);
      out += ": ";
    }
    const Json* schema = in_list ? element_schema(parameters_, parent.schema)
                                 : member_schema(parameters_, parent.schema, name);
    Element element{std::string(name), schema};
    if (schema && argument_kind(*schema) == ArgumentKind::kText) quote_value(element, out);
    open_.push_back(std::move(element));
    return true;
  }

  // What was read as a value's text so far is layout in front of its first member.
  bool begin_members(Element& element, std::string_view first, std::string& out) {
    const bool blank = std::all_of(value_.begin(), value_.end(), is_layout_space);
    if (element.quoted || !blank) return false;
    value_.clear();
    const bool list = is_list_schema(element.schema) ||
                      (!is_object_schema(element.schema) && first == form_.list_member);
    element.shape = list ? Shape::kList : Shape::kObject;
    out += list ? '[' : '{';
    return true;
  }

  bool close(std::string_view name, std::string& out) {
    Element& element = open_.back();
    if (name != element.name) return false;
    switch (element.shape) {
      case Shape::kLeaf:
        end_leaf(element, out);
        break;
      case Shape::kObject:
        out += '}';
        break;
      case Shape::kList:
        out += ']';
    }
    open_.pop_back();
    return true;
  }

  void end_leaf(Element& element, std::string& out) {
    if (!element.quoted) {
      if (const std::string value = json_of_leaf(element); !value.empty()) {
        out += value;
        value_.clear();
        return;
      }
      quote_value(element, out);
    }
    out += '"';
  }

  // Empty: the value is a text.
  std::string json_of_leaf(const Element& element) const {
    const auto behind_space = std::find_if_not(value_.begin(), value_.end(), is_layout_space);
    std::string value(behind_space, value_.end());
    while (!value.empty() && is_layout_space(value.back())) value.pop_back();
    if (value.empty()) {
      if (is_list_schema(element.schema)) return "[]";
      return is_object_schema(element.schema) ? "{}" : "";
    }
    if (value == "True" || value == "False") value = value == "True" ? "true" : "false";
    if (value == "None") value = "null";
    // A quote is a text's own where nothing says that the value is JSON.
    const bool may_be_json = element.schema || value.front() != '"';
    return may_be_json && parse_json(value).ok() ? value : "";
  }

  const NestedCallForm& form_;
  const ToolList& tools_;
  const Json* parameters_ = nullptr;  // of the function
  Place place_ = Place::kName;
  std::string name_, tag_;
  StopMatcher until_mark_;
  std::vector<Element> open_;
  std::string value_;  // of the innermost element, where its text does not leave as it comes
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<CallReader> make_nested_call_reader(const NestedCallForm& form,
                                                    const ToolList& tools) {
  return std::make_unique<NestedCallReader>(form, tools);
}

}  // namespace headrace
