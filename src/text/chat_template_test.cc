// Bounds, errors and hostile templates. What templates mean is in chat_template_golden_test.cc.
#include "text/chat_template.h"

#include <pthread.h>

#include <gtest/gtest.h>

#include "text/named_templates.h"

namespace headrace::chat_template_test {
namespace {

std::string repeat(std::string_view text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

// The error of compiling or rendering; ok if both work.
Status status_of(std::string_view source, TemplateLimits limits = {}) {
  const auto chat_template = ChatTemplate::compile(source, limits);
  if (!chat_template.ok()) return chat_template.status();
  Json variables = Json::object();
  variables.set("s", "text").set("n", 3);
  return chat_template->render(variables).status();
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  EXPECT_NE(status_of("a\nb\n{% nope %}").message().find("line 3"), std::string::npos);
  EXPECT_NE(status_of("a\n{{ 1 +\n }}").message().find("line 3"), std::string::npos);
  EXPECT_NE(
      status_of("{{ n }}\n\n{{ missing.x }}").message().find("line 3: 'missing' is undefined"),
      std::string::npos);
  EXPECT_NE(status_of("\n{{ raise_exception('no system role') }}")
                .message()
                .find("line 2: no system role"),
            std::string::npos);
  EXPECT_EQ(status_of("{{ s | nofilter }}").code(), StatusCode::kInvalidArgument);
}

// As llama.cpp renders these turns with its templates of these names
// (tests/test-chat-template.cpp).
TEST(NamedTemplates, RenderAsLlamaCppDoes) {
  Json messages = Json::array();
  for (const auto& [role, content] :
       {std::pair("system", "You are a helpful assistant"), std::pair("user", "Hello"),
        std::pair("assistant", "Hi there")}) {
    messages.push(Json::object().set("role", role).set("content", content));
  }
  Json variables = Json::object();
  variables.set("messages", std::move(messages)).set("add_generation_prompt", true);
  const auto render = [&](std::string_view name) {
    const auto compiled = ChatTemplate::compile(named_template(name));
    return compiled.ok() ? compiled->render(variables).value()
                         : std::string(compiled.status().message());
  };
  EXPECT_EQ(render("chatml"),
            "<|im_start|>system\nYou are a helpful assistant<|im_end|>\n<|im_start|>user\nHello"
            "<|im_end|>\n<|im_start|>assistant\nHi there<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(render("gemma"),
            "<start_of_turn>user\nYou are a helpful assistant\n\nHello<end_of_turn>\n"
            "<start_of_turn>model\nHi there<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(render("llama3"),
            "<|start_header_id|>system<|end_header_id|>\n\nYou are a helpful assistant<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nHi there<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(render("phi3"),
            "<|system|>\nYou are a helpful assistant<|end|>\n<|user|>\nHello<|end|>\n"
            "<|assistant|>\nHi there<|end|>\n<|assistant|>\n");
  EXPECT_EQ(render("rwkv-world"),
            "System: You are a helpful assistant\n\nUser: Hello\n\nAssistant: Hi there\n\n"
            "Assistant:");
  EXPECT_EQ(render("vicuna"),
            "You are a helpful assistant\n\nUSER: Hello\nASSISTANT: Hi there</s>\nASSISTANT:");
  EXPECT_EQ(render("zephyr"),
            "<|system|>\nYou are a helpful assistant<|endoftext|>\n<|user|>\nHello<|endoftext|>\n"
            "<|assistant|>\nHi there<|endoftext|>\n<|assistant|>\n");
  EXPECT_EQ(template_names().size(), 7u);
  EXPECT_EQ(named_template("no-such"), "");
}

TEST(ChatTemplate, BudgetsHold) {
  for (const char* source : {
           "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
           "{{ 'x' * 100000000 }}",
           "{{ 'x' * 9223372036854775807 }}",
           "{{ [1] * 100000000 }}",
           "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(99) %}{% set ns.s = ns.s + "
           "ns.s %}{% endfor %}",
           "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% "
           "endfor %}",
           "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% "
           "endfor %}",
           "{% set ns = namespace(l=[]) %}{% for i in range(50) %}{% set ns.l = [ns.l, ns.l] %}{% "
           "endfor %}{{ ns.l }}",
           "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
           "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
           "{{ '%0999999999d' % 1 }}",
           "{{ s | indent(999999999) }}",
           "{{ [1] | tojson(indent=999999999) }}",
           "{{ s.ljust(999999999) }}",
           "{{ [1] | batch(999999999, 1) | list }}",
           "{% for i in range(9999) %}{{ 'x' * 100000 }}{% endfor %}",
           "{% set ns = namespace(l=[]) %}{% for i in range(999) %}{% set ns.l = ns.l + ['x' * "
           "9000000] %}{% endfor %}",
           "{{ (range(9999) | list | join) | list | unique | list | length }}{{ (range(99999) | "
           "list) | unique | list }}",
       }) {
    const Status status = status_of(source);
    EXPECT_FALSE(status.ok()) << source;
  }
  EXPECT_EQ(status_of(repeat("x", 2000), {.source_bytes_max = 1000}).code(),
            StatusCode::kExhausted);
  EXPECT_EQ(status_of("{{ s * 10 }}", {.output_bytes_max = 20}).code(), StatusCode::kExhausted);
  EXPECT_EQ(status_of("{% for i in range(200) %}{% endfor %}", {.steps_max = 100}).code(),
            StatusCode::kExhausted);
}

const std::vector<std::string>& nested_templates(size_t levels) {
  static std::vector<std::string> templates;
  templates = {
      "{{ " + repeat("(", levels) + "1" + repeat(")", levels) + " }}",
      "{{ " + repeat("[", levels) + repeat("]", levels) + " }}",
      "{{ " + repeat("{1:", levels) + "1" + repeat("}", levels) + " }}",
      "{{ " + repeat("not ", levels) + "1 }}",
      "{{ " + repeat("-", levels) + "1 }}",
      "{{ 1" + repeat(" if 1 else 1", levels) + " }}",
      "{{ s" + repeat(".x", levels) + " }}",
      "{{ s" + repeat("[0]", levels) + " }}",
      "{{ s" + repeat("()", levels) + " }}",
      "{{ s" + repeat("|upper", levels) + " }}",
      "{{ s" + repeat(" is defined", levels) + " }}",
      "{{ " + repeat("s[", levels) + " }}",
      "{{ " + repeat("s(", levels) + " }}",
      "{% for " + repeat("(", levels) + "a in s %}{% endfor %}",
      repeat("{% if 1 %}", levels) + repeat("{% endif %}", levels),
      repeat("{% for a in s %}", levels) + repeat("{% endfor %}", levels),
      repeat("{% macro m() %}", levels) + repeat("{% endmacro %}", levels),
      repeat("{% set x %}", levels) + repeat("{% endset %}", levels),
  };
  return templates;
}

// Nesting is refused, not followed, also on the stack of a small thread.
TEST(ChatTemplate, DeepNestingOnASmallStack) {
#ifdef HEADRACE_SANITIZED
  constexpr size_t kStack = size_t{4} << 20;  // their frames are several times as large
#else
  constexpr size_t kStack = size_t{256} << 10;
#endif
  const auto body = [](void*) -> void* {
    for (size_t levels : {size_t{1000}, size_t{100'000}}) {
      for (const std::string& source : nested_templates(levels)) {
        EXPECT_FALSE(status_of(source, {.source_bytes_max = size_t{4} << 20}).ok())
            << source.substr(0, 20);
      }
    }
    for (const std::string& source : nested_templates(10)) (void)status_of(source);
    EXPECT_EQ(status_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}").code(),
              StatusCode::kExhausted);
    return nullptr;
  };
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStack);
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, body, nullptr), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(ChatTemplate, LongChainsAreFlat) {
  EXPECT_TRUE(status_of("{{ 0" + repeat(" + 1", 5000) + " }}").ok());
  EXPECT_TRUE(status_of("{{ ''" + repeat(" ~ 'a'", 5000) + " }}").ok());
  EXPECT_TRUE(status_of("{% if 0 %}" + repeat("{% elif 0 %}", 5000) + "{% endif %}").ok());
}

TEST(ChatTemplate, RenderChatFillsTheTokens) {
  Vocab vocab;
  vocab.tokens = {"<s>", "</s>"};
  vocab.bos = 0;
  vocab.eos = 1;
  const auto chat_template = ChatTemplate::compile(
      "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}{{ k }}");
  Json messages = Json::array();
  messages.push(Json::object().set("role", "user").set("content", "hi"));
  Json extra = Json::object().set("k", 5);
  EXPECT_EQ(*render_chat(*chat_template, vocab, messages, nullptr, true, extra), "<s>hi</s>5");
  EXPECT_EQ(render_chat(*chat_template, vocab, "x", nullptr, true, nullptr).status().field(),
            "messages");
  EXPECT_EQ(render_chat(*chat_template, vocab, messages, 5, true, nullptr).status().field(),
            "tools");
}

TEST(ChatTemplate, RenderChatGivesThoughtsByGptOssName) {
  const auto chat_template =
      ChatTemplate::compile("{% for m in messages %}{{ m.thinking }}|{% endfor %}");
  const auto turn = [](std::string_view content) {
    return Json::object().set("content", content).set("reasoning_content", "t");
  };
  const Json calls = Json::array().push(Json::object());
  Json messages = Json::array();
  messages.push(turn("a"));
  messages.push(turn("").set("tool_calls", calls));
  messages.push(turn("a").set("tool_calls", calls));  // what its template refuses
  messages.push(turn("a").set("thinking", "own"));
  messages.push(Json::object().set("content", "a"));
  EXPECT_EQ(*render_chat(*chat_template, Vocab(), messages, nullptr, true, nullptr), "t|t||own||");
}

}  // namespace
}  // namespace headrace::chat_template_test
