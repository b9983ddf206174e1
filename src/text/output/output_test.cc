// Answers in, events out: what each dialect's samples mean, wherever the text is cut.
#include <algorithm>

#include <gtest/gtest.h>

#include "base/json.h"
#include "text/output/dialect.h"
#include "text/output/output_parser.h"
#include "text/output/output_samples.h"

namespace headrace::output_test {
namespace {

using Kind = OutputEvent::Kind;

OutputDialect output_dialect(std::string_view tools, std::string_view reasoning = "qwen3") {
  OutputDialect dialect;
  if (tools == "openai") reasoning = "openai_gptoss";
  dialect.tools = *choose_tool_dialect(tools, "");
  dialect.reasoning = *choose_reasoning_dialect(reasoning, "");
  return dialect;
}

OutputOptions output_options(const OutputSample& sample) {
  OutputOptions options;
  options.tools = std::make_shared<const ToolList>(*parse_json(output_sample_tools()));
  options.starts_in_reasoning = sample.in_reasoning;
  return options;
}

std::string to_text(const OutputEvents& events) {
  std::string text;
  for (const OutputEvent& event : events) {
    switch (event.kind) {
      case Kind::kContent:
      case Kind::kArguments:
        text += event.text;
        break;
      case Kind::kReasoning:
        text += "(" + event.text + ")";
        break;
      case Kind::kCallBegin:
        text += "{" + event.text + (event.call_id.empty() ? "" : "#" + event.call_id) + " ";
        break;
      case Kind::kCallEnd:
        text += "}";
    }
  }
  return text;
}

// The events of `text` cut at `cuts`, which ascend.
OutputEvents parse_cut(const OutputSample& sample, std::initializer_list<size_t> cuts) {
  const auto parser =
      make_output_parser(output_dialect(sample.dialect, sample.reasoning), output_options(sample));
  OutputEvents all;
  size_t begin = 0;
  const auto push = [&](size_t end) {
    OutputEvents events;
    parser->push(sample.text.substr(begin, end - begin), events);
    for (OutputEvent& event : events) append_event(all, std::move(event));
    begin = end;
  };
  for (size_t cut : cuts) push(cut);
  push(sample.text.size());
  OutputEvents events;
  parser->finish(events);
  for (OutputEvent& event : events) append_event(all, std::move(event));
  return all;
}

OutputEvents parse_bytewise(const OutputSample& sample) {
  const auto parser =
      make_output_parser(output_dialect(sample.dialect, sample.reasoning), output_options(sample));
  OutputEvents all;
  for (char c : sample.text) parser->push({&c, 1}, all);
  parser->finish(all);
  return all;
}

TEST(OutputParser, SamplesMeanWhatTheyMean) {
  for (const OutputSample& sample : output_samples()) {
    EXPECT_EQ(to_text(parse_cut(sample, {})), sample.meaning)
        << sample.dialect << ": " << sample.text;
  }
}

TEST(OutputParser, NoCutMatters) {
  for (const OutputSample& sample : output_samples()) {
    const OutputEvents whole = parse_cut(sample, {});
    EXPECT_EQ(parse_bytewise(sample), whole) << sample.dialect << ": " << sample.text;
    // All pairs of cuts; of long texts, where they are millions, those less far apart than any mark
    // is long, and some of the others.
    const bool all = sample.text.size() <= 160;
    for (size_t first = 0; first <= sample.text.size(); ++first) {
      for (size_t second = first; second <= sample.text.size(); ++second) {
        if (!all && second - first > 40 && second % 16 != 0) continue;
        ASSERT_EQ(parse_cut(sample, {first, second}), whole)
            << sample.dialect << ", " << first << ", " << second << ": " << sample.text;
      }
    }
  }
}

// No more is held than what may still become a mark.
TEST(OutputParser, TextLeavesAtOnce) {
  const auto parser =
      make_output_parser(output_dialect("hermes"), output_options(output_samples()[0]));
  const std::pair<std::string_view, std::string_view> steps[] = {
      {"a", "a"},
      {" <", ""},
      {"b", " <b"},
      {" \n", ""},
      {"<tool_call", ""},
      {"s", " \n<tool_calls"},
      {"\n<tool_call>{\"name\": \"f\", \"arguments\": ", ""},
      {"{\"x\"", "{f {\"x\""},
      {": \"</tool_", ": \"</tool_"}};
  for (const auto& [text, expected] : steps) {
    OutputEvents events;
    parser->push(text, events);
    EXPECT_EQ(to_text(events), expected) << text;
  }
}

// A bracket may begin a call, or the mark of thoughts.
TEST(OutputParser, ACallWithoutAMarkMayBeginAsAMarkDoes) {
  for (std::string_view text : {"[now()]", "[[THINK]x", "[", "[[1, 2]]", "[THI"}) {
    const auto parser =
        make_output_parser(output_dialect("pythonic", "mistral"), output_options({}));
    OutputEvents events;
    parser->push(text, events);
    parser->finish(events);
    EXPECT_EQ(to_text(events), text == "[now()]" ? "{now {}}" : text);
  }
}

// MiniMax M3 may close a thought that it never opened, where it has none.
TEST(OutputParser, AThoughtThatWasNotOpenedMayEndInFrontOfTheAnswer) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"</mm:think>\n\nFour.", "Four."},
      {" </mm:think></mm:think>", "</mm:think>"},
      {"<mm:think>So.</mm:think>\nFour </mm:think>.", "(So.)Four </mm:think>."},
      {"Four </mm:think>.", "Four </mm:think>."},
      {"</mm:thin", "</mm:thin"},
  };
  for (const auto& [text, expected] : cases) {
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      const auto parser =
          make_output_parser(output_dialect("minimax_m3", "minimax_m3"), output_options({}));
      OutputEvents events;
      parser->push(text.substr(0, cut), events);
      parser->push(text.substr(cut), events);
      parser->finish(events);
      EXPECT_EQ(to_text(events), expected) << text << ", " << cut;
    }
  }
}

