// The parser of answers in which marks tell thoughts and calls from words: all dialects but
// Harmony, whose answers are made of messages.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "text/output/dialect_table.h"
#include "text/output/output_parser.h"
#include "text/stop_matcher.h"

namespace headrace {
namespace {

// Of white space and layout in front of what may be a mark, and of a call that is not certain yet.
constexpr size_t kPendingBytesMax = 256;
constexpr size_t kAttemptBytesMax = size_t{128} << 10;

class TaggedParser final : public OutputParser, private CallSink {
 public:
  TaggedParser(const OutputDialect& dialect, OutputOptions options)
      : options_(std::move(options)),
        tools_(options_.tools ? dialect.tools : nullptr),
        reasoning_(options_.reasoning && !stay_in_content(dialect) ? dialect.reasoning : nullptr),
        answer_closes_(answer_closes(dialect.tools)),
        content_marks_(content_marks(), false),
        thought_marks_(thought_marks(), false),
        mode_(reasoning_ && options_.starts_in_reasoning ? Mode::kThought : Mode::kContent),
        opened_in_prompt_(stay_in_content(dialect) && options_.starts_in_reasoning
                              ? dialect.reasoning->open
                              : std::string_view()) {}

  void push(std::string_view text, OutputEvents& out) override {
    out_ = &out;
    emit(Kind::kContent, std::exchange(opened_in_prompt_, {}));
    for (char c : text) {
      if (stopped_) return;
      take(c);
    }
  }

  void finish(OutputEvents& out) override {
    out_ = &out;
    if (stopped_) return;
    if (mode_ == Mode::kContent) content(content_marks_.flush());
    if (mode_ == Mode::kCall) {
      reader_->finish(*this);
      if (begun_) {
        end();
      } else if (!reader_->is_closed() &&
                 !std::all_of(attempt_.begin(), attempt_.end(), is_layout_space)) {
        emit(Kind::kContent, attempt_);
      }
      return;
    }
    if (mode_ == Mode::kThought) {
      thought(thought_marks_.flush());
      return emit(Kind::kReasoning, std::exchange(pending_, {}));
    }
    if (!answer_closed_) flush_pending();
  }

  bool in_reasoning() const override { return mode_ == Mode::kThought; }
  bool stopped() const override { return stopped_; }

 private:
  enum class Mode : uint8_t { kContent, kThought, kCall };
  using Kind = OutputEvent::Kind;

  static bool stay_in_content(const OutputDialect& dialect) {
    return dialect.reasoning && dialect.reasoning->in_content;
  }

  // What stands around an answer's words: of the thoughts' dialect, and of the calls'.
  std::vector<std::string_view> answer_closes(const ToolDialect* tools) const {
    std::vector<std::string_view> marks;
    const auto add = [&](std::span<const std::string_view> more) {
      marks.insert(marks.end(), more.begin(), more.end());
    };
    if (reasoning_) add(reasoning_->answer_closes);
    if (tools) add(tools->answer_closes);
    return marks;
  }
  std::span<const std::string_view> answer_opens() const {
    return reasoning_ ? reasoning_->answer_opens : std::span<const std::string_view>();
  }

  // The opening of thoughts first (and their end), what stands around an answer's words, then the
  // opening of calls, then what may open calls, then layout.
  std::vector<std::string> content_marks() const {
    std::vector<std::string> marks;
    const auto add = [&](std::span<const std::string_view> more) {
      marks.insert(marks.end(), more.begin(), more.end());
    };
    if (reasoning_) marks.emplace_back(reasoning_->open);
    if (closes_unopened()) marks.emplace_back(reasoning_->close);
    add(answer_opens());
    add(answer_closes_);
    if (!tools_) return marks;
    add(tools_->opens);
    add(loose_opens());
    add(tools_->layout);
    return marks;
  }

  // The end of thoughts first, then the opening of calls that end them: not where the form of calls
  // was enforced, which was behind the thoughts.
  std::vector<std::string> thought_marks() const {
    std::vector<std::string> marks;
    if (!reasoning_) return marks;
    marks.emplace_back(reasoning_->close);
    if (!tools_ || !reasoning_->calls_close || options_.only_marked) return marks;
    marks.insert(marks.end(), tools_->opens.begin(), tools_->opens.end());
    return marks;
  }

