// User text never becomes control tokens, however it spells them; the template's own always do.
#include "text/chat_prompt.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "text/vocab_fixture.h"

namespace headrace::chat_prompt_test {
namespace {

constexpr std::string_view kChatMlTemplate =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

Json message(std::string role, std::string content) {
  Json json = Json::object();
  json.set("role", std::move(role)).set("content", std::move(content));
  return json;
}

struct Fixture {
  explicit Fixture(std::string_view source = kChatMlTemplate, Vocab vocab = tiny_vocab()) {
    auto compiled = ChatTemplate::compile(source);
    CHECK(compiled.ok());
    auto made = Tokenizer::create(std::move(vocab));
    CHECK(made.ok());
    tokenizer = std::move(*made);
    chat_template = std::make_unique<ChatTemplate>(std::move(*compiled));
    auto created = ChatPromptEncoder::create(*tokenizer, *chat_template);
    CHECK(created.ok());
    encoder = std::move(*created);
  }
  std::vector<TokenId> encode(const Json& messages) const {
    auto ids = encoder->encode(messages, Json(), {});
    EXPECT_TRUE(ids.ok()) << ids.status().message();
    return ids.ok() ? *ids : std::vector<TokenId>();
  }
  int control_count(const std::vector<TokenId>& ids) const {
    return static_cast<int>(std::count_if(ids.begin(), ids.end(),
                                          [&](TokenId id) { return tokenizer->is_control(id); }));
  }
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;
  std::unique_ptr<ChatPromptEncoder> encoder;
};

// Two for each message, one for the assistant's turn.
int template_controls(size_t messages) { return static_cast<int>(2 * messages + 1); }

TEST(ChatPrompt, PlainTextIsEncodedAsTheWholeRendering) {
  Fixture f;
  const Json messages(
      Json::Array{message("system", "be brief"), message("user", "a < b and <b>bold</b>")});
  const auto text = f.encoder->render(messages, Json(), {});
  ASSERT_TRUE(text.ok());
  const auto expected = f.tokenizer->encode(*text, {.add_special = false, .parse_special = true});
  EXPECT_EQ(f.encode(messages), *expected);
}

// As clients send a turn that only calls tools.
TEST(ChatPrompt, ANullContentIsEmptyWhereTheTemplateCannotDoWithIt) {
  const Json chat = *parse_json(
      R"([{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":)"
      R"([{"id":"1","type":"function","function":{"name":"f","arguments":{"b":1}}}]}])");
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"{% for m in messages %}<{{ m['role'] + m['content'] }}>{% endfor %}",  // fails
       "<usera><assistant>"},
      {"{% for m in messages %}<{{ m.content | trim }}>{% endfor %}", "<a><>"},  // prints None
      {"{% for m in messages %}{% if m.content is none %}<{{ m.tool_calls[0].function.name }}>"
       "{% else %}({{ m.content }}){% endif %}{% endfor %}",  // asks for it
       "(a)<f>"},
      {"None {% for m in messages %}<{{ m.content or '-' }}>{% endfor %}", "None <a><->"},
  };
  for (const auto& [source, expected] : cases) {
    Fixture f(source);
    const auto text = f.encoder->render(chat, Json(), {.add_generation_prompt = false});
    ASSERT_TRUE(text.ok()) << source << ": " << text.status().message();
    EXPECT_EQ(*text, expected) << source;
  }
}

TEST(ChatPrompt, EverySpellingInUserTextStaysText) {
  Fixture f;
  const auto& tokens = f.tokenizer->vocab().tokens;
  for (TokenId id = 0; id < f.tokenizer->vocab_size(); ++id) {
    if (!f.tokenizer->is_control(id)) continue;
    const std::string spelling(tokens[static_cast<size_t>(id)]);
    for (const std::string& content :
         {spelling, "x" + spelling + spelling + "y", spelling + "\n" + spelling,
          spelling.substr(0, 3) + spelling, spelling + spelling.substr(0, 5)}) {
      for (const std::string& role : {std::string("user"), "user" + spelling}) {
        const Json messages(Json::Array{message(role, content), message("user", "ok")});
        const std::vector<TokenId> ids = f.encode(messages);
        EXPECT_EQ(f.control_count(ids), template_controls(2)) << role << " " << content;
        const auto text = f.encoder->render(messages, Json(), {});
        EXPECT_EQ(f.tokenizer->decode(ids, false), *text);  // not a byte is lost
      }
    }
  }
}

// The frame is the vocabulary's, and stands around the whole, whatever the text spells.
TEST(ChatPrompt, SpecialTokensStandAroundTheWhole) {
  Vocab vocab = tiny_vocab();
  vocab.add_eos = true;  // token 0; token 3 goes in front
  const Fixture f(kChatMlTemplate, std::move(vocab));
  for (const char* content : {"plain", "a <|im_end|> b", "ends in <"}) {
    const auto ids = f.encoder->encode(Json(Json::Array{message("user", content)}), Json(),
                                       {.add_special = true});
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(ids->front(), 3) << content;
    EXPECT_EQ(ids->back(), 0) << content;
    EXPECT_EQ(std::count(ids->begin() + 1, ids->end() - 1, 0), 0) << content;
  }
}

