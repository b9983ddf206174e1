// gpt-oss's Harmony: an answer is a sequence of messages, each with a channel and, for a call, a
// recipient:  <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>commentary
// to=functions.f <|constrain|>json<|message|>{...}<|call|>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "text/output/call_reader.h"
#include "text/output/output_parser.h"
#include "text/stop_matcher.h"

namespace headrace {
namespace {

enum class HarmonyMark : size_t { kStart, kEnd, kMessage, kChannel, kConstrain, kCall, kReturn };
constexpr std::string_view kMarkTexts[] = {"<|start|>",   "<|end|>",       "<|message|>",
                                           "<|channel|>", "<|constrain|>", "<|call|>",
                                           "<|return|>"};
constexpr size_t kHeaderBytesMax = 512;
constexpr std::string_view kFunctionsPrefix = "functions.";

class HarmonyParser final : public OutputParser {
 public:
  explicit HarmonyParser(OutputOptions options)
      : options_(std::move(options)),
        marks_({std::begin(kMarkTexts), std::end(kMarkTexts)}, false) {}

  void push(std::string_view text, OutputEvents& out) override {
    out_ = &out;
    for (char c : text) {
      if (stopped_) return;
      if (marks_.passes(c)) {
        take(c);
        continue;
      }
      const StopMatcher::Step step = marks_.push({&c, 1});
      for (char byte : step.text) take(byte);
      if (!step.stop) continue;
      marks_.flush();
      mark(static_cast<HarmonyMark>(*step.stop));
    }
  }

  void finish(OutputEvents& out) override {
    out_ = &out;
    if (stopped_) return;
    for (char byte : marks_.flush()) take(byte);
    if (place_ == Place::kHeader && !started_) give_back_header();
    end_message();
  }

  bool in_reasoning() const override { return place_ == Place::kBody && body_ == Kind::kReasoning; }
  bool stopped() const override { return stopped_; }

 private:
  enum class Place : uint8_t { kHeader, kBody, kBetween };
  using Kind = OutputEvent::Kind;

  void take(char c) {
    if (place_ == Place::kHeader) {
      header_ += c;
      // The prompt has begun the first message; what then is no header is a plain answer.
      const bool plain = !started_ && !std::string_view(" to=").starts_with(header_) &&
                         !header_.starts_with(" to=") && header_.find('<') == std::string::npos;
      if (plain || header_.size() > kHeaderBytesMax) {
        give_back_header();
        body_ = Kind::kContent;
        place_ = Place::kBody;
      }
      return;
    }
    if (place_ == Place::kBody) return emit({&c, 1});
    if (is_layout_space(c)) return;
    body_ = Kind::kContent;
    place_ = Place::kBody;
    emit({&c, 1});
  }

  void mark(HarmonyMark mark) {
    const bool in_header = place_ == Place::kHeader;
    switch (mark) {
      case HarmonyMark::kMessage:
        if (in_header) return begin_message();
        return;
      case HarmonyMark::kConstrain:
        if (in_header) header_ += kMarkTexts[static_cast<size_t>(mark)];
        return;
      case HarmonyMark::kStart:
      case HarmonyMark::kChannel:
        if (in_header && mark == HarmonyMark::kStart && started_) give_back_header();
        end_message();
        place_ = Place::kHeader;
        started_ = true;
        if (mark == HarmonyMark::kChannel) header_ += kMarkTexts[static_cast<size_t>(mark)];
        return;
      case HarmonyMark::kEnd:
      case HarmonyMark::kCall:
      case HarmonyMark::kReturn:
        if (in_header) give_back_header();
        end_message();
        place_ = Place::kBetween;
    }
  }

  void give_back_header() { append_text(*out_, Kind::kContent, -1, std::exchange(header_, {})); }

  static std::string word_behind(std::string_view text, std::string_view mark) {
    const size_t at = text.find(mark);
    if (at == text.npos) return {};
    text.remove_prefix(at + mark.size());
    return std::string(text.substr(0, text.find_first_of(" <\n")));
  }

  void begin_message() {
    const std::string channel = word_behind(header_, "<|channel|>");
    const std::string recipient = word_behind(header_, "to=");
    header_.clear();
    place_ = Place::kBody;
    body_ = channel == "analysis" && options_.reasoning ? Kind::kReasoning : Kind::kContent;
    const bool call =
        recipient.size() > kFunctionsPrefix.size() && recipient.starts_with(kFunctionsPrefix);
    if (!call || !options_.tools) return;
    body_ = Kind::kArguments;
    any_arguments_ = false;
    append_event(*out_, {Kind::kCallBegin, recipient.substr(kFunctionsPrefix.size()), ++call_, {}});
  }

  void emit(std::string_view text) {
    any_arguments_ = true;
    append_text(*out_, body_, body_ == Kind::kArguments ? call_ : -1, text);
  }

  void end_message() {
    if (std::exchange(place_, Place::kBetween) != Place::kBody) return;
    if (body_ != Kind::kArguments) return;
    if (!any_arguments_) emit("{}");
    append_event(*out_, {Kind::kCallEnd, {}, call_, {}});
    stopped_ = options_.one_call;
  }

  const OutputOptions options_;
  StopMatcher marks_;
  OutputEvents* out_ = nullptr;  // of the push under way
  Place place_ = Place::kHeader;
  Kind body_ = Kind::kContent;
  std::string header_;
  bool started_ = false;  // a mark has come
  bool any_arguments_ = false;
  int32_t call_ = -1;
  bool stopped_ = false;
};

}  // namespace

std::unique_ptr<OutputParser> make_harmony_parser(OutputOptions options) {
  return std::make_unique<HarmonyParser>(std::move(options));
}

}  // namespace headrace