  bool closes_unopened() const { return reasoning_ && reasoning_->closes_unopened; }

  std::span<const std::string_view> loose_opens() const {
    return options_.only_marked ? std::span<const std::string_view>() : tools_->loose_opens;
  }

  void take(char c) {
    switch (mode_) {
      case Mode::kContent: {
        if (!looks_for_marks() || content_marks_.passes(c)) return content_byte(c);
        const StopMatcher::Step step = content_marks_.push({&c, 1});
        for (size_t i = 0; i < step.text.size(); ++i) {
          content_byte(step.text[i]);
          if (mode_ == Mode::kContent) continue;
          // A call without a mark has begun; what is held behind its first character belongs to it
          // (no mark holds another, so none is complete).
          const std::string rest = step.text.substr(i + 1) + content_marks_.flush();
          for (char byte : rest) take(byte);
          return;
        }
        if (step.stop) return mark(*step.stop);
        // Nothing is looked for any more: what was held for it is text.
        if (mode_ == Mode::kContent && !looks_for_marks()) content(content_marks_.flush());
        return;
      }
      case Mode::kThought: {
        if (thought_marks_.passes(c)) return thought({&c, 1});
        const StopMatcher::Step step = thought_marks_.push({&c, 1});
        thought(step.text);
        if (!step.stop) return;
        thought_marks_.flush();
        pending_.clear();
        mode_ = Mode::kContent;
        touches_ = true;
        if (*step.stop > 0) call_mark(*step.stop - 1);
        return;
      }
      case Mode::kCall:
        return call_byte(c);
    }
  }

  bool looks_for_marks() const {
    return tools_ || !answer_closes_.empty() || (reasoning_ && nothing_yet_);
  }

  void content(std::string_view text) {
    for (char c : text) {
      if (mode_ == Mode::kCall) {
        call_byte(c);
      } else {
        content_byte(c);
      }
    }
  }

  void content_byte(char c) {
    const bool holds = looks_for_marks() || touches_;
    if (holds && is_layout_space(c)) return hold({&c, 1});
    if (tools_ && nothing_yet_ && !options_.only_marked && c == tools_->bare_open)
      return begin_attempt({}, true), call_byte(c);
    flush_pending();
    nothing_yet_ = false;
    touches_ = false;
    emit(Kind::kContent, {&c, 1});
  }

  void hold(std::string_view layout) {
    pending_ += layout;
    if (pending_.size() <= kPendingBytesMax) return;
    flush_pending();
    touches_ = false;
  }

  // What touches a call or the thoughts in front of it is dropped.
  void flush_pending() {
    if (!touches_) emit(Kind::kContent, pending_);
    pending_.clear();
    answer_closed_ = false;
  }

  void thought(std::string_view text) {
    for (char c : text) {
      if (is_layout_space(c)) {
        if (!thought_begun_) continue;
        pending_ += c;
        if (pending_.size() <= kPendingBytesMax) continue;
      }
      thought_begun_ = true;
      emit(Kind::kReasoning, std::exchange(pending_, {}));
      if (!is_layout_space(c)) emit(Kind::kReasoning, {&c, 1});
    }
  }

  void mark(size_t index) {
    content_marks_.flush();
    if (reasoning_ && thought_mark(index)) return;
    const auto opens = answer_opens();
    if (index < opens.size()) {
      const bool in_front = (nothing_yet_ || touches_) && answer_opens_seen_ < opens.size();
      if (!in_front) return content(opens[index]);
      ++answer_opens_seen_;
      return drop_pending();
    }
    index -= opens.size();
    if (index < answer_closes_.size()) {
      answer_closed_ = true;
      return hold(answer_closes_[index]);
    }
    call_mark(index - answer_closes_.size());
  }

  // Whether it is one of the thoughts; else `index` becomes that of the other marks.
  bool thought_mark(size_t& index) {
    const bool at_begin = nothing_yet_ && !touches_;
    if (index-- == 0) {
      if (!at_begin) return content(reasoning_->open), true;
      pending_.clear();
      mode_ = Mode::kThought;
      return true;
    }
    if (closes_unopened() && index-- == 0) {
      if (!at_begin) return content(reasoning_->close), true;
      drop_pending();
      return true;
    }
    return false;
  }

