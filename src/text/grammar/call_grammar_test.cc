// Calls in each dialect's spelling: what models of it write matches, and whatever matches is read
// by the dialect's own parser as calls whose arguments are of their schemas.
#include <algorithm>
#include <bit>
#include <memory>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "text/byte_level.h"
#include "text/grammar/answer_grammar.h"
#include "text/grammar/grammar_automaton.h"
#include "text/grammar/grammar_constraint.h"
#include "text/grammar/schema_check_fixture.h"
#include "text/output/dialect_table.h"
#include "text/output/output_parser.h"
#include "text/vocab_fixture.h"

namespace headrace::call_grammar_test {
namespace {

using Need = CallForm::Need;
using EventKind = OutputEvent::Kind;

constexpr const char* kTravel =
    R"({"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","minimum":0,
        "maximum":9},"unit":{"type":"string","enum":["C","F < K",""]},"exact":{"type":"boolean"},
        "where":{"type":"object","properties":{"a":{"type":"array","items":{"type":"number"},
        "maxItems":2},"<b>":{"type":"string","maxLength":9}},"required":["a","<b>"]},
        "code":{"type":"string","pattern":"^[A-Z<]{2}$"},"note":{"anyOf":[{"type":"string",
        "maxLength":5},{"type":"null"}]},"short":{"type":["string","null"],"minLength":1,"maxLength":3},
        "ref":{"$ref":"#/$defs/r"}},"required":["city","days","where"],
        "$defs":{"r":{"enum":["x","</parameter>",3]}}})";
constexpr const char* kCount =
    R"({"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]})";

AnswerPlan drawn_plan(const ToolDialect& dialect, Need need, bool one_call) {
  AnswerPlan plan;
  plan.dialect.tools = &dialect;
  if (dialect.harmony) plan.dialect.reasoning = *choose_reasoning_dialect("gpt-oss", "");
  plan.calls.need = need;
  plan.calls.one_call = one_call;
  plan.calls.tools = {
      {"travel", *parse_json(kTravel), "tools[0]"},
      {"now", Json(), "tools[1]"},
      {"count_it-2", *parse_json(kCount), "tools[2]"},
      {"loose", *parse_json(R"({"properties":{"x":{"not":{}}}})"), "tools[3]", false}};
  return plan;
}

// As the API has them, for the parser.
std::shared_ptr<const ToolList> tool_list(const AnswerPlan& plan) {
  Json tools = Json::array();
  for (const CallForm::Tool& tool : plan.calls.tools) {
    Json function = Json::object();
    function.set("name", tool.name).set("parameters", tool.parameters);
    tools.push(Json::Object{{"function", function}});
  }
  return std::make_shared<const ToolList>(tools);
}

// ASCII, characters of marks and others, and each mark as a control token where `marked`.
Vocab letters_and_marks(const ToolDialect& dialect, bool marked) {
  std::string text = "3 <eos>\n";
  const auto add = [&](std::string_view token) { text += "1 " + spell_bytes(token) + "\n"; };
  for (char c = ' '; c < 0x7F; ++c) add(std::string(1, c));
  for (std::string_view token : {"\n", "\t", "é", "日", "｜", "▁", "\": ", "</"}) add(token);
  const std::vector<std::string_view> marks = tool_marks(dialect);
  const std::set<std::string_view> distinct(marks.begin(), marks.end());
  for (std::string_view mark : distinct) {
    if (marked) text += "3 " + std::string(mark) + "\n";
  }
  Vocab vocab = vocab_from_text(text, "smollm");
  vocab.eos = 0;
  vocab.end_ids = {0};
  return vocab;
}

// Texts that masks alone allow, which end in time. Control tokens are drawn often.
class CallDraw {
 public:
  CallDraw(const AnswerPlan& plan, bool marked)
      : tokenizer_(*Tokenizer::create(letters_and_marks(*plan.dialect.tools, marked))) {
    std::vector<TokenId> marks;
    for (TokenId id = 0; id < tokenizer_->vocab_size(); ++id) {
      if (tokenizer_->is_control(id)) marks.push_back(id);
    }
    const auto grammar = answer_grammar(plan);
    CHECK_MSG(grammar.ok(), grammar.status().message().c_str());
    constraint_ =
        *make_grammar_constraint(*grammar, std::make_shared<const TokenTrie>(*tokenizer_, marks));
  }

