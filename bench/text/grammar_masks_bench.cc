// What the masks of structured output cost: the tokens of documents are followed through the forms
// that they satisfy, the first time (states are found) and the second (states are known).
//
//   grammar_masks_bench MODEL.gguf
//
// Times are those of the thread's CPU, so other programs hardly change them.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "stack/gguf_vocab.h"
#include "text/grammar/answer_grammar.h"
#include "text/grammar/grammar_constraint.h"
#include "text/tokenizer.h"

namespace headrace {
namespace {

using Kind = AnswerForm::Kind;

struct Case {
  const char* name;
  Kind kind;
  const char* form;
  const char* document;
};

constexpr Case kCases[] = {
    {"any JSON object", Kind::kJsonObject, "",
     R"({"name": "Ann Lee", "age": 31, "tags": ["a", "b c"], "deep": {"x": [1, 2.5e3, null, true], "y": {"z": "q\n"}}})"},
    {"schema", Kind::kJsonSchema,
     R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":130},
         "tags":{"type":"array","items":{"enum":["a","bc","d"]},"maxItems":3}},"required":["name","age"]})",
     R"({"name": "Ann Lee the third of her name", "age": 31, "tags": ["a", "bc"]})"},
    {"counted strings", Kind::kJsonSchema,
     R"({"type":"object","properties":{"life":{"type":"string","maxLength":200},
         "title":{"type":"string","minLength":3,"maxLength":50}},"required":["life","title"]})",
     R"({"life": "She was born in a small town and moved to the city where she works as an engineer today.",
 "title": "Chief Engineer"})"},
    {"counted regex", Kind::kRegex, "[A-Za-z ,.]{1,300}",
     "The quick brown fox jumps over the lazy dog, and then it sleeps."},
};

double cpu_milliseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// Milliseconds of each mask on the way.
std::vector<double> follow(const TokenConstraint& constraint, const std::vector<TokenId>& ids,
                           std::span<uint32_t> mask) {
  std::vector<double> times;
  const auto matcher = constraint.begin();
  for (TokenId id : ids) {
    const double begin = cpu_milliseconds();
    matcher->fill_mask(mask, kManyTokens);
    times.push_back(cpu_milliseconds() - begin);
    CHECK(mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1);
    matcher->accept(id);
  }
  return times;
}

void run(const Case& each, const Tokenizer& tokenizer, std::shared_ptr<const TokenTrie> trie) {
  AnswerPlan plan;
  plan.words.kind = each.kind;
  if (each.kind == Kind::kJsonSchema) plan.words.schema = *parse_json(each.form);
  plan.words.pattern = each.form;
  const double begin = cpu_milliseconds();
  const auto constraint =
      make_grammar_constraint(answer_grammar(plan).value(), std::move(trie)).value();
  const double made = cpu_milliseconds() - begin;
  const auto ids = tokenizer.encode(each.document, {.add_special = false}).value();
  std::vector<uint32_t> mask((static_cast<size_t>(tokenizer.vocab_size()) + 31) / 32);
  for (const char* round : {"first", "again"}) {
    std::vector<double> times = follow(*constraint, ids, mask);
    std::sort(times.begin(), times.end());
    std::printf("%-16s %s: made in %.1f ms; %zu masks, ms: median %.4f, most %.3f, together %.2f\n",
                each.name, round, made, times.size(), times[times.size() / 2], times.back(),
                std::accumulate(times.begin(), times.end(), 0.0));
  }
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  using namespace headrace;
  if (argc != 2) {
    std::fprintf(stderr, "usage: grammar_masks_bench MODEL.gguf\n");
    return 2;
  }
  const auto file = GgufFile::open(argv[1]).value();
  const auto tokenizer = Tokenizer::create(vocab_from_gguf(*file, file).value()).value();
  const double begin = cpu_milliseconds();
  const auto trie = std::make_shared<const TokenTrie>(*tokenizer, std::span<const TokenId>());
  std::printf("%d tokens, a tree of %zu nodes made in %.1f ms\n", tokenizer->vocab_size(),
              trie->node_count(), cpu_milliseconds() - begin);
  for (const Case& each : kCases) run(each, *tokenizer, trie);
}