  // In front of an answer's words.
  void drop_pending() {
    pending_.clear();
    touches_ = true;
  }

  void call_mark(size_t index) {
    const size_t opens = tools_->opens.size(), loose = loose_opens().size();
    if (index < opens) {
      begin_attempt(tools_->opens[index], false);
    } else if (index < opens + loose) {
      begin_attempt(loose_opens()[index - opens], true);
    } else {
      hold(tools_->layout[index - opens - loose]);
    }
  }

  // ---- calls

  void begin_attempt(std::string_view open, bool bare) {
    attempt_ = touches_ ? std::string() : std::exchange(pending_, {});
    attempt_ += open;
    pending_.clear();
    answer_closed_ = false;
    reader_ = tools_->make_reader(*options_.tools, bare);
    mode_ = Mode::kCall;
  }

  void call_byte(char c) {
    attempt_ += c;
    const CallReader::Step step = reader_->read(c, *this);
    if (stopped_) return;
    const bool too_long = attempt_.size() > kAttemptBytesMax;
    if (step == CallReader::Step::kTaken && !too_long) return;
    mode_ = Mode::kContent;
    if (step == CallReader::Step::kBroken || too_long) return give_back(c);
    attempt_.clear();
    touches_ = true;
    if (step == CallReader::Step::kDoneBefore) take(c);
  }

  // No call, or none from here on: what was read is content, and `c` is looked at again.
  void give_back(char c) {
    std::string unread = std::exchange(attempt_, {});
    if (!unread.empty()) unread.pop_back();
    if (begun_) end();
    if (stopped_) return;
    nothing_yet_ = false;
    touches_ = false;
    emit(Kind::kContent, unread);
    take(c);
  }

  void begin(std::string_view name, std::string_view id) override {
    attempt_.clear();
    begun_ = true;
    nothing_yet_ = false;
    append_event(*out_, {Kind::kCallBegin, std::string(name), ++call_, std::string(id)});
  }
  void arguments(std::string_view fragment) override {
    if (fragment.empty()) return;
    attempt_.clear();
    append_text(*out_, Kind::kArguments, call_, fragment);
  }
  void end() override {
    attempt_.clear();
    begun_ = false;
    append_event(*out_, {Kind::kCallEnd, {}, call_, {}});
    stopped_ = options_.one_call;
  }

  void emit(Kind kind, std::string_view text) { append_text(*out_, kind, -1, text); }

  const OutputOptions options_;
  const ToolDialect* const tools_;
  const ReasoningDialect* const reasoning_;
  const std::vector<std::string_view> answer_closes_;
  StopMatcher content_marks_, thought_marks_;
  Mode mode_;
  OutputEvents* out_ = nullptr;  // of the push under way

  bool nothing_yet_ = true;  // no content and no call
  bool thought_begun_ = false;
  bool touches_ = false;  // only layout since a call or the thoughts
  std::string pending_;   // that layout, or white space in front of what may be a mark
  size_t answer_opens_seen_ = 0;
  bool answer_closed_ = false;         // from a mark in `pending_` on there were no words
  std::string_view opened_in_prompt_;  // what content begins with

  std::unique_ptr<CallReader> reader_;
  std::string attempt_;  // of a call: the bytes of which nothing was told yet
  bool begun_ = false;
  int32_t call_ = -1;
  bool stopped_ = false;
};

}  // namespace

std::unique_ptr<OutputParser> make_output_parser(const OutputDialect& dialect,
                                                 OutputOptions options) {
  const bool harmony = (dialect.tools && dialect.tools->harmony) ||
                       (dialect.reasoning && dialect.reasoning->harmony);
  if (!harmony) return std::make_unique<TaggedParser>(dialect, std::move(options));
  if (!dialect.tools) options.tools.reset();
  if (!dialect.reasoning) options.reasoning = false;
  return make_harmony_parser(std::move(options));
}

}  // namespace headrace