  std::string draw(uint64_t seed) const {
    constexpr int32_t kTokens = 700;
    const auto matcher = constraint_->begin();
    std::vector<uint32_t> mask(static_cast<size_t>(token_mask_words(tokenizer_->vocab_size())));
    std::string text;
    for (int32_t count = 0; count < kTokens; ++count) {
      matcher->fill_mask(mask, kTokens - count);
      std::vector<TokenId> all, controls;
      for (TokenId id = 0; id < tokenizer_->vocab_size(); ++id) {
        if ((mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) == 0) continue;
        all.push_back(id);
        if (tokenizer_->is_control(id)) controls.push_back(id);
      }
      if (all.empty()) break;
      const uint64_t bits = mix64(seed ^ mix64(static_cast<uint64_t>(count) + 1));
      const std::vector<TokenId>& from = !controls.empty() && bits % 3 == 0 ? controls : all;
      const TokenId id = from[bits / 4 % from.size()];
      if (tokenizer_->is_end(id)) return text;
      text += tokenizer_->token_bytes(id);
      matcher->accept(id);
    }
    return text;  // words are not ended for want of tokens
  }

 private:
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const TokenConstraint> constraint_;
};

struct ReadAnswer {
  std::vector<std::pair<std::string, std::string>> calls;  // names and arguments
  std::string content;
};

ReadAnswer read_answer(const AnswerPlan& plan, const std::string& text) {
  OutputOptions options;
  options.tools = tool_list(plan);
  options.one_call = plan.calls.one_call;
  options.only_marked = !may_lack_mark(plan.calls, plan.words, plan.dialect);
  const auto parser = make_output_parser(plan.dialect, options);
  OutputEvents events;
  parser->push(text, events);
  parser->finish(events);
  ReadAnswer read;
  for (const OutputEvent& event : events) {
    if (event.kind == EventKind::kContent) read.content += event.text;
    if (event.kind == EventKind::kCallBegin) read.calls.push_back({event.text, ""});
    if (event.kind == EventKind::kArguments) read.calls.back().second += event.text;
  }
  return read;
}

void expect_valid(const AnswerPlan& plan, const ReadAnswer& read, const std::string& text) {
  for (const auto& call : read.calls) {
    const auto& [name, arguments] = call;
    const auto tool =
        std::find_if(plan.calls.tools.begin(), plan.calls.tools.end(),
                     [&](const CallForm::Tool& each) { return each.name == call.first; });
    ASSERT_NE(tool, plan.calls.tools.end()) << name << " in " << text;
    const Result<Json> json = parse_json(arguments);
    ASSERT_TRUE(json.ok()) << json.status().message() << ": " << arguments << " in " << text;
    EXPECT_TRUE(json->is_object()) << text;
    const bool formed = !tool->parameters.is_null() && tool->strict;
    EXPECT_TRUE(!formed || satisfies(*json, tool->parameters, tool->parameters))
        << arguments << " in " << text;
  }
}

TEST(CallGrammar, WhatIsDrawnIsReadAsValidCalls) {
  int calls = 0;
  for (const ToolDialect& dialect : tool_dialects()) {
    if (!enforces_calls(&dialect)) continue;
    SCOPED_TRACE(std::string(dialect.names));
    for (const bool marked : {true, false}) {
      for (const bool one_call : {true, false}) {
        const AnswerPlan plan = drawn_plan(dialect, Need::kMustCall, one_call);
        const CallDraw draw(plan, marked);
        for (uint64_t seed = 1; seed <= 24; ++seed) {
          const std::string text = draw.draw(seed * 64 + (marked ? 1 : 2));
          const ReadAnswer read = read_answer(plan, text);
          expect_valid(plan, read, text);
          EXPECT_FALSE(read.calls.empty()) << text;
          EXPECT_TRUE(dialect.harmony || read.content.empty()) << text;
          EXPECT_TRUE(!one_call || read.calls.size() == 1) << text;
          calls += static_cast<int>(read.calls.size());
        }
      }
    }
  }
  EXPECT_GT(calls, 1500);
}

