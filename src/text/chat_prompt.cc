#include "text/chat_prompt.h"

#include <algorithm>
#include <cctype>

namespace headrace {
namespace {

// U+FDD0..U+FDEF: noncharacters, never in interchanged text, not white space, no letters.
constexpr int kNoncharacters = 32;
std::string noncharacter(int index) { return {'\xEF', '\xB7', static_cast<char>(0x90 + index)}; }

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

std::string to_lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), lower);
  return result;
}

void replace_all(std::string& text, std::string_view from, char to) {
  size_t out = 0;
  for (size_t in = 0; in < text.size();) {
    if (text.compare(in, from.size(), from) == 0) {
      text[out++] = to;
      in += from.size();
    } else {
      text[out++] = text[in++];
    }
  }
  text.resize(out);
}

bool has_null_content(const Json& message) {
  const Json* content = message.find("content");
  return content != nullptr && content->is_null();
}

// Stands behind a content that is to be continued, so that its end is found in the template's text
// and a template that trims contents leaves the spaces before it. The last of the noncharacters.
constexpr std::string_view kContinueMark = "\xEF\xB7\xAF";

bool holds_mark(const Json& value) {
  return write_json(value).find(kContinueMark) != std::string::npos;
}

Result<Json> with_continue_mark(const Json& messages, const Json& variables) {
  const auto refuse = [](std::string_view why) {
    return invalid_argument("continue_final_message " + std::string(why), "continue_final_message");
  };
  const bool some = messages.is_array() && !messages.as_array().empty();
  const Json* content = some ? messages.as_array().back().find("content") : nullptr;
  if (!content || !content->is_string()) return refuse("needs a last message with a text");
  if (holds_mark(messages) || holds_mark(variables)) {
    return refuse("is not supported for messages that hold the noncharacter U+FDEF");
  }
  Json marked = messages;
  marked.as_array().back().set("content", content->as_string() + std::string(kContinueMark));
  return marked;
}

// What the template wrote up to the mark. Where it writes the content twice, up to the second.
Result<std::string> up_to_mark(std::string text) {
  const size_t end = text.rfind(kContinueMark);
  if (end == text.npos) {
    return invalid_argument(
        "continue_final_message is not supported by this model: its chat template does not write "
        "the last message as it is",
        "continue_final_message");
  }
  text.resize(end);
  for (size_t at = text.find(kContinueMark); at != text.npos; at = text.find(kContinueMark)) {
    text.erase(at, kContinueMark.size());
  }
  return text;
}

// Null contents become empty texts.
Json with_empty_contents(const Json& messages) {
  Json result = messages;
  for (Json& message : result.as_array()) {
    if (has_null_content(message)) message.set("content", "");
  }
  return result;
}

size_t count_of(std::string_view text, std::string_view word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++count;
  return count;
}

// Whether the template minds that a turn of tool calls has null for its content, as clients send
// it. Some ask for it and then write the calls; others join it to a text, which fails, or print it,
// which gives "None".
bool takes_null_content(const ChatTemplate& chat_template, const Vocab& vocab) {
  const Json function = Json::object().set("name", "f").set("arguments", Json::object());
  const Json call =
      Json::object().set("id", "call00001").set("type", "function").set("function", function);
  const Json user = Json::object().set("role", "user").set("content", "x");
  const Json calls = Json::object()
                         .set("role", "assistant")
                         .set("content", Json())
                         .set("tool_calls", Json(Json::Array{call}));
  const Json chat(Json::Array{user, calls});
  const auto with_null = render_chat(chat_template, vocab, chat, Json(), false, Json());
  if (!with_null.ok()) return false;
  const auto with_empty =
      render_chat(chat_template, vocab, with_empty_contents(chat), Json(), false, Json());
  return !with_empty.ok() || count_of(*with_null, "None") <= count_of(*with_empty, "None");
}

}  // namespace

