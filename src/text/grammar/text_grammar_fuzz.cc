// Any regular expression, GBNF or JSON schema, and any text behind it: the first byte picks what it
// is, a NUL ends it. What compiles is walked with the text, and with tokens that its masks allow:
// each is taken, and what is said to be dead stays so.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "text/grammar/answer_grammar.h"
#include "text/grammar/grammar_automaton.h"
#include "text/grammar/grammar_constraint.h"
#include "text/vocab_fixture.h"

using namespace headrace;

namespace {

const Tokenizer& tokenizer() {
  static const auto made = [] {
    Vocab vocab = tiny_vocab();
    vocab.end_ids = {vocab.eos};
    return *Tokenizer::create(std::move(vocab));
  }();
  return *made;
}

bool read_form(uint8_t kind, std::string_view text, AnswerForm& form) {
  using Kind = AnswerForm::Kind;
  form.field = "form";
  form.pattern = text;
  switch (kind % 4) {
    case 0:
      form.kind = Kind::kRegex;
      return true;
    case 1:
      form.kind = Kind::kGbnf;
      return true;
    case 2: {
      const Result<Json> schema = parse_json(text);
      if (!schema.ok()) return false;
      form.kind = Kind::kJsonSchema;
      form.schema = *schema;
      return true;
    }
    default:
      form.kind = Kind::kChoice;
      form.choices = {std::string(text), std::string(text.substr(text.size() / 2)), "a"};
      return true;
  }
}

void walk_tokens(const std::shared_ptr<const Grammar>& grammar, std::string_view bits) {
  static const auto trie =
      std::make_shared<const TokenTrie>(tokenizer(), std::span<const TokenId>());
  const auto constraint = make_grammar_constraint(grammar, trie);
  if (!constraint.ok()) return;
  const auto matcher = (*constraint)->begin();
  std::vector<uint32_t> mask((static_cast<size_t>(tokenizer().vocab_size()) + 31) / 32);
  GrammarPlace place(std::make_shared<GrammarAutomaton>(grammar));
  for (char c : bits.substr(0, 48)) {
    matcher->fill_mask(mask, kManyTokens);
    std::vector<TokenId> allowed;
    for (TokenId id = 0; id < tokenizer().vocab_size(); ++id) {
      const bool may = mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1;
      if (may && !tokenizer().is_end(id)) allowed.push_back(id);
    }
    if (allowed.empty()) return;
    const TokenId id = allowed[static_cast<uint8_t>(c) * 7 % allowed.size()];
    CHECK(!tokenizer().is_control(id));
    matcher->accept(id);
    CHECK(place.accept(tokenizer().token_bytes(id)));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > 4096) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0', 1), input.size());
  AnswerPlan plan;
  if (!read_form(data[0], input.substr(1, end - 1), plan.words)) return 0;
  const auto grammar = answer_grammar(plan);
  if (!grammar.ok()) {
    CHECK(grammar.status().field() == "form" && !grammar.status().message().empty());
    return 0;
  }
  const std::string_view text = input.substr(end);
  GrammarPlace place(std::make_shared<GrammarAutomaton>(*grammar));
  for (char c : text) {
    const bool was_dead = place.dead();
    const bool taken = place.accept(std::string_view(&c, 1));
    CHECK(!(was_dead && taken) && taken == !place.dead());
  }
  walk_tokens(*grammar, text.empty() ? input : text);
  return 0;
}