// The words of an answer without tools stand between marks, too.
TEST(OutputParser, MarksAroundWordsGo) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"Hm.<|END_THINKING|><|START_RESPONSE|>Four.\n<|END_RESPONSE|>", "(Hm.)Four."},
      {"Hm.<|END_THINKING|>Four<|END_RESPONSE|> and five.", "(Hm.)Four<|END_RESPONSE|> and five."},
      {"Hm.<|END_THINKING|><|START_RESPONSE|><|END_RESPONSE|>", "(Hm.)"},
  };
  for (const auto& [text, expected] : cases) {
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      OutputOptions options;
      options.starts_in_reasoning = true;
      const auto parser = make_output_parser(output_dialect("none", "cohere_command3"), options);
      OutputEvents events;
      parser->push(text.substr(0, cut), events);
      parser->push(text.substr(cut), events);
      parser->finish(events);
      EXPECT_EQ(to_text(events), expected) << text << ", " << cut;
    }
  }
}

// Where the form of calls was enforced, one in a thought is none.
TEST(OutputParser, CallsInThoughtsEndThemOnlyWhereFree) {
  const std::string_view text =
      "<|inner_prefix|>So.<|tools_prefix|>[{\"now\": {}}]<|tools_suffix|>";
  for (const bool enforced : {false, true}) {
    OutputOptions options = output_options(output_samples()[0]);
    options.only_marked = enforced;
    const auto parser = make_output_parser(output_dialect("apertus", "apertus"), options);
    OutputEvents events;
    parser->push(text, events);
    parser->finish(events);
    EXPECT_EQ(to_text(events),
              enforced ? "(" + std::string(text.substr(16)) + ")" : "(So.){now {}}");
  }
}

TEST(OutputParser, OneCallEndsTheAnswer) {
  OutputOptions options = output_options(output_samples()[0]);
  options.one_call = true;
  const auto parser = make_output_parser(output_dialect("hermes"), options);
  OutputEvents events;
  parser->push("<tool_call>{\"name\": \"now\"", events);
  EXPECT_FALSE(parser->stopped());
  parser->push("}</tool_call><tool_call>{\"name\": \"now\"}</tool_call> text", events);
  EXPECT_TRUE(parser->stopped());
  parser->finish(events);
  EXPECT_EQ(to_text(events), "{now {}}");
}

TEST(OutputParser, WithoutToolsOrReasoningAllIsContent) {
  const std::string_view text = "<think>x</think> <tool_call>{\"name\": \"now\"}</tool_call> \n";
  for (const bool reasoning : {false, true}) {
    OutputOptions options;
    options.reasoning = reasoning;
    const auto parser = make_output_parser(output_dialect("hermes"), options);
    OutputEvents events;
    parser->push(text, events);
    parser->finish(events);
    EXPECT_EQ(to_text(events), reasoning ? "(x)" + std::string(text.substr(17)) : text);
  }
}

