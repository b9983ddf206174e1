#include "text/tokenizer.h"

#include <algorithm>
#include <limits>

#include <fmt/core.h>

#include "text/byte_level.h"

namespace headrace {
namespace {

constexpr size_t kTextBytesMax = std::numeric_limits<int32_t>::max();

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::create(Vocab vocab) {
  HR_RETURN_IF_ERROR(validate(vocab));
  if (vocab.model != "gpt2") {
    return unsupported(
        fmt::format("tokenizer model '{}' is not supported (known: gpt2)", vocab.model), "model");
  }
  HR_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::create(vocab.pre));
  HR_ASSIGN_OR_RETURN(SpecialMatcher specials, SpecialMatcher::create(vocab));
  const TokenTable table(vocab.tokens);
  HR_ASSIGN_OR_RETURN(BpeMerges merges, BpeMerges::create(vocab, table));
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(vocab), std::move(pre_tokenizer),
                                                  std::move(specials), std::move(merges)));
}

Tokenizer::Tokenizer(Vocab vocab, PreTokenizer pre_tokenizer, SpecialMatcher specials,
                     BpeMerges merges)
    : vocab_(std::move(vocab)),
      pre_tokenizer_(std::move(pre_tokenizer)),
      specials_(std::move(specials)),
      merges_(std::move(merges)) {}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > kTextBytesMax) {
    return invalid_argument(
        fmt::format("the text has {} bytes, more than {}", text.size(), kTextBytesMax));
  }
  std::string prefixed;
  if (vocab_.add_space_prefix && !text.empty() && text[0] != ' ') {
    prefixed.append(" ").append(text);
    text = prefixed;
  }
  std::vector<TokenId> ids;
  if (options.add_special && vocab_.add_bos && vocab_.bos >= 0) ids.push_back(vocab_.bos);
  const auto match = options.parse_special ? SpecialMatcher::Match::kUserDefinedAndControl
                                           : SpecialMatcher::Match::kUserDefined;
  size_t at = 0;
  while (const auto special = specials_.find(text, at, match)) {
    HR_RETURN_IF_ERROR(encode_plain(text.substr(at, special->offset - at), ids));
    ids.push_back(special->id);
    at = special->offset + special->length;
  }
  HR_RETURN_IF_ERROR(encode_plain(text.substr(at), ids));
  return ids;
}

Status Tokenizer::encode_plain(std::string_view text, std::vector<TokenId>& ids) const {
  std::vector<std::string_view> pieces;
  HR_RETURN_IF_ERROR(pre_tokenizer_.split(text, pieces));
  for (std::string_view piece : pieces) merges_.encode(piece, ids);
  return ok_status();
}

void Tokenizer::append_token_bytes(TokenId id, std::string& out) const {
  if (!in_vocab(id)) return;
  const std::string_view text = vocab_.tokens[static_cast<size_t>(id)];
  switch (vocab_.kind(id)) {
    case TokenKind::kControl:
    case TokenKind::kUnknown:
    case TokenKind::kUserDefined:
      out.append(text);
      return;
    default:
      append_spelled_bytes(text, out);
  }
}

std::string Tokenizer::token_bytes(TokenId id) const {
  std::string bytes;
  append_token_bytes(id, bytes);
  return bytes;
}

std::string Tokenizer::decode(TokenSpan ids, bool skip_special) const {
  std::string bytes;
  for (TokenId id : ids) {
    if (!skip_special || !is_control(id)) append_token_bytes(id, bytes);
  }
  return bytes;
}

bool Tokenizer::is_control(TokenId id) const {
  if (!in_vocab(id)) return false;
  const TokenKind kind = vocab_.kind(id);
  return kind == TokenKind::kControl || kind == TokenKind::kUnknown;
}

bool Tokenizer::is_end(TokenId id) const {
  return std::find(vocab_.end_ids.begin(), vocab_.end_ids.end(), id) != vocab_.end_ids.end();
}

}  // namespace headrace