Result<std::unique_ptr<ChatPromptEncoder>> ChatPromptEncoder::create(
    const Tokenizer& tokenizer, const ChatTemplate& chat_template) {
  HR_ASSIGN_OR_RETURN(auto matcher, SpecialMatcher::create(tokenizer.vocab()));
  return std::unique_ptr<ChatPromptEncoder>(
      new ChatPromptEncoder(tokenizer, chat_template, std::move(matcher)));
}

ChatPromptEncoder::ChatPromptEncoder(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                     SpecialMatcher matcher)
    : tokenizer_(tokenizer), chat_template_(chat_template), matcher_(std::move(matcher)) {
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view text = tokenizer.vocab().tokens[static_cast<size_t>(id)];
    if (!tokenizer.is_control(id) || text.empty()) continue;
    spellings_.push_back(to_lower(text));
    first_bytes_[static_cast<unsigned char>(text[0])] = true;
  }
  std::sort(spellings_.begin(), spellings_.end());
}

Result<std::string> ChatPromptEncoder::render(const Json& messages, const Json& variables,
                                              ChatPromptOptions options) const {
  if (options.continue_final_message) {
    HR_ASSIGN_OR_RETURN(const Json marked, with_continue_mark(messages, variables));
    HR_ASSIGN_OR_RETURN(std::string text,
                        render(marked, variables, {.add_generation_prompt = false}));
    return up_to_mark(std::move(text));
  }
  const Vocab& vocab = tokenizer_.vocab();
  const bool any_null =
      messages.is_array() &&
      std::any_of(messages.as_array().begin(), messages.as_array().end(), has_null_content);
  const bool fill = any_null && !takes_null_content(chat_template_, vocab);
  return render_chat(chat_template_, vocab, fill ? with_empty_contents(messages) : messages, Json(),
                     options.add_generation_prompt, variables);
}

Result<std::vector<TokenId>> ChatPromptEncoder::encode(const Json& messages, const Json& variables,
                                                       ChatPromptOptions options) const {
  HR_ASSIGN_OR_RETURN(std::string text, render(messages, variables, options));
  if (!is_risky(messages) && !is_risky(variables)) {
    return tokenizer_.encode(text, {.add_special = options.add_special,
                                    .parse_special = true,
                                    .tokens_max = options.tokens_max});
  }
  HR_ASSIGN_OR_RETURN(const Shadows shadows, choose_shadows(text));
  HR_ASSIGN_OR_RETURN(const std::string stand_in,
                      render(shadowed(messages, shadows), shadowed(variables, shadows), options));
  if (unshadowed(stand_in, shadows) != text) {
    return invalid_argument("messages spell control tokens where the chat template inspects them",
                            "messages");
  }
  return encode_shadowed(stand_in, shadows, options);
}

// Whether `text` begins with a spelling, or a spelling begins with `text`. Narrows the sorted list
// a character at a time, so a long run of first characters stays cheap.
bool ChatPromptEncoder::begins_spelling(std::string_view text) const {
  auto begin = spellings_.begin(), end = spellings_.end();
  for (size_t depth = 0; depth < text.size(); ++depth) {
    const auto key = static_cast<unsigned char>(lower(text[depth]));
    const auto byte_at = [depth](const std::string& spelling) {  // shorter spellings sort first
      return depth < spelling.size() ? static_cast<int>(static_cast<unsigned char>(spelling[depth]))
                                     : -1;
    };
    begin = std::partition_point(begin, end, [&](const auto& s) { return byte_at(s) < key; });
    end = std::partition_point(begin, end, [&](const auto& s) { return byte_at(s) <= key; });
    if (begin == end) return false;
    if (begin->size() == depth + 1) return true;
  }
  return true;
}

std::vector<size_t> ChatPromptEncoder::risky_places(std::string_view text) const {
  std::vector<size_t> places;
  for (size_t i = 0; i < text.size(); ++i) {
    if (first_bytes_[static_cast<unsigned char>(text[i])] && begins_spelling(text.substr(i))) {
      places.push_back(i);
    }
  }
  return places;
}

