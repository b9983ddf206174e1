#include "bench/edge_model.h"

#include <algorithm>
#include <cctype>
#include <deque>
#include <optional>
#include <utility>

#include "stack/model_files.h"
#include "stack/model_source.h"
#include "text/byte_level.h"

namespace headrace {
namespace {

constexpr std::string_view kEdgeTemplate =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + '\\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

Vocab make_edge_vocab() {
  auto storage = std::make_shared<std::deque<std::string>>();
  Vocab vocab;
  vocab.model = "gpt2";
  vocab.pre = "smollm";
  const auto add = [&](std::string spelling, TokenKind kind) {
    storage->push_back(std::move(spelling));
    vocab.tokens.push_back(storage->back());
    vocab.kinds.push_back(kind);
  };
  add("<|im_start|>", TokenKind::kControl);
  add("<|im_end|>", TokenKind::kControl);
  for (int byte = 0; byte < 256; ++byte) {
    add(spell_bytes(std::string(1, static_cast<char>(byte))), TokenKind::kNormal);
  }
  // Words of two syllables, as long as a token of English is.
  constexpr std::string_view kConsonants = "bdfghklmnprstvwz", kVowels = "aeiou";
  for (size_t i = 0; i < kConsonants.size() * kVowels.size() * kConsonants.size(); ++i) {
    std::string word = " ";
    word += kConsonants[i % kConsonants.size()];
    word += kVowels[i / kConsonants.size() % kVowels.size()];
    word += kConsonants[i / kConsonants.size() / kVowels.size()];
    if (i % 2 == 1) word += kVowels[i % kVowels.size()];
    add(spell_bytes(word), TokenKind::kNormal);
  }
  vocab.bos = 0;
  vocab.eos = 1;
  vocab.end_ids = {1};
  vocab.storage = std::move(storage);
  return vocab;
}

bool is_word(const Tokenizer& tokenizer, TokenId id) {
  if (tokenizer.is_control(id) || tokenizer.is_end(id)) return false;
  const std::string bytes = tokenizer.token_bytes(id);
  return bytes.size() > 1 && bytes[0] == ' ' &&
         std::all_of(bytes.begin() + 1, bytes.end(),
                     [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; });
}

Status find_words(EdgeModel& model) {
  for (TokenId id = 0; id < model.tokenizer->vocab_size(); ++id) {
    if (is_word(*model.tokenizer, id)) model.words.push_back(id);
  }
  if (!model.words.empty()) return ok_status();
  return invalid_argument("-m " + model.name +
                          ": no token of its vocabulary is a space and letters");
}

}  // namespace

Result<EdgeModel> make_edge_model() {
  EdgeModel model{.name = "made-up words"};
  HR_ASSIGN_OR_RETURN(model.tokenizer, Tokenizer::create(make_edge_vocab()));
  HR_ASSIGN_OR_RETURN(ChatTemplate chat_template, ChatTemplate::compile(kEdgeTemplate));
  model.chat_template = std::make_unique<ChatTemplate>(std::move(chat_template));
  HR_RETURN_IF_ERROR(find_words(model));
  return model;
}

Result<EdgeModel> read_edge_model(const std::string& path) {
  HR_ASSIGN_OR_RETURN(const auto source, open_model_source(path));
  ModelText text = read_text(*source);
  HR_RETURN_IF_ERROR(refusal(text.problems));
  if (!text.tokenizer || !text.chat_template) {
    return invalid_argument("-m " + path + ": the model has no tokenizer or no chat template");
  }
  EdgeModel model{.name = model_name(path), .tokenizer = std::move(text.tokenizer)};
  model.chat_template = std::make_unique<ChatTemplate>(std::move(*text.chat_template));
  HR_RETURN_IF_ERROR(find_words(model));
  return model;
}

}  // namespace headrace
