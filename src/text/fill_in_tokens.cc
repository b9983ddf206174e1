#include "text/fill_in_tokens.h"

#include <string_view>
#include <unordered_map>

namespace headrace {
namespace {

struct FillInSpelling {
  std::string_view text;
  TokenId FillInTokens::*mark;
};

constexpr FillInSpelling kSpellings[] = {
    {"<|fim_prefix|>", &FillInTokens::prefix},  // Qwen, CodeGemma
    {"<|fim_suffix|>", &FillInTokens::suffix},
    {"<|fim_middle|>", &FillInTokens::middle},
    {"<fim_prefix>", &FillInTokens::prefix},  // StarCoder, Granite
    {"<fim_suffix>", &FillInTokens::suffix},
    {"<fim_middle>", &FillInTokens::middle},
    {"<fim-prefix>", &FillInTokens::prefix},  // SantaCoder
    {"<fim-suffix>", &FillInTokens::suffix},
    {"<fim-middle>", &FillInTokens::middle},
    {"<\xEF\xBD\x9C"
     "fim\xE2\x96\x81"
     "begin\xEF\xBD\x9C>",
     &FillInTokens::prefix},  // DeepSeek
    {"<\xEF\xBD\x9C"
     "fim\xE2\x96\x81"
     "hole\xEF\xBD\x9C>",
     &FillInTokens::suffix},
    {"<\xEF\xBD\x9C"
     "fim\xE2\x96\x81"
     "end\xEF\xBD\x9C>",
     &FillInTokens::middle},
    {"\xE2\x96\x81<PRE>", &FillInTokens::prefix},  // CodeLlama
    {"\xE2\x96\x81<SUF>", &FillInTokens::suffix},
    {"\xE2\x96\x81<MID>", &FillInTokens::middle},
    {"<|repo_name|>", &FillInTokens::repository},
    {"<repo_name>", &FillInTokens::repository},
    {"<reponame>", &FillInTokens::repository},
    {"<|file_sep|>", &FillInTokens::file},
    {"<file_sep>", &FillInTokens::file},
};

// Models close what they filled in with one of these, too.
constexpr std::string_view kEnds[] = {"<|fim_pad|>",  "<fim_pad>",  "<|repo_name|>",
                                      "<|file_sep|>", "<file_sep>", "\xE2\x96\x81<EOT>"};

}  // namespace

std::optional<FillInTokens> find_fill_in_tokens(const Vocab& vocab) {
  FillInTokens found;
  std::unordered_map<std::string_view, TokenId FillInTokens::*> marks;
  for (const FillInSpelling& spelling : kSpellings) marks.emplace(spelling.text, spelling.mark);
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    const std::string_view text = vocab.tokens[id];
    const auto mark = marks.find(text);
    if (mark != marks.end()) found.*(mark->second) = static_cast<TokenId>(id);
    for (std::string_view end : kEnds) {
      if (text == end) found.ends.push_back(static_cast<TokenId>(id));
    }
  }
  if (found.prefix < 0 || found.suffix < 0 || found.middle < 0) return std::nullopt;
  return found;
}

}  // namespace headrace
