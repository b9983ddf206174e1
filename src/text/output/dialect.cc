#include "text/output/dialect.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "text/output/call_forms.h"
#include "text/output/dialect_table.h"

namespace headrace {
namespace {

using Reader = std::unique_ptr<CallReader>;

Reader read_json(const ToolList& tools, bool bare) {
  return make_json_call_reader(bare ? &tools : nullptr);
}
template <const NamedCallForm& form>
Reader read_named(const ToolList&, bool) {
  return make_named_call_reader(form);
}
template <const TaggedCallForm& form>
Reader read_tagged(const ToolList& tools, bool) {
  return make_tagged_call_reader(form, tools);
}
template <const NestedCallForm& form>
Reader read_nested(const ToolList& tools, bool) {
  return make_nested_call_reader(form, tools);
}

constexpr std::string_view kHermesOpen[] = {"<tool_call>"};
constexpr std::string_view kHermesLayout[] = {"</tool_call>", "</tools>"};
constexpr CallSpelling kHermesSpelling[] = {{.before_name = "\n{\"name\": \"",
                                             .behind_name = "\", \"arguments\": ",
                                             .behind_arguments = "}\n",
                                             .close = "</tool_call>",
                                             .separator = "\n",
                                             .name_in_json = true}};
constexpr std::string_view kHermesLooseOpen[] = {"```json", "<tools>"};

constexpr std::string_view kLongCatOpen[] = {"<longcat_tool_call>"};
constexpr std::string_view kLongCatLayout[] = {"</longcat_tool_call>"};
constexpr CallSpelling kLongCatSpelling[] = {{.before_name = "\n{\"name\": \"",
                                              .behind_name = "\", \"arguments\": ",
                                              .behind_arguments = "}\n",
                                              .close = "</longcat_tool_call>",
                                              .separator = "",
                                              .name_in_json = true}};
// Of its later models, which think.
constexpr std::string_view kLongCatTagSigns[] = {"<longcat_arg_key>"};
constexpr std::string_view kLongCatTags[] = {"<longcat_arg_key>", "</longcat_arg_key>",
                                             "<longcat_arg_value>", "</longcat_arg_value>"};
constexpr TaggedCallForm kLongCatForm = {.argument_open = "<longcat_arg_key>",
                                         .key_end = "</longcat_arg_key>",
                                         .value_open = "<longcat_arg_value>",
                                         .value_close = "</longcat_arg_value>",
                                         .end = "</longcat_tool_call>"};
constexpr CallSpelling kLongCatTagSpelling[] = {
    {.close = "</longcat_tool_call>", .separator = "", .tags = &kLongCatForm}};

constexpr std::string_view kFunctionOpen[] = {"<function="};
constexpr std::string_view kQwenSigns[] = {"<function=", "<parameter="};
constexpr std::string_view kQwenLayout[] = {"<tool_call>", "</tool_call>"};
constexpr std::string_view kSeedLayout[] = {"<seed:tool_call>", "</seed:tool_call>"};
constexpr TaggedCallForm kFunctionForm = {.name_end = ">",
                                          .argument_open = "<parameter=",
                                          .key_end = ">",
                                          .value_close = "</parameter>",
                                          .end = "</function>",
                                          .lines = true};
constexpr CallSpelling kQwenSpelling[] = {{.lead = "<tool_call>\n",
                                           .close = "</function>",
                                           .behind_close = "\n</tool_call>",
                                           .separator = "\n",
                                           .tags = &kFunctionForm}};
constexpr CallSpelling kSeedSpelling[] = {{.lead = "<seed:tool_call>\n",
                                           .close = "</function>",
                                           .behind_close = "\n</seed:tool_call>",
                                           .separator = "\n",
                                           .tags = &kFunctionForm}};

constexpr std::string_view kMiniMaxOpen[] = {"<invoke name=\""};
constexpr std::string_view kMiniMaxLayout[] = {"<minimax:tool_call>", "</minimax:tool_call>"};
constexpr TaggedCallForm kMiniMaxForm = {.name_end = "\">",
                                         .argument_open = "<parameter name=\"",
                                         .key_end = "\">",
                                         .value_close = "</parameter>",
                                         .end = "</invoke>"};
constexpr CallSpelling kMiniMaxSpelling[] = {{.section_open = "<minimax:tool_call>\n",
                                              .section_close = "\n</minimax:tool_call>",
                                              .close = "</invoke>",
                                              .separator = "\n",
                                              .tags = &kMiniMaxForm}};

// Of M3: one token in front of each tag, and tags within tags.
constexpr std::string_view kMiniMaxNestedSigns[] = {"]<]minimax[>[", "<invoke name=\""};
constexpr std::string_view kMiniMaxNestedOpen[] = {"]<]minimax[>[<invoke name=\""};
constexpr std::string_view kMiniMaxNestedLayout[] = {"]<]minimax[>[<tool_call>",
                                                     "]<]minimax[>[</tool_call>"};
constexpr std::string_view kMiniMaxNestedInner[] = {"]<]minimax[>["};
constexpr NestedCallForm kMiniMaxNestedForm = {
    .mark = "]<]minimax[>[", .name_end = "\">", .call = "invoke", .list_member = "item"};

// Of a form that is enforced what is no text is JSON, which is read between these tags, too.
constexpr TaggedCallForm kMiniMaxOuterForm = {.name_end = "\">",
                                              .argument_open = "]<]minimax[>[<",
                                              .key_end = ">",
                                              .value_close = "]<]minimax[>[",
                                              .end = "]<]minimax[>[</invoke>",
                                              .close_key_open = "</",
                                              .close_key_end = ">"};
constexpr CallSpelling kMiniMaxNestedSpelling[] = {{.section_open = "]<]minimax[>[<tool_call>\n",
                                                    .section_close = "\n]<]minimax[>[</tool_call>",
                                                    .close = "]<]minimax[>[</invoke>",
                                                    .separator = "\n",
                                                    .tags = &kMiniMaxOuterForm}};

constexpr std::string_view kGlmSigns[] = {"<arg_key>"};
constexpr std::string_view kGlmInner[] = {"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"};
constexpr TaggedCallForm kGlmForm = {.argument_open = "<arg_key>",
                                     .key_end = "</arg_key>",
                                     .value_open = "<arg_value>",
                                     .value_close = "</arg_value>",
                                     .end = "</tool_call>"};
constexpr CallSpelling kGlmSpelling[] = {
    {.close = "</tool_call>", .separator = "\n", .tags = &kGlmForm}};

constexpr std::string_view kDsmlSigns[] = {"｜DSML｜"};
constexpr std::string_view kDsmlOpen[] = {"<｜DSML｜invoke name=\""};
constexpr std::string_view kDsmlLayout[] = {"<｜DSML｜function_calls>", "</｜DSML｜function_calls>",
                                            "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"};
constexpr TaggedCallForm kDsmlForm = {.name_end = "\">",
                                      .argument_open = "<｜DSML｜parameter name=\"",
                                      .key_end = "\" string=\"",
                                      .kind_end = "\">",
                                      .value_close = "</｜DSML｜parameter>",
                                      .end = "</｜DSML｜invoke>"};
constexpr CallSpelling kDsmlSpellings[] = {
    {.section_open = "<｜DSML｜function_calls>\n",
     .section_close = "\n</｜DSML｜function_calls>",
     .close = "</｜DSML｜invoke>",
     .separator = "\n",
     .tags = &kDsmlForm},
    {.section_open = "<｜DSML｜tool_calls>\n",
     .section_close = "\n</｜DSML｜tool_calls>",
     .close = "</｜DSML｜invoke>",
     .separator = "\n",
     .tags = &kDsmlForm},
};
constexpr std::string_view kDsmlInner[] = {"｜DSML｜"};

constexpr std::string_view kDeepSeekOpen[] = {"<｜tool▁call▁begin｜>"};
constexpr std::string_view kDeepSeekSigns[] = {"<｜tool▁call▁begin｜>", "```json"};
constexpr std::string_view kDeepSeekLayout[] = {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
                                                "<｜tool▁call▁end｜>", "```"};
constexpr std::string_view kDeepSeekInner[] = {"<｜tool▁sep｜>"};
constexpr NamedCallForm kDeepSeekV3Form = {.prefix = "function<｜tool▁sep｜>",
                                           .mark = "\n```json\n"};
constexpr NamedCallForm kDeepSeekV31Form = {.mark = "<｜tool▁sep｜>"};
constexpr CallSpelling kDeepSeekV3Spelling[] = {{.section_open = "<｜tool▁calls▁begin｜>",
                                                 .section_close = "<｜tool▁calls▁end｜>",
                                                 .before_name = "function<｜tool▁sep｜>",
                                                 .behind_name = "\n```json\n",
                                                 .behind_arguments = "\n```",
                                                 .close = "<｜tool▁call▁end｜>",
                                                 .separator = "\n"}};
constexpr CallSpelling kDeepSeekV31Spelling[] = {{.section_open = "<｜tool▁calls▁begin｜>",
                                                  .section_close = "<｜tool▁calls▁end｜>",
                                                  .behind_name = "<｜tool▁sep｜>",
                                                  .close = "<｜tool▁call▁end｜>"}};

constexpr std::string_view kKimiOpen[] = {"<|tool_call_begin|>"};
constexpr std::string_view kKimiLayout[] = {"<|tool_calls_section_begin|>",
                                            "<|tool_calls_section_end|>", "<|tool_call_end|>"};
constexpr std::string_view kKimiInner[] = {"<|tool_call_argument_begin|>"};
constexpr NamedCallForm kKimiForm = {.mark = "<|tool_call_argument_begin|>", .name_is_id = true};
constexpr CallSpelling kKimiSpelling[] = {{.section_open = "<|tool_calls_section_begin|>",
                                           .section_close = "<|tool_calls_section_end|>",
                                           .before_name = "functions.",
                                           .behind_name = ":",
                                           .behind_id = "<|tool_call_argument_begin|>",
                                           .close = "<|tool_call_end|>",
                                           .id = CallIdForm::kNumber}};

constexpr std::string_view kMistralOpen[] = {"[TOOL_CALLS]"};
constexpr std::string_view kMistralInner[] = {"[ARGS]", "[CALL_ID]"};
constexpr NamedCallForm kMistralForm = {
    .mark = "[ARGS]", .id_mark = "[CALL_ID]", .mark_may_lack = true};
constexpr CallSpelling kMistralSpellings[] = {
    {.before_name = "{\"name\": \"",
     .behind_name = "\", \"arguments\": ",
     .behind_arguments = "}",
     .list_open = "[",
     .separator = ", ",
     .list_close = "]",
     .marks_each = false,
     .name_in_json = true},
    {.behind_name = "[ARGS]"},
    {.behind_name = "[CALL_ID]", .behind_id = "[ARGS]", .id = CallIdForm::kNine},
};

constexpr std::string_view kLlamaSigns[] = {"\"parameters\": dictionary"};
constexpr std::string_view kLlamaOpen[] = {"<|python_tag|>"};
constexpr CallSpelling kLlamaSpelling[] = {{.before_name = "{\"name\": \"",
                                            .behind_name = "\", \"parameters\": ",
                                            .behind_arguments = "}",
                                            .separator = "; ",
                                            .marks_each = false,
                                            .name_in_json = true}};
constexpr std::string_view kLlama4Signs[] = {"<|python_start|>"};
constexpr std::string_view kLlama4Layout[] = {"<|python_start|>", "<|python_end|>"};

constexpr std::string_view kOlmoOpen[] = {"<function_calls>"};
constexpr std::string_view kOlmoLayout[] = {"</function_calls>"};

constexpr std::string_view kPhiSigns[] = {"<|tool|>"};
constexpr std::string_view kPhiOpen[] = {"functools", "<|tool_call|>"};
constexpr std::string_view kPhiLayout[] = {"<|/tool_call|>"};

constexpr std::string_view kGraniteSigns[] = {"<|tool_call|>"};
constexpr std::string_view kGraniteOpen[] = {"<|tool_call|>", "<tool_call>", "<function_call>"};
// A list of objects behind one mark; Phi-4's, too.
constexpr CallSpelling kJsonListSpelling[] = {{.before_name = "{\"name\": \"",
                                               .behind_name = "\", \"arguments\": ",
                                               .behind_arguments = "}",
                                               .list_open = "[",
                                               .separator = ", ",
                                               .list_close = "]",
                                               .marks_each = false,
                                               .name_in_json = true}};

constexpr std::string_view kGemmaOpen[] = {"<start_function_call>"};
constexpr std::string_view kGemmaLayout[] = {"<end_function_call>", "<start_function_response>"};
constexpr std::string_view kGemmaInner[] = {"<escape>"};
constexpr std::string_view kGemma4Open[] = {"<|tool_call>"};
constexpr std::string_view kGemma4Layout[] = {"<tool_call|>", "<|tool_response>"};
constexpr std::string_view kGemma4Inner[] = {"<|\"|>"};

constexpr std::string_view kHarmonySigns[] = {"<|channel|>", "<|message|>"};
constexpr std::string_view kHarmonyMarks[] = {"<|start|>",   "<|end|>",       "<|message|>",
                                              "<|channel|>", "<|constrain|>", "<|call|>",
                                              "<|return|>"};

Reader read_mistral(const ToolList&, bool) { return make_mistral_call_reader(kMistralForm); }
Reader read_python_list(const ToolList& tools, bool) {
  return make_python_call_reader(&tools, true);
}
Reader read_python_lines(const ToolList&, bool) { return make_python_call_reader(nullptr, false); }
Reader read_function_gemma(const ToolList&, bool) { return make_gemma_call_reader("<escape>"); }
Reader read_gemma4(const ToolList&, bool) { return make_gemma_call_reader("<|\"|>"); }

// Templates of several forms hold signs of others: the first row that fits is taken.
constexpr ToolDialect kToolDialects[] = {
    {.names = "openai,gpt-oss,harmony",
     .template_signs = kHarmonySigns,
     .inner = kHarmonyMarks,
     .harmony = true},
    {.names = "minimax_m2,minimax-m2",
     .template_signs = kMiniMaxLayout,
     .opens = kMiniMaxOpen,
     .layout = kMiniMaxLayout,
     .make_reader = read_tagged<kMiniMaxForm>,
     .spellings = kMiniMaxSpelling},
    {.names = "deepseek_v32,deepseekv32,deepseek_v4,deepseekv4",
     .template_signs = kDsmlSigns,
     .opens = kDsmlOpen,
     .layout = kDsmlLayout,
     .inner = kDsmlInner,
     .make_reader = read_tagged<kDsmlForm>,
     .spellings = kDsmlSpellings},
    {.names = "deepseek_v3,deepseekv3",
     .template_signs = kDeepSeekSigns,
     .opens = kDeepSeekOpen,
     .layout = kDeepSeekLayout,
     .inner = kDeepSeekInner,
     .make_reader = read_named<kDeepSeekV3Form>,
     .spellings = kDeepSeekV3Spelling},
    {.names = "deepseek_v31,deepseekv31",
     .template_signs = kDeepSeekOpen,
     .opens = kDeepSeekOpen,
     .layout = kDeepSeekLayout,
     .inner = kDeepSeekInner,
     .make_reader = read_named<kDeepSeekV31Form>,
     .spellings = kDeepSeekV31Spelling},
    {.names = "kimi_k2",
     .template_signs = kKimiOpen,
     .opens = kKimiOpen,
     .layout = kKimiLayout,
     .inner = kKimiInner,
     .make_reader = read_named<kKimiForm>,
     .spellings = kKimiSpelling},
    {.names = "glm45,glm47,glm,glm4",
     .template_signs = kGlmSigns,
     .opens = kHermesOpen,
     .inner = kGlmInner,
     .make_reader = read_tagged<kGlmForm>,
     .spellings = kGlmSpelling},
    {.names = "seed_oss",
     .template_signs = kSeedLayout,
     .opens = kFunctionOpen,
     .layout = kSeedLayout,
     .make_reader = read_tagged<kFunctionForm>,
     .spellings = kSeedSpelling},
    {.names = "qwen3_coder,qwen3_xml",
     .template_signs = kQwenSigns,
     .opens = kFunctionOpen,
     .layout = kQwenLayout,
     .make_reader = read_tagged<kFunctionForm>,
     .spellings = kQwenSpelling},
    {.names = "mistral",
     .template_signs = kMistralOpen,
     .opens = kMistralOpen,
     .inner = kMistralInner,
     .make_reader = read_mistral,
     .ids = CallIdStyle::kNine,
     .spellings = kMistralSpellings},
    {.names = "functiongemma",
     .template_signs = kGemmaOpen,
     .opens = kGemmaOpen,
     .layout = kGemmaLayout,
     .inner = kGemmaInner,
     .make_reader = read_function_gemma},
    {.names = "gemma4",
     .template_signs = kGemma4Open,
     .opens = kGemma4Open,
     .layout = kGemma4Layout,
     .inner = kGemma4Inner,
     .make_reader = read_gemma4},
    {.names = "pythonic,llama4_pythonic",
     .template_signs = kLlama4Signs,
     .layout = kLlama4Layout,
     .bare_open = '[',
     .make_reader = read_python_list},
    {.names = "olmo3",
     .template_signs = kOlmoOpen,
     .opens = kOlmoOpen,
     .layout = kOlmoLayout,
     .make_reader = read_python_lines},
    {.names = "phi4_mini_json",
     .template_signs = kPhiSigns,
     .opens = kPhiOpen,
     .layout = kPhiLayout,
     .make_reader = read_json,
     .spellings = kJsonListSpelling},
    {.names = "granite,granite-20b-fc",
     .template_signs = kGraniteSigns,
     .opens = kGraniteOpen,
     .layout = kHermesLayout,
     .make_reader = read_json,
     .spellings = kJsonListSpelling},
    {.names = "hermes,qwen,qwen25,granite4",
     .template_signs = kHermesOpen,
     .template_lacks = "<invoke name",
     .opens = kHermesOpen,
     .layout = kHermesLayout,
     .loose_opens = kHermesLooseOpen,
     .bare_open = '{',
     .make_reader = read_json,
     .spellings = kHermesSpelling},
    {.names = "llama3_json,llama4_json,llama3",
     .template_signs = kLlamaSigns,
     .opens = kLlamaOpen,
     .bare_open = '{',
     .make_reader = read_json,
     .spellings = kLlamaSpelling,
     .enforces_bare = true},
    {.names = "longcat_thinking",
     .template_signs = kLongCatTagSigns,
     .opens = kLongCatOpen,
     .layout = kLongCatLayout,
     .inner = kLongCatTags,
     .make_reader = read_tagged<kLongCatForm>,
     .spellings = kLongCatTagSpelling},
    {.names = "longcat",
     .template_signs = kLongCatOpen,
     .template_lacks = "<longcat_arg_key>",
     .opens = kLongCatOpen,
     .layout = kLongCatLayout,
     .make_reader = read_json,
     .spellings = kLongCatSpelling},
    {.names = "minimax_m3,minimax-m3",
     .template_signs = kMiniMaxNestedSigns,
     .opens = kMiniMaxNestedOpen,
     .layout = kMiniMaxNestedLayout,
     .inner = kMiniMaxNestedInner,
     .make_reader = read_nested<kMiniMaxNestedForm>,
     .spellings = kMiniMaxNestedSpelling},
};

constexpr ReasoningDialect kReasoningDialects[] = {
    {.names = "openai_gptoss,gpt-oss", .template_sign = "<|channel|>analysis", .harmony = true},
    {"mistral", "[THINK]", "[THINK]", "[/THINK]"},
    {"seed_oss", "<seed:think>", "<seed:think>", "</seed:think>"},
    {"gemma4", "<|channel>", "<|channel>thought", "<channel|>"},
    {"granite",
     "Here is my thought process:", "Here is my thought process:", "Here is my response:"},
    {"kimi", "◁think▷", "◁think▷", "◁/think▷"},
    {"longcat", "<longcat_think>", "<longcat_think>", "</longcat_think>"},
    {.names = "minimax_m3,minimax-m3",
     .template_sign = "<mm:think>",
     .open = "<mm:think>",
     .close = "</mm:think>",
     .closes_unopened = true},
    {"qwen3,qwen3-thinking,deepseek_r1,deepseek-r1,deepseek_v3,deepseek-v3,glm45,glm47,kimi_k2,"
     "minimax_m2,minimax,nemotron_v3,nemotron_3,olmo3,step3,interns1",
     "<think>", "<think>", "</think>"},
};

std::string_view first_name(std::string_view names) { return names.substr(0, names.find(',')); }

bool has_name(std::string_view names, std::string_view name) {
  return !name.empty() &&
         fmt::format(",{},", names).find(fmt::format(",{},", name)) != std::string::npos;
}

template <class Row, class Fits>
Result<const Row*> choose(std::span<const Row> rows, std::string_view flag, std::string_view name,
                          const Fits& fits) {
  if (name == "none" || name.empty()) return static_cast<const Row*>(nullptr);
  std::string known = "auto, none";
  for (const Row& row : rows) {
    if (name == "auto" ? fits(row) : has_name(row.names, name)) return &row;
    known += fmt::format(", {}", first_name(row.names));
  }
  if (name == "auto") return static_cast<const Row*>(nullptr);
  return invalid_argument(fmt::format("{}: {} is not known; there are {}", flag, name, known),
                          std::string(flag));
}

std::string_view without_layout_behind(std::string_view text) {
  while (!text.empty() && is_layout_space(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

std::span<const ToolDialect> tool_dialects() { return kToolDialects; }
std::span<const ReasoningDialect> reasoning_dialects() { return kReasoningDialects; }

Result<const ToolDialect*> choose_tool_dialect(std::string_view name,
                                               std::string_view chat_template) {
  const auto fits = [&](const ToolDialect& row) {
    const bool lacks = row.template_lacks.empty() ||
                       chat_template.find(row.template_lacks) == std::string_view::npos;
    return !row.template_signs.empty() && lacks &&
           std::all_of(row.template_signs.begin(), row.template_signs.end(), [&](auto sign) {
             return chat_template.find(sign) != std::string_view::npos;
           });
  };
  return choose<ToolDialect>(kToolDialects, "--tool-call-parser", name, fits);
}

Result<const ReasoningDialect*> choose_reasoning_dialect(std::string_view name,
                                                         std::string_view chat_template) {
  const auto fits = [&](const ReasoningDialect& row) {
    return chat_template.find(row.template_sign) != std::string_view::npos;
  };
  return choose<ReasoningDialect>(kReasoningDialects, "--reasoning-parser", name, fits);
}

std::vector<std::string_view> tool_marks(const ToolDialect& dialect) {
  std::vector<std::string_view> marks(dialect.opens.begin(), dialect.opens.end());
  marks.insert(marks.end(), dialect.layout.begin(), dialect.layout.end());
  marks.insert(marks.end(), dialect.inner.begin(), dialect.inner.end());
  return marks;
}

std::string_view OutputDialect::tools_name() const {
  return tools ? first_name(tools->names) : "none";
}

std::string_view OutputDialect::reasoning_name() const {
  return reasoning ? first_name(reasoning->names) : "none";
}

std::vector<std::string_view> OutputDialect::marks() const {
  std::vector<std::string_view> marks;
  if (tools) marks = tool_marks(*tools);
  if (!reasoning) return marks;
  if (reasoning->harmony) {
    marks.insert(marks.end(), std::begin(kHarmonyMarks), std::end(kHarmonyMarks));
  } else {
    marks.insert(marks.end(), {reasoning->open, reasoning->close});
  }
  return marks;
}

bool OutputDialect::opens_reasoning(std::string_view prompt_end) const {
  if (!reasoning || reasoning->harmony) return false;
  return without_layout_behind(prompt_end).ends_with(reasoning->open);
}

bool OutputDialect::closes_reasoning(std::string_view prompt_end) const {
  if (!reasoning || reasoning->harmony) return false;
  return without_layout_behind(prompt_end).ends_with(reasoning->close);
}

bool enforces_calls(const ToolDialect* dialect) {
  return dialect && (dialect->harmony || !dialect->spellings.empty());
}

bool enforces_bare_calls(const ToolDialect* dialect) { return dialect && dialect->enforces_bare; }

StopShield call_shield(const ToolDialect& dialect) {
  if (dialect.harmony) return {.opens = {" to=functions."}, .close = "<|call|>"};
  return {.opens = {dialect.opens.begin(), dialect.opens.end()},
          .close = std::string(dialect.spellings.front().close),
          .bare_open = dialect.enforces_bare ? dialect.bare_open : '\0'};
}

bool bounds_thoughts(const ReasoningDialect* dialect) { return dialect && !dialect->harmony; }

CallIdStyle call_id_style(const ToolDialect* dialect) {
  return dialect ? dialect->ids : CallIdStyle::kCall;
}

}  // namespace headrace
