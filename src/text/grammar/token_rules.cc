#include "text/grammar/token_rules.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace headrace {
namespace {

using Constraint = std::shared_ptr<const TokenConstraint>;

void allow_bit(std::span<uint32_t> mask, TokenId id) {
  const auto bit = static_cast<size_t>(id);
  if (bit / 32 < mask.size()) mask[bit / 32] |= uint32_t{1} << (bit % 32);
}

void forbid_bit(std::span<uint32_t> mask, TokenId id) {
  const auto bit = static_cast<size_t>(id);
  if (bit / 32 < mask.size()) mask[bit / 32] &= ~(uint32_t{1} << (bit % 32));
}

class AllowedTokens final : public TokenConstraint,
                            public std::enable_shared_from_this<AllowedTokens> {
 public:
  AllowedTokens(std::vector<TokenId> allowed, const Tokenizer& tokenizer)
      : allowed_(std::move(allowed)),
        only_ends_(std::all_of(allowed_.begin(), allowed_.end(),
                               [&](TokenId id) { return tokenizer.is_end(id); })) {}

  std::unique_ptr<TokenMatcher> begin() const override {
    return std::make_unique<Matcher>(shared_from_this());
  }

 private:
  class Matcher final : public TokenMatcher {
   public:
    explicit Matcher(std::shared_ptr<const AllowedTokens> rule) : rule_(std::move(rule)) {}
    void fill_mask(std::span<uint32_t> allowed, int32_t /*tokens_left*/) override {
      std::fill(allowed.begin(), allowed.end(), 0u);
      for (TokenId id : rule_->allowed_) allow_bit(allowed, id);
    }
    bool only_ends() override { return rule_->only_ends_; }
    void accept(TokenId) override {}

   private:
    const std::shared_ptr<const AllowedTokens> rule_;
  };

  const std::vector<TokenId> allowed_;
  const bool only_ends_;
};

class BannedSequences final : public TokenConstraint,
                              public std::enable_shared_from_this<BannedSequences> {
 public:
  explicit BannedSequences(std::vector<std::vector<TokenId>> banned) : banned_(std::move(banned)) {
    for (const std::vector<TokenId>& sequence : banned_) {
      tokens_kept_ = std::max(tokens_kept_, sequence.size() - 1);
    }
  }

  std::unique_ptr<TokenMatcher> begin() const override {
    return std::make_unique<Matcher>(shared_from_this());
  }

 private:
  class Matcher final : public TokenMatcher {
   public:
    explicit Matcher(std::shared_ptr<const BannedSequences> rule) : rule_(std::move(rule)) {}

    void fill_mask(std::span<uint32_t> allowed, int32_t /*tokens_left*/) override {
      std::fill(allowed.begin(), allowed.end(), ~0u);
      for (const std::vector<TokenId>& sequence : rule_->banned_) {
        const size_t before = sequence.size() - 1;
        if (before > last_.size()) continue;
        const auto tail = last_.end() - static_cast<ptrdiff_t>(before);
        if (std::equal(tail, last_.end(), sequence.begin())) forbid_bit(allowed, sequence.back());
      }
    }

    bool only_ends() override { return false; }

    void accept(TokenId token) override {
      if (rule_->tokens_kept_ == 0) return;
      if (last_.size() == rule_->tokens_kept_) last_.erase(last_.begin());
      last_.push_back(token);
    }

   private:
    const std::shared_ptr<const BannedSequences> rule_;
    std::vector<TokenId> last_;  // of the answer, as many as any sequence needs
  };

  const std::vector<std::vector<TokenId>> banned_;
  size_t tokens_kept_ = 0;
};

class JoinedConstraint final : public TokenConstraint {
 public:
  explicit JoinedConstraint(std::vector<Constraint> parts) : parts_(std::move(parts)) {}

  std::unique_ptr<TokenMatcher> begin() const override { return std::make_unique<Matcher>(parts_); }

 private:
  class Matcher final : public TokenMatcher {
   public:
    explicit Matcher(const std::vector<Constraint>& parts) {
      for (const Constraint& part : parts) parts_.push_back(part->begin());
    }

    void fill_mask(std::span<uint32_t> allowed, int32_t tokens_left) override {
      parts_.front()->fill_mask(allowed, tokens_left);
      std::vector<uint32_t> part(allowed.size()), both(allowed.size());
      for (size_t i = 1; i < parts_.size(); ++i) {
        parts_[i]->fill_mask(part, tokens_left);
        uint32_t any = 0;
        for (size_t word = 0; word < both.size(); ++word) {
          any |= both[word] = allowed[word] & part[word];
        }
        if (any == 0) return;  // the rest gives way
        std::copy(both.begin(), both.end(), allowed.begin());
      }
    }

    bool only_ends() override {
      return std::any_of(parts_.begin(), parts_.end(),
                         [](const auto& part) { return part->only_ends(); });
    }

    void accept(TokenId token) override {
      for (const auto& part : parts_) part->accept(token);
    }

   private:
    std::vector<std::unique_ptr<TokenMatcher>> parts_;
  };

  const std::vector<Constraint> parts_;
};

}  // namespace

Constraint allow_tokens(std::vector<TokenId> allowed, const Tokenizer& tokenizer) {
  CHECK(!allowed.empty());
  return std::make_shared<AllowedTokens>(std::move(allowed), tokenizer);
}

Constraint ban_sequences(std::vector<std::vector<TokenId>> banned) {
  return std::make_shared<BannedSequences>(std::move(banned));
}

// vLLM's rule: behind a space a word counts where that makes another first token and as many of
// them, so that no space alone is banned.
Result<std::vector<std::vector<TokenId>>> sequences_of_words(const Tokenizer& tokenizer,
                                                             std::span<const std::string> words) {
  const EncodeOptions options{.add_special = false};
  std::vector<std::vector<TokenId>> sequences;
  for (const std::string& word : words) {
    const std::string bare = word.substr(std::min(word.find_first_not_of(" \t\r\n"), word.size()));
    HR_ASSIGN_OR_RETURN(std::vector<TokenId> alone, tokenizer.encode(bare, options));
    if (alone.empty()) return invalid_argument("a word of which the vocabulary has no token");
    HR_ASSIGN_OR_RETURN(std::vector<TokenId> spaced, tokenizer.encode(" " + bare, options));
    const bool another = spaced.size() == alone.size() && spaced.front() != alone.front();
    sequences.push_back(std::move(alone));
    if (another) sequences.push_back(std::move(spaced));
  }
  return sequences;
}

Constraint join_constraints(std::vector<Constraint> parts) {
  CHECK(!parts.empty());
  if (parts.size() == 1) return std::move(parts.front());
  return std::make_shared<JoinedConstraint>(std::move(parts));
}

}  // namespace headrace
