// Calls as programs write them: [f(a=1, b='x'), g()], and Gemma's call:f{a:1}.
#include <optional>
#include <string>
#include <utility>

#include "text/output/call_forms.h"
#include "text/output/loose_scanner.h"

namespace headrace {
namespace {

constexpr size_t kFunctionBytesMax = 256;

// The arguments of one call, told from the first on that makes the call certain.
class LooseArguments {
 public:
  explicit LooseArguments(std::string_view quote) : scanner_(quote) {}

  LooseScanner::Step push(char c, std::string_view name, CallSink& sink) {
    const LooseScanner::Step step = scanner_.push(c, held_);
    if (step == LooseScanner::Step::kBroken || !scanner_.certain()) return step;
    if (!std::exchange(begun_, true)) sink.begin(name, {});
    sink.arguments(std::exchange(held_, {}));
    if (step == LooseScanner::Step::kDone) sink.end();
    return step;
  }

 private:
  LooseScanner scanner_;
  std::string held_;
  bool begun_ = false;
};

class PythonCallReader final : public CallReader {
 public:
  PythonCallReader(const ToolList* tools, bool brackets) : tools_(tools), brackets_(brackets) {}

  Step read(char c, CallSink& sink) override {
    if (arguments_) {
      const LooseScanner::Step step = arguments_->push(c, name_, sink);
      if (step == LooseScanner::Step::kBroken) return Step::kBroken;
      if (step == LooseScanner::Step::kMore) return Step::kTaken;
      arguments_.reset();
      name_.clear();
      behind_call_ = true;
      return Step::kTaken;
    }
    if (!name_.empty()) return read_name(c);
    if (is_layout_space(c)) return Step::kTaken;
    if (brackets_ && !std::exchange(open_, true)) return c == '[' ? Step::kTaken : Step::kBroken;
    if (behind_call_ && brackets_) {
      if (c == ']') return Step::kDone;
      behind_call_ = false;
      return c == ',' ? Step::kTaken : Step::kBroken;
    }
    if (behind_call_ && c == ',') return Step::kTaken;
    if (is_call_name_char(c)) return read_name(c);
    return behind_call_ ? Step::kDoneBefore : Step::kBroken;
  }

 private:
  Step read_name(char c) {
    if (is_call_name_char(c)) {
      name_ += c;
      return name_.size() > kFunctionBytesMax ? Step::kBroken : Step::kTaken;
    }
    if (c != '(' || (tools_ && !tools_->has(name_))) return Step::kBroken;
    arguments_.emplace(std::string_view());
    return Step::kTaken;
  }

  const ToolList* const tools_;
  const bool brackets_;
  bool open_ = false, behind_call_ = false;
  std::string name_;
  std::optional<LooseArguments> arguments_;
};

class GemmaCallReader final : public CallReader {
 public:
  explicit GemmaCallReader(std::string_view quote) : arguments_(quote) {}

  Step read(char c, CallSink& sink) override {
    if (in_arguments_) {
      const LooseScanner::Step step = arguments_.push(c, name_, sink);
      if (step == LooseScanner::Step::kBroken) return Step::kBroken;
      return step == LooseScanner::Step::kDone ? Step::kDone : Step::kTaken;
    }
    if (matched_ == 0 && is_layout_space(c)) return Step::kTaken;
    if (matched_ < kCall.size()) return c == kCall[matched_++] ? Step::kTaken : Step::kBroken;
    if (is_call_name_char(c)) {
      name_ += c;
      return name_.size() > kFunctionBytesMax ? Step::kBroken : Step::kTaken;
    }
    in_arguments_ = c == '{' && !name_.empty();
    return in_arguments_ ? Step::kTaken : Step::kBroken;
  }

 private:
  static constexpr std::string_view kCall = "call:";
  size_t matched_ = 0;
  std::string name_;
  bool in_arguments_ = false;
  LooseArguments arguments_;
};

}  // namespace

std::unique_ptr<CallReader> make_python_call_reader(const ToolList* tools, bool brackets) {
  return std::make_unique<PythonCallReader>(tools, brackets);
}

std::unique_ptr<CallReader> make_gemma_call_reader(std::string_view quote) {
  return std::make_unique<GemmaCallReader>(quote);
}

}  // namespace headrace