bool ChatPromptEncoder::is_risky(const Json& value) const {
  if (value.is_string()) return !risky_places(value.as_string()).empty();
  if (value.is_array()) {
    const Json::Array& items = value.as_array();
    return std::any_of(items.begin(), items.end(),
                       [&](const Json& item) { return is_risky(item); });
  }
  if (!value.is_object()) return false;
  const Json::Object& members = value.as_object();
  return std::any_of(members.begin(), members.end(), [&](const Json::Member& member) {
    return !risky_places(member.first).empty() || is_risky(member.second);
  });
}

Result<ChatPromptEncoder::Shadows> ChatPromptEncoder::choose_shadows(
    const std::string& rendered) const {
  Shadows shadows;
  int candidate = 0;
  for (int byte = 0; byte < 256; ++byte) {
    if (!first_bytes_[byte]) continue;
    while (candidate < kNoncharacters && rendered.find(noncharacter(candidate)) != rendered.npos) {
      ++candidate;
    }
    if (candidate == kNoncharacters) {
      return invalid_argument("messages hold too many noncharacters (U+FDD0..U+FDEF)", "messages");
    }
    shadows.by_byte[byte] = noncharacter(candidate++);
  }
  return shadows;
}

std::string ChatPromptEncoder::shadowed_text(std::string_view text, const Shadows& shadows) const {
  std::string result;
  size_t begin = 0;
  for (size_t place : risky_places(text)) {
    result += text.substr(begin, place - begin);
    result += shadows.by_byte[static_cast<unsigned char>(text[place])];
    begin = place + 1;
  }
  return result += text.substr(begin);
}

Json ChatPromptEncoder::shadowed(const Json& value, const Shadows& shadows) const {
  if (value.is_string()) return Json(shadowed_text(value.as_string(), shadows));
  if (value.is_array()) {
    Json::Array items;
    for (const Json& item : value.as_array()) items.push_back(shadowed(item, shadows));
    return Json(std::move(items));
  }
  if (!value.is_object()) return value;
  Json::Object members;
  for (const auto& [key, member] : value.as_object()) {
    members.emplace_back(shadowed_text(key, shadows), shadowed(member, shadows));
  }
  return Json(std::move(members));
}

std::string ChatPromptEncoder::unshadowed(std::string_view text, const Shadows& shadows) {
  std::string result(text);
  for (int byte = 0; byte < 256; ++byte) {
    if (!shadows.by_byte[byte].empty()) {
      replace_all(result, shadows.by_byte[byte], static_cast<char>(byte));
    }
  }
  return result;
}

Result<std::vector<TokenId>> ChatPromptEncoder::encode_shadowed(std::string_view text,
                                                                const Shadows& shadows,
                                                                ChatPromptOptions options) const {
  const Vocab& vocab = tokenizer_.vocab();
  std::vector<TokenId> ids;
  if (options.add_special && vocab.add_bos && vocab.bos >= 0) ids.push_back(vocab.bos);
  size_t plain_begin = 0;
  const auto append_plain = [&](size_t end) -> Status {
    const std::string plain = unshadowed(text.substr(plain_begin, end - plain_begin), shadows);
    HR_ASSIGN_OR_RETURN(auto plain_ids,
                        tokenizer_.encode(plain, {.add_special = false,
                                                  .parse_special = false,
                                                  .behind_token = plain_begin > 0,
                                                  .tokens_max = options.tokens_max}));
    ids.insert(ids.end(), plain_ids.begin(), plain_ids.end());
    return ok_status();
  };
  size_t from = 0;
  while (const auto found =
             matcher_.find(text, from, SpecialMatcher::Match::kUserDefinedAndControl)) {
    from = found->offset + found->length;
    if (!tokenizer_.is_control(found->id)) continue;
    HR_RETURN_IF_ERROR(append_plain(found->offset));
    ids.push_back(found->id);
    plain_begin = from;
    if (ids.size() > options.tokens_max) break;
  }
  if (ids.size() <= options.tokens_max) HR_RETURN_IF_ERROR(append_plain(text.size()));
  if (options.add_special && vocab.add_eos && vocab.eos >= 0) ids.push_back(vocab.eos);
  if (ids.size() > options.tokens_max) ids.resize(options.tokens_max + 1);
  return ids;
}

}  // namespace headrace