// What templates of these models hold, in their own words.
TEST(OutputDialect, TemplatesShowTheirForm) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"'<tool_call>\\n{\"name\": ' + tool_call.name + '</tool_call>'", "hermes"},
      {"'<tool_call>\\n<function=' + f + '>\\n' '<parameter=' + k", "qwen3_coder"},
      {"'<tool_call>' + name '<arg_key>' + k", "glm45"},
      {"'<minimax:tool_call>' '<invoke name=\"' '</minimax:tool_call>'", "minimax_m2"},
      {"'<｜tool▁call▁begin｜>' + type + '<｜tool▁sep｜>' + '```json'", "deepseek_v3"},
      {"'<｜tool▁call▁begin｜>' + name + '<｜tool▁sep｜>' + arguments", "deepseek_v31"},
      {"'<｜DSML｜invoke name=' '<tool_call>'", "deepseek_v32"},
      {"'<|tool_calls_section_begin|><|tool_call_begin|>'", "kimi_k2"},
      {"'[AVAILABLE_TOOLS]' '[TOOL_CALLS]'", "mistral"},
      {"'{\"name\": function name, \"parameters\": dictionary of ...'", "llama3_json"},
      {"'<|python_start|>' '<|python_end|>'", "pythonic"},
      {"'<function_calls>'", "olmo3"},
      {"'<|tool|>' + tools + '<|/tool|>'", "phi4_mini_json"},
      {"'respond only with <|tool_call|>'", "granite"},
      {"'<start_function_call>call:'", "functiongemma"},
      {"'<|tool_call>call:'", "gemma4"},
      {"'<|start|>assistant<|channel|>analysis<|message|>'", "openai"},
      {"'<seed:tool_call>' '</seed:tool_call>' '<function=' '<parameter='", "seed_oss"},
      {"'<longcat_tool_call>\\n' + tool_call + '</longcat_tool_call>'", "longcat"},
      {"'<longcat_tool_call>' + name + '<longcat_arg_key>' + k", "longcat_thinking"},
      {"']<]minimax[>[' '<tool_call>' '<invoke name=\"'", "minimax_m3"},
      {"<|START_ACTION|>[ {\"tool_call_id\": \"0\"}]", "cohere_command3"},
      {"'<tool_calls>' + ns.tool_calls + '</tool_calls>'", "jamba"},
      {"set tool_calls_token = '<|tools_prefix|>'", "apertus"},
      {"\"<|action_start|><|plugin|>\\n\"", "internlm"},
      {"role_sep=\"<|role_sep|>\\n\" 'role': 'function call'", "gigachat3"},
      {"When using tools, make calls in a single JSON array:", "xlam"},
      {"'<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"'", "step3"},
      {"'<dots_function_call>' '<invoke name=\"'", "dots"},
      {"<function name=\"{{ f }}\"> <param name=\"{{ p }}\">", "minicpm5"},
      {"'<tool_calls>' '<tool_call>' + name + '<tool_sep>' '<arg_key>'", "hy_v3"},
      {"'<tool_call:opensource>' + name + '<tool_sep:opensource>'", "hy_v3_opensource"},
      {"\"<|tool_call_start|>[\" + calls + \"]<|tool_call_end|>\"", "lfm2"},
      {"'<|open|>' + tag '<|sep|>' '<|close|>' + tag + '<|sep|>'", "kimi_k3"},
      {"'<tool_call>' '<invoke name=\"'", "none"},
      {"'<|im_start|>' + role", "none"},
  };
  for (const auto& [text, name] : cases) {
    OutputDialect dialect;
    dialect.tools = *choose_tool_dialect("auto", text);
    EXPECT_EQ(dialect.tools_name(), name) << text;
  }
}

TEST(OutputDialect, TemplatesShowTheirThoughts) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"'<think>' + reasoning + '</think>'", "qwen3"},
      {"'<think:opensource>'", "hy_v3_opensource"},
      {"'<think>' '<response>'", "ernie45"},
      {"'<|extra_0|>' '<think>\\n\\n</think>\\n'", "hunyuan_a13b"},
      {"<|START_THINKING|>{{ m.thinking }}<|END_THINKING|>", "cohere_command3"},
      {"set inner_token = '<|inner_prefix|>'", "apertus"},
      {"'<|open|>' + tag '<|close|>' + tag", "kimi_k3"},
      {"'<|im_start|>' + role", "none"},
  };
  for (const auto& [text, name] : cases) {
    OutputDialect dialect;
    dialect.reasoning = *choose_reasoning_dialect("auto", text);
    EXPECT_EQ(dialect.reasoning_name(), name) << text;
  }
}

std::vector<std::string_view> split(std::string_view names) {
  std::vector<std::string_view> all;
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = std::min(names.find(' ', begin), names.size());
    all.push_back(names.substr(begin, end - begin));
    begin = end + 1;
  }
  return all;
}