TEST(CallGrammar, CallsAmongWordsAreValidToo) {
  for (const ToolDialect& dialect : tool_dialects()) {
    if (!enforces_calls(&dialect)) continue;
    SCOPED_TRACE(std::string(dialect.names));
    const AnswerPlan plan = drawn_plan(dialect, Need::kMayCall, false);
    const CallDraw draw(plan, true);
    int calls = 0, without = 0;
    for (uint64_t seed = 1; seed <= 40; ++seed) {
      const std::string text = draw.draw(seed);
      const ReadAnswer read = read_answer(plan, text);
      expect_valid(plan, read, text);
      calls += static_cast<int>(read.calls.size());
      without += read.calls.empty() ? 1 : 0;
    }
    EXPECT_GT(calls, 0);
    EXPECT_GT(without, 0);
  }
}

// As models of the dialect write them. `x` must be a number.
struct SpelledCall {
  std::string_view dialect, text;
  bool alone = true;  // else among words only
};
constexpr SpelledCall kSpelledCalls[] = {
    {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>"},
    {"qwen3_coder",
     "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>"},
    {"qwen3_coder", "<function=f><parameter=x>\n1\n</parameter></function>\n</tool_call>", false},
    {"seed_oss",
     "<seed:tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n"
     "</seed:tool_call>"},
    {"glm45", "<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"},
    {"glm47", "<tool_call>f<arg_key>x</arg_key><arg_value>1</arg_value></tool_call>"},
    {"minimax_m2",
     "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"x\">1</parameter>\n</invoke>\n"
     "</minimax:tool_call>"},
    {"minimax_m3",
     "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<x>1]<]minimax[>[</x>"
     "]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>"},
    {"deepseek_v32",
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"x\" "
     "string=\"false\">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"},
    {"deepseek_v4",
     "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"x\" "
     "string=\"false\">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"},
    {"deepseek_v3",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"x\": 1}\n```"
     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
    {"deepseek_v31",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"x\": 1}<｜tool▁call▁end｜>"
     "<｜tool▁calls▁end｜>"},
    {"kimi_k2",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
     "{\"x\": 1}<|tool_call_end|><|tool_calls_section_end|>"},
    {"mistral", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"x\": 1}}]"},
    {"mistral", "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"x\": 1}}]"},
    {"mistral", "[TOOL_CALLS]f[ARGS]{\"x\": 1}"},
    {"mistral", "[TOOL_CALLS]f[CALL_ID]abcDEFghi[ARGS]{\"x\": 1}"},
    {"llama3_json", "{\"name\": \"f\", \"parameters\": {\"x\": 1}}"},
    {"llama3_json", "<|python_tag|>{\"name\": \"f\", \"parameters\": {\"x\": 1}}"},
    {"granite", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"x\": 1}}]"},
    {"phi4_mini_json", "functools[{\"name\": \"f\", \"arguments\": {\"x\": 1}}]"},
    {"openai",
     "<|channel|>analysis<|message|>We look.<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.f <|constrain|>json<|message|>{\"x\": 1}<|call|>"},
    {"openai", " to=functions.f<|channel|>commentary json<|message|>{\"x\": 1}"},
    {"longcat",
     "<longcat_tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</longcat_tool_call>"},
    {"longcat_thinking",
     "<longcat_tool_call>f\n<longcat_arg_key>x</longcat_arg_key>\n<longcat_arg_value>1"
     "</longcat_arg_value>\n</longcat_tool_call>"},
    {"jamba", "<tool_calls>[\n    {\"name\": \"f\", \"arguments\": {\"x\": 1}}\n]</tool_calls>"},
    {"hunyuan_a13b", "<tool_calls>[{\"name\": \"f\", \"arguments\": {\"x\": 1}}]</tool_calls>"},
    {"cohere_command3",
     "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": "
     "{\"x\": 1}}\n]<|END_ACTION|>"},
    {"apertus", "<|tools_prefix|>[{\"f\": {\"x\": 1}}]<|tools_suffix|>"},
    {"internlm",
     "<|action_start|><|plugin|>\n{\"name\": \"f\", \"parameters\": {\"x\": 1}}<|action_end|>"},
    {"gigachat3",
     "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}"},
    {"gigachat3", "<|function_call|>{\"name\": \"f\", \"arguments\": {\"x\": 1}}"},
    {"xlam", "[{\"name\": \"f\", \"arguments\": {\"x\": 1}}]"},
    {"step3",
     "<｜tool_calls_begin｜>\n<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke "
     "name=\"f\">\n<steptml:parameter name=\"x\">1</steptml:parameter>\n</steptml:invoke>"
     "<｜tool_call_end｜>\n<｜tool_calls_end｜>"},
    {"dots",
     "<dots_function_call>\n<invoke name=\"f\">\n<parameter name=\"x\">1</parameter>\n</invoke>\n"
     "</dots_function_call>"},
    {"minicpm5", "<function name=\"f\"><param name=\"x\">1</param></function>"},
    {"hy_v3",
     "<tool_calls>\n<tool_call>f<tool_sep>\n<arg_key>x</arg_key>\n<arg_value>1</arg_value>\n"
     "</tool_call>\n</tool_calls>"},
    {"pythonic", "[f(x=1)]"},
    {"pythonic", "<|python_start|>[f(x=1), f(x=1)]"},
    {"lfm2", "<|tool_call_start|>[f(x=1)]<|tool_call_end|>"},
    {"olmo3", "<function_calls>\nf(x=1)\nf(x=1)\n</function_calls>"},
    {"functiongemma", "<start_function_call>call:f{x:1}<end_function_call>"},
    {"gemma4", "<|tool_call>call:f{x:1}<tool_call|>"},
    {"kimi_k3",
     "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"9\"<|sep|><|open|>argument key=\"x\" "
     "type=\"number\"<|sep|>1<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"},
};

AnswerPlan counting_plan(std::string_view dialect, Need need) {
  AnswerPlan plan;
  plan.dialect.tools = *choose_tool_dialect(dialect, "");
  plan.calls.need = need;
  plan.calls.tools = {{"f", *parse_json(kCount), "tools[0]"}};
  return plan;
}

bool takes(const AnswerPlan& plan, std::string_view text) {
  const auto grammar = answer_grammar(plan);
  CHECK_MSG(grammar.ok(), grammar.status().message().c_str());
  GrammarPlace place(std::make_shared<GrammarAutomaton>(*grammar));
  return place.accept(text) && place.can_end();
}

TEST(CallGrammar, TakesWhatModelsOfTheDialectWrite) {
  for (const auto& [dialect, text, alone] : kSpelledCalls) {
    std::string wrong(text);
    wrong[wrong.rfind('1')] = 'z';
    for (const Need need : {Need::kMayCall, Need::kMustCall}) {
      if (need == Need::kMustCall && !alone) continue;
      EXPECT_TRUE(takes(counting_plan(dialect, need), text)) << dialect << ": " << text;
      EXPECT_FALSE(takes(counting_plan(dialect, need), wrong)) << dialect << ": " << wrong;
    }
    if (dialect == "openai") continue;
    const AnswerPlan must = counting_plan(dialect, Need::kMustCall);
    EXPECT_FALSE(takes(must, "words")) << dialect;
    EXPECT_FALSE(takes(must, "")) << dialect;
    EXPECT_TRUE(takes(counting_plan(dialect, Need::kMayCall), "Words < [more] words.\n"))
        << dialect;
  }
}

TEST(CallGrammar, HarmonyWordsStandInTheirChannel) {
  const std::string words = "<|channel|>final<|message|>Four.";
  EXPECT_TRUE(takes(counting_plan("openai", Need::kMayCall), words));
  EXPECT_TRUE(takes(counting_plan("openai", Need::kMayCall), words + "<|return|>"));
  EXPECT_FALSE(takes(counting_plan("openai", Need::kMayCall), words + "<|channel|>"));
  EXPECT_FALSE(takes(counting_plan("openai", Need::kMustCall), words));
}

// Beside words of a form a bare call would be one of two things.
TEST(CallGrammar, BareCallsHaveTheirMarkBesideWordsOfAForm) {
  AnswerPlan plan = counting_plan("llama3_json", Need::kMayCall);
  const std::string bare = R"({"name": "f", "parameters": {"x": 1}})";
  EXPECT_TRUE(takes(plan, bare + "; " + bare));
  EXPECT_FALSE(takes(plan, "{\"x\": 1}"));
  EXPECT_TRUE(takes(plan, "Say {\"x\": 1}"));
  plan.words.kind = AnswerForm::Kind::kChoice;
  plan.words.choices = {"yes"};
  EXPECT_FALSE(takes(plan, bare));
  EXPECT_TRUE(takes(plan, "<|python_tag|>" + bare));
  EXPECT_TRUE(takes(plan, "yes"));
}

TEST(CallGrammar, WhatCannotBeKeptToIsRefusedByName) {
  for (const ToolDialect& dialect : tool_dialects()) {
    EXPECT_TRUE(enforces_calls(&dialect)) << dialect.names;
  }
  const auto error = [](std::string_view dialect, std::string_view name, std::string_view schema) {
    AnswerPlan plan = counting_plan(dialect, Need::kMustCall);
    plan.calls.tools = {{std::string(name), *parse_json(schema), "tools[0].function.parameters"}};
    const Status status = answer_grammar(plan).status();
    EXPECT_EQ(status.ok() ? "tools" : status.field(), "tools");
    return status.message();
  };
  const auto has = [](const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(error("kimi_k2", "a.b", "{}"), "got \"a.b\""));
  EXPECT_EQ(error("hermes", "a.b", "{}"), "");
  for (std::string_view dialect : {"hermes", "deepseek_v31", "glm45", "openai"}) {
    EXPECT_TRUE(has(error(dialect, "f", R"({"type":"string"})"), "must be an object")) << dialect;
  }
  EXPECT_TRUE(has(error("qwen3_coder", "f", R"({"anyOf":[{"type":"object"}]})"), "\"anyOf\""));
  EXPECT_TRUE(has(error("qwen3_coder", "f", R"({"properties":{"a>b":{}}})"), "a name"));
  EXPECT_TRUE(
      has(error("glm45", "f", R"({"properties":{"a":{"type":"string","not":{}}}})"), "\"not\""));
  EXPECT_TRUE(has(error("glm45", "f", R"({"properties":{"a":{"enum":["</arg_value>"]}}})"),
                  "the tag behind it"));
  for (std::string_view dialect : {"pythonic", "gemma4"}) {
    EXPECT_TRUE(has(error(dialect, "f", R"({"oneOf":[{"type":"object"}]})"), "\"oneOf\""));
    EXPECT_TRUE(has(error(dialect, "f", R"({"properties":{"a b":{}}})"), "a name"));
    EXPECT_TRUE(has(error(dialect, "f", R"({"required":["2"]})"), "a name"));
  }
  EXPECT_TRUE(
      has(error("gemma4", "f", R"({"properties":{"a":{"type":"string","enum":["<|\"|>"]}}})"),
          "the quote behind it"));
}

