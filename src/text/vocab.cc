#include "text/vocab.h"

#include <algorithm>
#include <array>

#include <fmt/core.h>

namespace headrace {
namespace {

// Marks that end a turn or a text, by family.
constexpr std::array<std::string_view, 16> kEndMarks = {
    "<|endoftext|>",          // GPT-2, Qwen, SmolLM
    "<|im_end|>",             // ChatML
    "<|eot_id|>",             // Llama 3
    "<|eom_id|>",             // Llama 3, end of a message that waits for a tool
    "<|end_of_text|>",        // Llama 3 base, Granite
    "<|end|>",                // Phi-3; of a message only in Harmony
    "<|return|>",             // Harmony
    "<|call|>",               // Harmony, end of a tool call
    "<end_of_turn>",          // Gemma
    "<|endofturn|>",          // HyperCLOVA
    "<|eot|>",                // Llama 4
    "<|END_OF_TURN_TOKEN|>",  // Command R
    "<end_of_utterance>",     // SmolVLM
    "</s>",                   // SentencePiece families
    "<EOT>",                  // CodeLlama
    "<｜end▁of▁sentence｜>",  // DeepSeek
};

// A vocabulary larger than this is a lie: the largest published ones have 2^18 entries.
constexpr size_t kTokenCountMax = size_t{1} << 24;

Status validate_id(const Vocab& vocab, TokenId id, std::string_view name) {
  if (id == -1 || (id >= 0 && static_cast<size_t>(id) < vocab.tokens.size())) return ok_status();
  return corrupt(
      fmt::format("{} id {} is outside the vocabulary of {} tokens", name, id, vocab.tokens.size()),
      std::string(name));
}

}  // namespace

void add_known_end_ids(Vocab& vocab) {
  const auto has = [&](std::string_view text) {
    return std::find(vocab.tokens.begin(), vocab.tokens.end(), text) != vocab.tokens.end();
  };
  const bool harmony = has("<|channel|>") && has("<|return|>");
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    if (vocab.kind(static_cast<TokenId>(id)) != TokenKind::kControl) continue;
    if (harmony && vocab.tokens[id] == "<|end|>") continue;
    if (std::find(kEndMarks.begin(), kEndMarks.end(), vocab.tokens[id]) != kEndMarks.end()) {
      vocab.end_ids.push_back(static_cast<TokenId>(id));
    }
  }
  if (vocab.eos >= 0) vocab.end_ids.push_back(vocab.eos);
  std::sort(vocab.end_ids.begin(), vocab.end_ids.end());
  vocab.end_ids.erase(std::unique(vocab.end_ids.begin(), vocab.end_ids.end()), vocab.end_ids.end());
}

bool has_only_added_tokens_from(const Vocab& vocab, size_t first) {
  for (size_t id = first; id < vocab.tokens.size(); ++id) {
    const TokenKind kind = vocab.kind(static_cast<TokenId>(id));
    const bool added = kind == TokenKind::kControl || kind == TokenKind::kUserDefined ||
                       kind == TokenKind::kUnused;
    if (!added) return false;
  }
  return true;
}

void cut_vocab(Vocab& vocab, size_t count) {
  const auto is_cut = [&](TokenId id) { return id >= 0 && static_cast<size_t>(id) >= count; };
  vocab.tokens.resize(count);
  if (!vocab.kinds.empty()) vocab.kinds.resize(count);
  if (!vocab.scores.empty()) vocab.scores.resize(count);
  std::erase_if(vocab.added, [&](const AddedToken& token) { return is_cut(token.id); });
  std::erase_if(vocab.end_ids, is_cut);
  for (TokenId* id : {&vocab.bos, &vocab.eos, &vocab.unk, &vocab.pad}) {
    if (is_cut(*id)) *id = -1;
  }
  vocab.add_bos = vocab.add_bos && vocab.bos >= 0;
  vocab.add_eos = vocab.add_eos && vocab.eos >= 0;
  if (!vocab.pair) return;
  for (const auto* ids : {&vocab.pair->front, &vocab.pair->middle, &vocab.pair->back}) {
    if (std::any_of(ids->begin(), ids->end(), is_cut)) return vocab.pair.reset();
  }
}

Status validate(const Vocab& vocab) {
  if (vocab.tokens.empty()) return corrupt("the vocabulary has no tokens", "tokens");
  if (vocab.tokens.size() > kTokenCountMax) {
    return corrupt("the vocabulary has more than 2^24 tokens", "tokens");
  }
  if (!vocab.kinds.empty() && vocab.kinds.size() != vocab.tokens.size()) {
    return corrupt(
        fmt::format("{} token kinds for {} tokens", vocab.kinds.size(), vocab.tokens.size()),
        "token_type");
  }
  if (!vocab.scores.empty() && vocab.scores.size() != vocab.tokens.size()) {
    return corrupt(
        fmt::format("{} token scores for {} tokens", vocab.scores.size(), vocab.tokens.size()),
        "scores");
  }
  if (!vocab.merges.empty() && !vocab.merge_pairs.empty()) {
    return corrupt("merges are spelled in two ways", "merges");
  }
  HR_RETURN_IF_ERROR(validate_id(vocab, vocab.bos, "bos"));
  HR_RETURN_IF_ERROR(validate_id(vocab, vocab.eos, "eos"));
  HR_RETURN_IF_ERROR(validate_id(vocab, vocab.unk, "unk"));
  HR_RETURN_IF_ERROR(validate_id(vocab, vocab.pad, "pad"));
  for (const AddedToken& token : vocab.added) {
    if (token.id < 0) return corrupt("an added token's id is negative", "added_tokens");
    HR_RETURN_IF_ERROR(validate_id(vocab, token.id, "added_tokens"));
  }
  if (vocab.pair) {
    for (const auto* ids : {&vocab.pair->front, &vocab.pair->middle, &vocab.pair->back}) {
      for (TokenId id : *ids) HR_RETURN_IF_ERROR(validate_id(vocab, id, "post_processor"));
    }
  }
  for (TokenId id : vocab.end_ids) {
    if (id < 0) return corrupt("an end id is negative", "end_ids");
    HR_RETURN_IF_ERROR(validate_id(vocab, id, "end_ids"));
  }
  return ok_status();
}

}  // namespace headrace
