#include "text/output/thought_budget.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "text/detokenizer.h"
#include "text/output/dialect_table.h"
#include "text/output/output_parser.h"

namespace headrace {
namespace {

class ThoughtBudgetConstraint final : public TokenConstraint,
                                      public std::enable_shared_from_this<ThoughtBudgetConstraint> {
 public:
  ThoughtBudgetConstraint(const Tokenizer& tokenizer, const OutputDialect& dialect,
                          std::span<const TokenId> marks, ThoughtBudget budget)
      : tokenizer_(tokenizer),
        dialect_{.reasoning = dialect.reasoning},
        marks_(marks.begin(), marks.end()),
        budget_(budget) {
    auto close =
        tokenizer.encode(dialect.reasoning->close,
                         {.add_special = false, .parse_special = true, .behind_token = true});
    CHECK(close.ok() && !close->empty());
    close_ = std::move(*close);
  }

  std::unique_ptr<TokenMatcher> begin() const override {
    return std::make_unique<Matcher>(shared_from_this());
  }

 private:
  class Matcher final : public TokenMatcher {
   public:
    explicit Matcher(std::shared_ptr<const ThoughtBudgetConstraint> rule)
        : rule_(std::move(rule)),
          text_(rule_->tokenizer_, true, rule_->marks_),
          parser_(make_output_parser(
              rule_->dialect_, {.starts_in_reasoning = rule_->budget_.starts_in_reasoning})) {}

    void fill_mask(std::span<uint32_t> allowed, int32_t /*tokens_left*/) override {
      std::fill(allowed.begin(), allowed.end(), is_used_up() ? 0u : ~0u);
      if (!is_used_up()) return;
      const auto bit = static_cast<size_t>(rule_->close_[closed_]);
      if (bit / 32 < allowed.size()) allowed[bit / 32] |= uint32_t{1} << (bit % 32);
    }

    bool only_ends() override { return false; }

    void accept(TokenId token) override {
      if (is_used_up()) {
        const bool as_told = token == rule_->close_[closed_];
        closed_ = as_told ? (closed_ + 1) % rule_->close_.size() : 0;
      }
      if (parser_->in_reasoning()) ++spent_;
      events_.clear();
      parser_->push(text_.push(token), events_);
    }

   private:
    bool is_used_up() const { return spent_ >= rule_->budget_.tokens && parser_->in_reasoning(); }

    const std::shared_ptr<const ThoughtBudgetConstraint> rule_;
    Detokenizer text_;
    const std::unique_ptr<OutputParser> parser_;
    OutputEvents events_;  // of the last token; nobody reads them
    int32_t spent_ = 0;
    size_t closed_ = 0;  // tokens of the mark that ends the thoughts
  };

  const Tokenizer& tokenizer_;
  const OutputDialect dialect_;
  const std::vector<TokenId> marks_;
  const ThoughtBudget budget_;
  std::vector<TokenId> close_;
};

}  // namespace

std::shared_ptr<const TokenConstraint> make_thought_budget(const Tokenizer& tokenizer,
                                                           const OutputDialect& dialect,
                                                           std::span<const TokenId> marks,
                                                           ThoughtBudget budget) {
  CHECK(bounds_thoughts(dialect.reasoning));
  return std::make_shared<ThoughtBudgetConstraint>(tokenizer, dialect, marks, budget);
}

}  // namespace headrace
