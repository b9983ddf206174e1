// The text of a model without the model: what `bench edge` serves.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace headrace {

struct EdgeModel {
  std::string name;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;
  // Tokens of letters and spaces: each leaves text at once, and no reader of tool calls or thoughts
  // holds it back.
  std::vector<TokenId> words;
};

// A byte-level vocabulary of made-up words, with ChatML's template.
Result<EdgeModel> make_edge_model();
// Tokenizer and template of a model on disk (open_model_source).
Result<EdgeModel> read_edge_model(const std::string& path);

}  // namespace headrace
