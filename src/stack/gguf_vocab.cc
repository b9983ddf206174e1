#include "stack/gguf_vocab.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "text/named_templates.h"
#include "text/rwkv_vocab.h"
#include "text/tokenizer_recipe.h"
#include "weights/encoder_config.h"

namespace headrace {
namespace {

Status read_kinds(const GgufFile& file, Vocab& vocab) {
  constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  HR_ASSIGN_OR_RETURN(const auto types, file.optional_array(kKey));
  if (!types) return ok_status();
  if (types->size() != vocab.tokens.size()) {
    return file.corrupt_field(
        kKey, fmt::format("{} entries for {} tokens", types->size(), vocab.tokens.size()));
  }
  vocab.kinds.reserve(types->size());
  for (size_t i = 0; i < types->size(); ++i) {
    const auto kind = types->int_at(i);
    if (!kind || *kind < static_cast<int64_t>(TokenKind::kNormal) ||
        *kind > static_cast<int64_t>(TokenKind::kByte)) {
      return file.corrupt_field(kKey, fmt::format("entry {} is no token type (1 to 6)", i));
    }
    vocab.kinds.push_back(static_cast<TokenKind>(*kind));
  }
  return ok_status();
}

Status read_scores(const GgufFile& file, Vocab& vocab) {
  constexpr std::string_view kKey = "tokenizer.ggml.scores";
  HR_ASSIGN_OR_RETURN(const auto scores, file.optional_array(kKey));
  if (!scores) return ok_status();
  if (scores->size() != vocab.tokens.size()) {
    return file.corrupt_field(
        kKey, fmt::format("{} entries for {} tokens", scores->size(), vocab.tokens.size()));
  }
  vocab.scores.reserve(scores->size());
  for (size_t i = 0; i < scores->size(); ++i) {
    const auto score = scores->float_at(i);
    if (!score) return file.corrupt_field(kKey, fmt::format("entry {} is no number", i));
    vocab.scores.push_back(*score);
  }
  return ok_status();
}

// A special token's id, or -1 where the file names none.
Result<TokenId> read_id(const GgufFile& file, std::string_view key, size_t token_count) {
  HR_ASSIGN_OR_RETURN(const auto id, file.optional_int(key));
  if (!id) return TokenId{-1};
  if (*id < 0 || static_cast<uint64_t>(*id) >= token_count) {
    return file.corrupt_field(
        key, fmt::format("{} is no id of a vocabulary of {} tokens", *id, token_count));
  }
  return static_cast<TokenId>(*id);
}

Status read_special_ids(const GgufFile& file, Vocab& vocab) {
  const size_t count = vocab.tokens.size();
  HR_ASSIGN_OR_RETURN(vocab.bos, read_id(file, "tokenizer.ggml.bos_token_id", count));
  HR_ASSIGN_OR_RETURN(vocab.eos, read_id(file, "tokenizer.ggml.eos_token_id", count));
  HR_ASSIGN_OR_RETURN(vocab.unk, read_id(file, "tokenizer.ggml.unknown_token_id", count));
  HR_ASSIGN_OR_RETURN(vocab.pad, read_id(file, "tokenizer.ggml.padding_token_id", count));
  for (const std::string_view key :
       {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    HR_ASSIGN_OR_RETURN(const TokenId id, read_id(file, key, count));
    if (id >= 0) vocab.end_ids.push_back(id);
  }
  add_known_end_ids(vocab);
  return ok_status();
}

Status read_flags(const GgufFile& file, Vocab& vocab) {
  HR_ASSIGN_OR_RETURN(const auto add_bos, file.optional_bool("tokenizer.ggml.add_bos_token"));
  HR_ASSIGN_OR_RETURN(const auto add_eos, file.optional_bool("tokenizer.ggml.add_eos_token"));
  HR_ASSIGN_OR_RETURN(const auto add_space, file.optional_bool("tokenizer.ggml.add_space_prefix"));
  HR_ASSIGN_OR_RETURN(const auto chat_template, file.optional_string("tokenizer.chat_template"));
  const bool sentence_piece = vocab.model == "llama" || vocab.model == "t5";
  vocab.add_bos = add_bos.value_or(adds_bos_by_default(vocab.model, vocab.pre));
  vocab.add_eos = add_eos.value_or(vocab.model == "t5" || vocab.model == "bert");
  vocab.add_space_prefix = add_space.value_or(sentence_piece);
  vocab.chat_template = chat_template.value_or("");
  // llama.cpp's converter writes the name of one.
  if (const std::string_view named = named_template(vocab.chat_template); !named.empty()) {
    vocab.chat_template = named;
  }
  return ok_status();
}

// SentencePiece's compiled normaliser, an array of bytes.
Status read_charsmap(const GgufFile& file, Vocab& vocab) {
  constexpr std::string_view kKey = "tokenizer.ggml.precompiled_charsmap";
  HR_ASSIGN_OR_RETURN(const auto bytes, file.optional_array(kKey));
  for (size_t i = 0; bytes && i < bytes->size(); ++i) {
    const auto byte = bytes->int_at(i);
    if (!byte || *byte < -128 || *byte > 255) {
      return file.corrupt_field(kKey, fmt::format("entry {} is no byte", i));
    }
    vocab.charsmap.push_back(static_cast<char>(*byte));
  }
  HR_ASSIGN_OR_RETURN(const auto remove,
                      file.optional_bool("tokenizer.ggml.remove_extra_whitespaces"));
  vocab.remove_extra_spaces = remove.value_or(false);
  return ok_status();
}

// WordPiece. Files have "\u2581word" and "end" where the model's makers had "word" and "##end";
// marks are as they were.
void unescape_word_pieces(Vocab& vocab) {
  constexpr std::string_view kWordBegin = "\xE2\x96\x81";
  struct Spelled {
    std::shared_ptr<const void> file;
    std::vector<std::string> tokens;
  };
  const auto spelled = std::make_shared<Spelled>();
  spelled->file = std::move(vocab.storage);
  spelled->tokens.reserve(vocab.tokens.size());
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    std::string_view& token = vocab.tokens[id];
    const bool mark = vocab.kind(static_cast<TokenId>(id)) == TokenKind::kControl ||
                      (token.starts_with('[') && token.ends_with(']'));
    if (token.starts_with(kWordBegin)) {
      token.remove_prefix(kWordBegin.size());
    } else if (!mark && !token.empty()) {
      token = spelled->tokens.emplace_back("##" + std::string(token));
    }
  }
  vocab.storage = spelled;
}

// Of WordPiece the marks around a text, which older files name by the words of BERT's makers or
// not at all; and how a pair of texts is framed.
Status read_word_piece_marks(const GgufFile& file, Vocab& vocab) {
  const size_t count = vocab.tokens.size();
  const auto find = [&](std::string_view key, std::string_view mark,
                        TokenId known) -> Result<TokenId> {
    if (known >= 0) return known;
    HR_ASSIGN_OR_RETURN(const TokenId named, read_id(file, key, count));
    if (named >= 0) return named;
    const auto at = std::find(vocab.tokens.begin(), vocab.tokens.end(), mark);
    if (at == vocab.tokens.end()) {
      return file.corrupt_field(key, fmt::format("missing, and no token is {}", mark));
    }
    return static_cast<TokenId>(at - vocab.tokens.begin());
  };
  HR_ASSIGN_OR_RETURN(vocab.bos, find("tokenizer.ggml.cls_token_id", "[CLS]", vocab.bos));
  HR_ASSIGN_OR_RETURN(vocab.eos, find("tokenizer.ggml.seperator_token_id", "[SEP]", vocab.eos));
  HR_ASSIGN_OR_RETURN(vocab.unk, find("tokenizer.ggml.unknown_token_id", "[UNK]", vocab.unk));
  HR_ASSIGN_OR_RETURN(const auto lowercase,
                      file.optional_bool("tokenizer.ggml.normalizer.lowercase"));
  vocab.lowercase = lowercase.value_or(true);
  return ok_status();
}

// Two texts that an encoder reads together. RoBERTa's kin, which are of BERT's architecture there,
// have two marks between them.
Status read_pair_frame(const GgufFile& file, Vocab& vocab) {
  HR_ASSIGN_OR_RETURN(const auto architecture, file.optional_string("general.architecture"));
  const bool marked = vocab.add_bos && vocab.add_eos && vocab.bos >= 0 && vocab.eos >= 0;
  if (!marked || !is_gguf_encoder(architecture.value_or(""))) return ok_status();
  const bool word_piece = vocab.model == "bert";
  vocab.pair = PairFrame{
      .front = {vocab.bos}, .middle = {vocab.eos}, .back = {vocab.eos}, .second_type = word_piece};
  if (*architecture == "bert" && !word_piece) vocab.pair->middle.push_back(vocab.eos);
  return ok_status();
}

}  // namespace

Result<Vocab> vocab_from_gguf(const GgufFile& file, std::shared_ptr<const void> storage) {
  Vocab vocab;
  vocab.storage = std::move(storage);
  HR_ASSIGN_OR_RETURN(vocab.model, file.require_string("tokenizer.ggml.model"));
  HR_ASSIGN_OR_RETURN(const auto pre, file.optional_string("tokenizer.ggml.pre"));
  vocab.pre = pre.value_or("default");
  HR_ASSIGN_OR_RETURN(const GgufStrings tokens, file.require_strings("tokenizer.ggml.tokens"));
  vocab.tokens.assign(tokens.begin(), tokens.end());
  if (file.find("tokenizer.ggml.merges") != nullptr) {
    HR_ASSIGN_OR_RETURN(const GgufStrings merges, file.require_strings("tokenizer.ggml.merges"));
    vocab.merges.assign(merges.begin(), merges.end());
  }
  HR_RETURN_IF_ERROR(read_kinds(file, vocab));
  if (vocab.model == "rwkv") unescape_rwkv_tokens(vocab);
  if (vocab.model == "bert") unescape_word_pieces(vocab);
  HR_RETURN_IF_ERROR(read_scores(file, vocab));
  HR_RETURN_IF_ERROR(read_charsmap(file, vocab));
  HR_RETURN_IF_ERROR(read_special_ids(file, vocab));
  if (vocab.model == "bert") HR_RETURN_IF_ERROR(read_word_piece_marks(file, vocab));
  HR_RETURN_IF_ERROR(read_flags(file, vocab));
  HR_RETURN_IF_ERROR(read_pair_frame(file, vocab));
  if (Status status = validate(vocab); !status.ok()) return status.with_context(file.name());
  return vocab;
}

}  // namespace headrace
