// Calls as a name, a mark and a JSON object: DeepSeek V3 and V3.1, Kimi K2, Mistral's later forms.
#include <algorithm>
#include <string>
#include <utility>

#include "text/output/call_forms.h"
#include "text/output/json_scanner.h"

namespace headrace {
namespace {

constexpr size_t kNameBytesMax = 256;

class NamedCallReader final : public CallReader {
 public:
  explicit NamedCallReader(const NamedCallForm& form) : form_(form) {}

  Step read(char c, CallSink& sink) override {
    switch (place_) {
      case Place::kPrefix:
        if (matched_.empty() && is_layout_space(c)) return Step::kTaken;
        if (form_.prefix.empty()) {
          place_ = Place::kName;
          return read(c, sink);
        }
        return read_prefix(c);
      case Place::kName:
        return read_name(c, sink);
      case Place::kId:
        if (c == '[') {
          place_ = Place::kMark;
          return read_mark(c);
        }
        id_ += c;
        return id_.size() > kNameBytesMax ? Step::kBroken : Step::kTaken;
      case Place::kMark:
        return read_mark(c);
      case Place::kArguments:
        if (!begun_ && is_layout_space(c)) return Step::kTaken;
        return read_arguments(c, sink);
    }
    return Step::kBroken;
  }

 private:
  enum class Place : uint8_t { kPrefix, kName, kId, kMark, kArguments };

  Step read_prefix(char c) {
    if (c != form_.prefix[matched_.size()]) return Step::kBroken;
    matched_ += c;
    if (matched_.size() < form_.prefix.size()) return Step::kTaken;
    matched_.clear();
    place_ = Place::kName;
    return Step::kTaken;
  }

  Step read_name(char c, CallSink& sink) {
    if (name_.empty() && is_layout_space(c)) return Step::kTaken;
    if (is_call_name_char(c)) {
      name_ += c;
      return name_.size() > kNameBytesMax ? Step::kBroken : Step::kTaken;
    }
    if (name_.empty()) return Step::kBroken;
    if (c == '{' && form_.mark_may_lack) {
      place_ = Place::kArguments;
      return read_arguments(c, sink);
    }
    if (c == ' ' && form_.mark.front() != ' ') return Step::kTaken;
    place_ = Place::kMark;
    return read_mark(c);
  }

  // The mark in front of the arguments, or of the model's own id.
  Step read_mark(char c) {
    matched_ += c;
    if (matched_ == form_.mark) {
      place_ = Place::kArguments;
    } else if (!form_.id_mark.empty() && matched_ == form_.id_mark) {
      place_ = Place::kId;
      matched_.clear();
    } else if (!form_.mark.starts_with(matched_) && !form_.id_mark.starts_with(matched_)) {
      return Step::kBroken;
    }
    return Step::kTaken;
  }

  Step read_arguments(char c, CallSink& sink) {
    if (!std::exchange(begun_, true)) {
      if (c != '{' || !split_name()) {
        begun_ = false;
        return Step::kBroken;
      }
      sink.begin(name_, id_);
    }
    std::string out;
    const JsonScanner::Step step = scanner_.push(c, out);
    sink.arguments(out);
    if (step == JsonScanner::Step::kBroken) return Step::kBroken;
    if (step == JsonScanner::Step::kMore) return Step::kTaken;
    sink.end();
    return Step::kDone;
  }

  // Kimi's names are ids: functions.NAME:NUMBER.
  bool split_name() {
    if (!form_.name_is_id) return true;
    constexpr std::string_view kSpace = "functions.";
    id_ = name_;
    if (name_.starts_with(kSpace)) name_.erase(0, kSpace.size());
    name_.resize(std::min(name_.find(':'), name_.size()));
    return !name_.empty();
  }

  const NamedCallForm& form_;
  Place place_ = Place::kPrefix;
  std::string matched_, name_, id_;
  JsonScanner scanner_;
  bool begun_ = false;
};

// [TOOL_CALLS] is followed by a list of JSON calls, or by a name.
class MistralCallReader final : public CallReader {
 public:
  explicit MistralCallReader(const NamedCallForm& form) : form_(form) {}

  Step read(char c, CallSink& sink) override {
    if (!reader_) {
      if (is_layout_space(c)) return Step::kTaken;
      reader_ = c == '[' || c == '{' ? make_json_call_reader(nullptr)
                                     : std::make_unique<NamedCallReader>(form_);
    }
    return reader_->read(c, sink);
  }

 private:
  const NamedCallForm& form_;
  std::unique_ptr<CallReader> reader_;
};

}  // namespace

std::unique_ptr<CallReader> make_named_call_reader(const NamedCallForm& form) {
  return std::make_unique<NamedCallReader>(form);
}

std::unique_ptr<CallReader> make_mistral_call_reader(const NamedCallForm& form) {
  return std::make_unique<MistralCallReader>(form);
}

}  // namespace headrace