// vLLM's and SGLang's, but for two of the first that frame their messages (Inkling, Muse Glimmer).
TEST(OutputDialect, NamesOfOtherServersAreKnown) {
  for (std::string_view name : split(
           "apertus cohere_command3 cohere_command4 deepseek_v3 deepseek_v31 deepseek_v32 "
           "deepseek_v4 dots ernie45 functiongemma gemma4 gigachat3 glm45 glm47 granite "
           "granite-20b-fc granite4 hermes hunyuan_a13b hy_v3 internlm jamba kimi_k2 kimi_k3 lfm2 "
           "ling3 llama3_json llama4_json llama4_pythonic longcat mimo minicpm5 minimax_m2 "
           "minimax_m3 mistral olmo3 openai phi4_mini_json poolside_v1 pythonic qwen3_coder "
           "qwen3_xml seed_oss step3 step3p5 xlam deepseekv3 deepseekv31 deepseekv32 deepseekv4 "
           "glm gpt-oss hunyuan interns1 llama3 minimax-m2 minimax-m3 qwen qwen25 trinity "
           "apertus2509")) {
    EXPECT_TRUE(choose_tool_dialect(name, "").ok()) << name;
  }
  for (std::string_view name : split(
           "cohere_command3 cohere_command4 deepseek_r1 deepseek_v3 deepseek_v4 ernie45 gemma4 "
           "glm45 glm47 granite holo2 hunyuan_a13b hy_v3 kimi_k2 kimi_k3 ling3 mimo minimax_m2 "
           "minimax_m2_append_think minimax_m3 mistral nemotron_v3 olmo3 openai_gptoss poolside_v1 "
           "qwen3 seed_oss step3 step3p5 deepseek-r1 deepseek-v3 deepseek-v4 gpt-oss hunyuan "
           "interns1 kimi minimax minimax-append-think minimax-m3 nemotron_3 qwen3-thinking")) {
    EXPECT_TRUE(choose_reasoning_dialect(name, "").ok()) << name;
  }
}

// One name, two spellings of the marks: the template says which.
TEST(OutputDialect, AmongRowsOfANameTheTemplateChooses) {
  OutputDialect dialect;
  dialect.tools = *choose_tool_dialect("hunyuan", "'<tool_sep:opensource>'");
  EXPECT_EQ(dialect.tools_name(), "hy_v3_opensource");
  dialect.tools = *choose_tool_dialect("hunyuan", "nothing");
  EXPECT_EQ(dialect.tools_name(), "hy_v3");
  dialect.reasoning = *choose_reasoning_dialect("hy_v3", "'<think:opensource>'");
  EXPECT_EQ(dialect.reasoning_name(), "hy_v3_opensource");
  dialect.reasoning = *choose_reasoning_dialect("hy_v3", "nothing");
  EXPECT_EQ(dialect.reasoning_name(), "qwen3");
}

// Marks of several control tokens reach the parser by each of them.
TEST(OutputDialect, TokensWithinMarksAreMarks) {
  const std::vector<std::string_view> marks = output_dialect("gemma4", "gemma4").marks();
  EXPECT_NE(std::find(marks.begin(), marks.end(), "<|channel>"), marks.end());
  const std::vector<std::string_view> others = output_dialect("none", "kimi_k3").marks();
  for (std::string_view token : {"<|open|>", "<|close|>", "<|sep|>"}) {
    EXPECT_NE(std::find(others.begin(), others.end(), token), others.end()) << token;
  }
}

TEST(OutputDialect, IsChosenByNameOrFromTheTemplate) {
  EXPECT_EQ(output_dialect("qwen25").tools_name(), "hermes");
  EXPECT_EQ(output_dialect("none", "none").tools_name(), "none");
  EXPECT_EQ((*choose_tool_dialect("auto", "nothing")), nullptr);
  EXPECT_NE((*choose_tool_dialect("auto", "{{ '<tool_call>' }}")), nullptr);
  const Status unknown = choose_tool_dialect("inkling", "").status();
  EXPECT_EQ(unknown.field(), "--tool-call-parser");
  EXPECT_TRUE(unknown.message().starts_with("--tool-call-parser: inkling is not known; there are "))
      << unknown.message();
  EXPECT_TRUE(output_dialect("hermes").opens_reasoning("<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(output_dialect("hermes").opens_reasoning("<think>\n\n</think>\n\n"));
  EXPECT_TRUE(output_dialect("hermes").closes_reasoning("<think>\n\n</think>\n\n"));
  EXPECT_FALSE(output_dialect("hermes").closes_reasoning("<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(output_dialect("hermes").closes_reasoning("</think>\n\n<|im_start|>assistant\n"));
}

}  // namespace
}  // namespace headrace::output_test