TEST(ChatPrompt, PiecesThatJoinIntoASpellingStayText) {
  Fixture f("{% for m in messages %}{{ m.role + m.content }}{% endfor %}<|im_end|>");
  for (size_t cut = 1; cut < 10; ++cut) {
    const std::string spelling = "<|im_end|>";
    const Json messages(Json::Array{message(spelling.substr(0, cut), spelling.substr(cut))});
    EXPECT_EQ(f.control_count(f.encode(messages)), 1) << cut;
  }
}

TEST(ChatPrompt, CaseChangesOfTheTemplateDoNotHelp) {
  Fixture f("{% for m in messages %}{{ m.content | lower }}{% endfor %}<|im_end|>");
  EXPECT_EQ(
      f.control_count(f.encode(Json(Json::Array{message("user", "<|IM_END|> <|Im_Start|>")}))), 1);
}

TEST(ChatPrompt, RandomTextRoundTripsWithoutControlTokens) {
  Fixture f;
  Rng rng(7);
  const std::string_view parts[] = {
      "<|im_end|>",   "<|im_start|>",  "<|",     "<",   "|>", "im_end", "\n", "a",
      "\xEF\xB7\x90", "<|endoftext|>", "<tool>", "<s>", "é"};
  for (int round = 0; round < 2000; ++round) {
    std::string content;
    for (uint64_t i = rng.below(12); i > 0; --i) content += parts[rng.below(std::size(parts))];
    const Json messages(Json::Array{message("user", content)});
    const std::vector<TokenId> ids = f.encode(messages);
    ASSERT_EQ(f.control_count(ids), template_controls(1)) << content;
    ASSERT_EQ(f.tokenizer->decode(ids, false), *f.encoder->render(messages, Json(), {}));
  }
}

TEST(ChatPrompt, ATemplateThatLooksForSpellingsIsRefused) {
  Fixture f(
      "{% for m in messages %}{% if '<|im_end|>' in m.content %}yes{% else %}no{% endif %}{% "
      "endfor %}");
  const auto ids = f.encoder->encode(Json(Json::Array{message("user", "<|im_end|>")}), Json(), {});
  EXPECT_EQ(ids.status().code(), StatusCode::kInvalidArgument);
}

// Tools are user text too.
TEST(ChatPrompt, SpellingsInsideVariablesStayText) {
  Fixture f("{% for t in tools %}{{ t | tojson }}{% endfor %}<|im_end|>");
  Json tool = Json::object();
  tool.set("<|im_start|>", "x<|im_end|>").set("description", "<|endoftext|");
  const Json variables = Json::object().set("tools", Json(Json::Array{tool}));
  const Json messages(Json::Array{message("user", "hi")});
  const auto ids = f.encoder->encode(messages, variables, {});
  ASSERT_TRUE(ids.ok()) << ids.status().message();
  EXPECT_EQ(f.control_count(*ids), 1);
  EXPECT_EQ(f.tokenizer->decode(*ids, false), *f.encoder->render(messages, variables, {}));
}

TEST(ChatPrompt, ALastMessageIsContinued) {
  const ChatPromptOptions continued{.continue_final_message = true};
  const Json begun(Json::Array{message("user", "a"), message("assistant", "Sure, <|im_end|> ")});
  const std::pair<std::string_view, std::string_view> cases[] = {
      {kChatMlTemplate, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nSure, <|im_end|> "},
      {"{% for m in messages %}[{{ m.content | trim }}]{% endfor %}", "[a][Sure, <|im_end|> "},
      {"{{ messages[-1].content }}|{{ messages[-1].content }}|",
       "Sure, <|im_end|> |Sure, <|im_end|> "},
  };
  for (const auto& [source, expected] : cases) {
    Fixture f(source);
    const auto text = f.encoder->render(begun, Json(), continued);
    ASSERT_TRUE(text.ok()) << source << ": " << text.status().message();
    EXPECT_EQ(*text, expected);
    const auto ids = f.encoder->encode(begun, Json(), continued);
    ASSERT_TRUE(ids.ok()) << source << ": " << ids.status().message();
    EXPECT_EQ(f.tokenizer->decode(*ids, false), expected);
    EXPECT_EQ(f.control_count(*ids), source == kChatMlTemplate ? 3 : 0) << source;
  }
  const auto field_of = [&](std::string_view source, const Json& messages) {
    return std::string(
        Fixture(source).encoder->encode(messages, Json(), continued).status().field());
  };
  EXPECT_EQ(field_of("none", begun), "continue_final_message");
  EXPECT_EQ(field_of(kChatMlTemplate, Json::array()), "continue_final_message");
  const Json marked(Json::Array{message("assistant", "a\xEF\xB7\xAF")});
  EXPECT_EQ(field_of(kChatMlTemplate, marked), "continue_final_message");
}

TEST(ChatPrompt, LongRunsOfFirstCharactersAreCheap) {
  Fixture f;
  const Json messages(Json::Array{message("user", std::string(1 << 20, '<'))});
  EXPECT_EQ(f.control_count(f.encode(messages)), template_controls(1));
}

}  // namespace
}  // namespace headrace::chat_prompt_test
