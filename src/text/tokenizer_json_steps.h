// The steps of a tokenizer.json (normalizer, pre_tokenizer, decoder, post_processor) as a recipe.
#pragma once

#include <optional>

#include "base/ids.h"
#include "base/status.h"
#include "text/json_fields.h"
#include "text/tokenizer_recipe.h"
#include "text/vocab.h"

namespace headrace {

// All take the whole file. Each step that is not known is kUnsupported by its type's name.
Status read_normalizer(const JsonFields& file, TokenizerRecipe& recipe);
// Sets model.kind to kByteBpe where pieces are spelled in GPT-2's alphabet.
Status read_pre_tokenizer(const JsonFields& file, TokenizerRecipe& recipe);
Status read_decoder(const JsonFields& file, TokenizerRecipe& recipe);

// What the post-processor puts around a text, and around two.
struct TextFrame {
  std::optional<TokenId> front, back;
  std::optional<PairFrame> pair;  // empty: it has no form of pairs, or one that is not taken
};
Result<TextFrame> read_post_processor(const JsonFields& file);

}  // namespace headrace
