#include "server/stop_end.h"

#include <algorithm>
#include <utility>

namespace headrace {
namespace {

class StopEnd final : public AnswerEnd {
 public:
  StopEnd(const Tokenizer& tokenizer, std::vector<std::string> stops, bool skip_special)
      : tokenizer_(tokenizer), stops_(std::move(stops)), skip_special_(skip_special) {
    for (const std::string& stop : stops_) longest_ = std::max(longest_, stop.size());
  }

  // A stop string ends inside of the last token: it begins at most so many bytes before that.
  bool ends_with(TokenSpan answer) const override {
    std::string text = text_of(answer.back());
    const size_t last = text.size();
    for (size_t i = answer.size() - 1; i-- > 0 && text.size() + 1 < longest_ + last;) {
      text.insert(0, text_of(answer[i]));
    }
    return std::any_of(stops_.begin(), stops_.end(), [&](const std::string& stop) {
      const size_t before = text.size() - last;
      const size_t from = before >= stop.size() ? before - stop.size() + 1 : 0;
      return text.find(stop, from) != std::string::npos;
    });
  }

 private:
  std::string text_of(TokenId token) const {
    if (skip_special_ && tokenizer_.is_control(token)) return {};
    return tokenizer_.token_bytes(token);
  }

  const Tokenizer& tokenizer_;
  const std::vector<std::string> stops_;
  const bool skip_special_;
  size_t longest_ = 0;
};

}  // namespace

std::shared_ptr<const AnswerEnd> make_stop_end(const Tokenizer& tokenizer,
                                               std::vector<std::string> stops, bool skip_special) {
  if (stops.empty()) return nullptr;
  return std::make_shared<StopEnd>(tokenizer, std::move(stops), skip_special);
}

}  // namespace headrace