// Arguments as programs write them: optional ones may lack, wherever they stand.
TEST(CallGrammar, ArgumentsOfProgramsAreOfTheirSchemas) {
  constexpr std::string_view kSchema =
      R"({"type":"object","properties":{"a":{"type":"string"},"b":{"type":"boolean"},
          "c":{"type":["integer","null"]},"d":{"type":"string","enum":["x","y"]},
          "e":{"type":"array","items":{"type":"string"}}},"required":["b"]})";
  const auto taken = [&](std::string_view dialect, std::string_view text) {
    AnswerPlan plan = counting_plan(dialect, Need::kMustCall);
    plan.calls.tools = {{"f", *parse_json(kSchema), "tools[0]"}};
    return takes(plan, text);
  };
  for (std::string_view arguments :
       {R"(a="it's", b=True)", "b=true", R"(b=False, c=None, d="y", e=["p", "q"])", "b=True,c=-2",
        R"(a="", b=False, e=[])"}) {
    EXPECT_TRUE(taken("pythonic", "[f(" + std::string(arguments) + ")]")) << arguments;
  }
  for (std::string_view arguments : {"", R"(a="x")", "b=TRUE", "b=True, d=\"z\"", "c=1, b=True",
                                     ", b=True", "b=True,", "a=1, b=True", "b=True, f=1"}) {
    EXPECT_FALSE(taken("pythonic", "[f(" + std::string(arguments) + ")]")) << arguments;
  }
  for (std::string_view arguments :
       {R"(a:<|"|>it's "so" {<|"|>,b:true)", "b:false", R"(b:true,c:null,d:<|"|>y<|"|>,e:["p"])"}) {
    EXPECT_TRUE(taken("gemma4", "<|tool_call>call:f{" + std::string(arguments) + "}<tool_call|>"))
        << arguments;
  }
  for (std::string_view arguments : {"", R"(a:"x",b:true)", "b:True", R"(b:true,d:<|"|>z<|"|>)"}) {
    EXPECT_FALSE(taken("gemma4", "<|tool_call>call:f{" + std::string(arguments) + "}<tool_call|>"))
        << arguments;
  }
}

}  // namespace
}  // namespace headrace::call_grammar_test
