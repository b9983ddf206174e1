// How families of models write calls and thoughts: the rows of both tables.
#include "text/output/call_forms.h"
#include "text/output/dialect_table.h"
#include "text/output/tagged_dialects.h"

namespace headrace {
namespace {

using Reader = std::unique_ptr<CallReader>;

Reader read_json(const ToolList& tools, bool bare) {
  return make_json_call_reader(bare ? &tools : nullptr);
}
Reader read_keyed_json(const ToolList&, bool) { return make_json_call_reader(nullptr, true); }
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
constexpr std::string_view kLlama4Layout[] = {"<|python_end|>"};
constexpr LooseCallForm kPythonForm = {.key_end = "="};
constexpr CallSpelling kLlama4Spelling[] = {{.behind_name = "(",
                                             .behind_arguments = ")",
                                             .list_open = "[",
                                             .separator = ", ",
                                             .list_close = "]",
                                             .marks_each = false,
                                             .loose = &kPythonForm}};

constexpr std::string_view kOlmoOpen[] = {"<function_calls>"};
constexpr std::string_view kOlmoLayout[] = {"</function_calls>"};
constexpr CallSpelling kOlmoSpelling[] = {{.behind_name = "(",
                                           .behind_arguments = ")",
                                           .separator = "\n",
                                           .list_close = "\n</function_calls>",
                                           .marks_each = false,
                                           .loose = &kPythonForm}};

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
constexpr LooseCallForm kGemmaForm = {.key_end = ":", .quote = "<escape>"};
constexpr CallSpelling kGemmaSpelling[] = {{.before_name = "call:",
                                            .behind_name = "{",
                                            .behind_arguments = "}",
                                            .close = "<end_function_call>",
                                            .loose = &kGemmaForm}};
constexpr std::string_view kGemma4Open[] = {"<|tool_call>"};
constexpr std::string_view kGemma4Layout[] = {"<tool_call|>", "<|tool_response>"};
constexpr std::string_view kGemma4Inner[] = {"<|\"|>"};
constexpr LooseCallForm kGemma4Form = {.key_end = ":", .quote = "<|\"|>"};
constexpr CallSpelling kGemma4Spelling[] = {{.before_name = "call:",
                                             .behind_name = "{",
                                             .behind_arguments = "}",
                                             .close = "<tool_call|>",
                                             .loose = &kGemma4Form}};

// A list of JSON calls between two marks: Jamba and Hunyuan-A13B.
constexpr std::string_view kListOpen[] = {"<tool_calls>"};
constexpr std::string_view kListLayout[] = {"</tool_calls>"};
constexpr CallSpelling kListSpellings[] = {
    {.before_name = "{\"name\": \"",
     .behind_name = "\", \"arguments\": ",
     .behind_arguments = "}",
     .list_open = "[\n    ",
     .separator = ",\n    ",
     .list_close = "\n]</tool_calls>",
     .marks_each = false,
     .name_in_json = true},
    {.before_name = "{\"name\": \"",
     .behind_name = "\", \"arguments\": ",
     .behind_arguments = "}",
     .list_open = "[",
     .separator = ", ",
     .list_close = "]</tool_calls>",
     .marks_each = false,
     .name_in_json = true},
};

constexpr std::string_view kCohereOpen[] = {"<|START_ACTION|>"};
constexpr std::string_view kCohereLayout[] = {"<|END_ACTION|>"};
constexpr std::string_view kCohereAnswerOpens[] = {"<|START_RESPONSE|>", "<|START_TEXT|>"};
constexpr std::string_view kCohereAnswerCloses[] = {"<|END_RESPONSE|>", "<|END_TEXT|>"};
constexpr std::string_view kCohereInner[] = {"<|START_RESPONSE|>", "<|START_TEXT|>",
                                             "<|END_RESPONSE|>", "<|END_TEXT|>"};
constexpr CallSpelling kCohereSpelling[] = {{.before_id = "{\"tool_call_id\": \"",
                                             .before_name = "\", \"tool_name\": \"",
                                             .behind_name = "\", \"parameters\": ",
                                             .behind_arguments = "}",
                                             .list_open = "[\n    ",
                                             .separator = ",\n    ",
                                             .list_close = "\n]<|END_ACTION|>",
                                             .marks_each = false,
                                             .id = CallIdForm::kNumber,
                                             .name_in_json = true}};

constexpr std::string_view kApertusOpen[] = {"<|tools_prefix|>"};
constexpr std::string_view kApertusLayout[] = {"<|tools_suffix|>"};
constexpr CallSpelling kApertusSpelling[] = {{.before_name = "{\"",
                                              .behind_name = "\": ",
                                              .behind_arguments = "}",
                                              .list_open = "[",
                                              .separator = ", ",
                                              .list_close = "]<|tools_suffix|>",
                                              .marks_each = false,
                                              .name_in_json = true}};

constexpr std::string_view kInternSigns[] = {"<|action_start|>"};
constexpr std::string_view kInternOpen[] = {"<|action_start|><|plugin|>",
                                            "<|action_start|> <|plugin|>"};
constexpr std::string_view kInternLayout[] = {"<|action_end|>"};
constexpr std::string_view kInternInner[] = {"<|action_start|>", "<|plugin|>"};
constexpr CallSpelling kInternSpelling[] = {{.before_name = "\n{\"name\": \"",
                                             .behind_name = "\", \"parameters\": ",
                                             .behind_arguments = "}",
                                             .close = "<|action_end|>",
                                             .separator = "\n",
                                             .name_in_json = true}};

constexpr std::string_view kGigaSigns[] = {"<|role_sep|>", "function"};
constexpr std::string_view kGigaOpen[] = {"function call<|role_sep|>", "<|function_call|>"};
constexpr std::string_view kGigaCloses[] = {"<|message_sep|>"};
constexpr std::string_view kGigaInner[] = {"<|role_sep|>", "<|message_sep|>"};
constexpr CallSpelling kGigaSpellings[] = {
    {.section_open = "<|message_sep|>\n\n",
     .before_name = "{\"name\": \"",
     .behind_name = "\", \"arguments\": ",
     .behind_arguments = "}",
     .separator = "; ",
     .marks_each = false,
     .name_in_json = true},
    {.before_name = "{\"name\": \"",
     .behind_name = "\", \"arguments\": ",
     .behind_arguments = "}",
     .separator = "; ",
     .marks_each = false,
     .name_in_json = true},
};

constexpr std::string_view kXlamSigns[] = {"make calls in a single JSON array"};
constexpr std::string_view kXlamOpen[] = {"[TOOL_CALLS]", "<tool_call>"};
constexpr std::string_view kXlamLooseOpen[] = {"```json"};
constexpr std::string_view kXlamLayout[] = {"</tool_call>"};

constexpr std::string_view kLfmOpen[] = {"<|tool_call_start|>"};
constexpr std::string_view kLfmLayout[] = {"<|tool_call_end|>"};
constexpr CallSpelling kLfmSpelling[] = {{.behind_name = "(",
                                          .behind_arguments = ")",
                                          .list_open = "[",
                                          .separator = ", ",
                                          .list_close = "]<|tool_call_end|>",
                                          .marks_each = false,
                                          .loose = &kPythonForm}};

constexpr std::string_view kGemma4ThoughtInner[] = {"<|channel>"};
constexpr std::string_view kErnieAnswerOpens[] = {"<response>"};
constexpr std::string_view kErnieAnswerCloses[] = {"</response>"};
constexpr std::string_view kHunyuanAnswerOpens[] = {"<answer>", "助手："};
constexpr std::string_view kHunyuanAnswerCloses[] = {"</answer>"};

constexpr std::string_view kHarmonySigns[] = {"<|channel|>", "<|message|>"};
constexpr std::string_view kHarmonyMarks[] = {"<|start|>",   "<|end|>",       "<|message|>",
                                              "<|channel|>", "<|constrain|>", "<|call|>",
                                              "<|return|>"};

Reader read_mistral(const ToolList&, bool) { return make_mistral_call_reader(kMistralForm); }
Reader read_python_list(const ToolList& tools, bool bare) {
  return make_python_call_reader(bare ? &tools : nullptr, true);
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
    {.names = "kimi_k3",
     .template_signs = kXtmlSigns,
     .opens = kXtmlOpen,
     .layout = kXtmlLayout,
     .inner = kXtmlSigns,
     .make_reader = read_tagged<kXtmlForm>,
     .spellings = kXtmlSpelling},
    {.names = "step3",
     .template_signs = kStepSigns,
     .opens = kStepOpen,
     .layout = kStepLayout,
     .inner = kStepInner,
     .make_reader = read_tagged<kStepForm>,
     .spellings = kStepSpelling},
    {.names = "dots",
     .template_signs = kDotsSigns,
     .opens = kMiniMaxOpen,
     .layout = kDotsLayout,
     .make_reader = read_tagged<kMiniMaxForm>,
     .spellings = kDotsSpelling},
    {.names = "minicpm5",
     .template_signs = kMiniCpmSigns,
     .opens = kMiniCpmOpen,
     .layout = {},
     .make_reader = read_tagged<kMiniCpmForm>,
     .spellings = kMiniCpmSpelling},
    {.names = "hy_v3,hunyuan",
     .template_signs = kHy3Signs,
     .opens = kHermesOpen,
     .layout = kHy3Layout,
     .inner = kHy3Inner,
     .make_reader = read_tagged<kHy3Form>,
     .spellings = kHy3Spelling},
    {.names = "hy_v3_opensource,hy_v3,hunyuan",
     .template_signs = kHy3OpenSigns,
     .opens = kHy3OpenOpen,
     .layout = kHy3OpenLayout,
     .inner = kHy3OpenInner,
     .make_reader = read_tagged<kHy3OpenForm>,
     .spellings = kHy3OpenSpelling},
    {.names = "glm45,glm47,glm,glm4,ling3,poolside_v1",
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
    {.names = "qwen3_coder,qwen3_xml,step3p5,mimo",
     .template_signs = kQwenSigns,
     .opens = kFunctionOpen,
     .layout = kQwenLayout,
     .make_reader = read_tagged<kFunctionForm>,
     .spellings = kQwenSpelling},
    {.names = "xlam",
     .template_signs = kXlamSigns,
     .opens = kXlamOpen,
     .layout = kXlamLayout,
     .loose_opens = kXlamLooseOpen,
     .bare_open = '[',
     .make_reader = read_json,
     .spellings = kJsonListSpelling,
     .enforces_bare = true},
    {.names = "cohere_command3,cohere_command4",
     .template_signs = kCohereOpen,
     .opens = kCohereOpen,
     .layout = kCohereLayout,
     .inner = kCohereInner,
     .make_reader = read_json,
     .spellings = kCohereSpelling},
    {.names = "jamba,hunyuan_a13b",
     .template_signs = kListOpen,
     .opens = kListOpen,
     .layout = kListLayout,
     .make_reader = read_json,
     .spellings = kListSpellings},
    {.names = "apertus,apertus2509",
     .template_signs = kApertusOpen,
     .opens = kApertusOpen,
     .layout = kApertusLayout,
     .make_reader = read_keyed_json,
     .spellings = kApertusSpelling},
    {.names = "internlm,interns1",
     .template_signs = kInternSigns,
     .opens = kInternOpen,
     .layout = kInternLayout,
     .inner = kInternInner,
     .make_reader = read_json,
     .spellings = kInternSpelling},
    {.names = "gigachat3",
     .template_signs = kGigaSigns,
     .opens = kGigaOpen,
     .layout = {},
     .inner = kGigaInner,
     .make_reader = read_json,
     .spellings = kGigaSpellings,
     .answer_closes = kGigaCloses},
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
     .make_reader = read_function_gemma,
     .spellings = kGemmaSpelling},
    {.names = "gemma4",
     .template_signs = kGemma4Open,
     .opens = kGemma4Open,
     .layout = kGemma4Layout,
     .inner = kGemma4Inner,
     .make_reader = read_gemma4,
     .spellings = kGemma4Spelling},
    {.names = "pythonic,llama4_pythonic",
     .template_signs = kLlama4Signs,
     .opens = kLlama4Signs,
     .layout = kLlama4Layout,
     .bare_open = '[',
     .make_reader = read_python_list,
     .spellings = kLlama4Spelling,
     .enforces_bare = true},
    {.names = "lfm2",
     .template_signs = kLfmOpen,
     .opens = kLfmOpen,
     .layout = kLfmLayout,
     .make_reader = read_python_list,
     .spellings = kLfmSpelling},
    {.names = "olmo3",
     .template_signs = kOlmoOpen,
     .opens = kOlmoOpen,
     .layout = kOlmoLayout,
     .make_reader = read_python_lines,
     .spellings = kOlmoSpelling},
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
    {.names = "hermes,qwen,qwen25,granite4,ernie45,trinity",
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
    {.names = "openai_gptoss,gpt-oss",
     .template_sign = "<|channel|>analysis",
     .inner = kHarmonyMarks,
     .harmony = true},
    {"mistral", "[THINK]", "[THINK]", "[/THINK]"},
    {"seed_oss", "<seed:think>", "<seed:think>", "</seed:think>"},
    {"gemma4", "<|channel>", "<|channel>thought", "<channel|>", kGemma4ThoughtInner},
    {"granite",
     "Here is my thought process:", "Here is my thought process:", "Here is my response:"},
    {"kimi", "◁think▷", "◁think▷", "◁/think▷"},
    {"longcat", "<longcat_think>", "<longcat_think>", "</longcat_think>"},
    {.names = "minimax_m3,minimax-m3",
     .template_sign = "<mm:think>",
     .open = "<mm:think>",
     .close = "</mm:think>",
     .closes_unopened = true},
    {.names = "cohere_command3,cohere_command4",
     .template_sign = "<|START_THINKING|>",
     .open = "<|START_THINKING|>",
     .close = "<|END_THINKING|>",
     .answer_opens = kCohereAnswerOpens,
     .answer_closes = kCohereAnswerCloses},
    {.names = "apertus,apertus2509",
     .template_sign = "<|inner_prefix|>",
     .open = "<|inner_prefix|>",
     .close = "<|inner_suffix|>",
     .calls_close = true},
    {.names = "kimi_k3",
     .template_sign = "<|close|>",
     .open = "<|open|>think<|sep|>",
     .close = "<|close|>think<|sep|>",
     .inner = kXtmlSigns,
     .answer_opens = kXtmlAnswerOpens,
     .answer_closes = kXtmlAnswerCloses},
    {.names = "ernie45",
     .template_sign = "<response>",
     .open = "<think>",
     .close = "</think>",
     .answer_opens = kErnieAnswerOpens,
     .answer_closes = kErnieAnswerCloses},
    {.names = "hunyuan_a13b",
     .template_sign = "<|extra_0|>",
     .open = "<think>",
     .close = "</think>",
     .answer_opens = kHunyuanAnswerOpens,
     .answer_closes = kHunyuanAnswerCloses},
    {"qwen3,qwen3-thinking,deepseek_r1,deepseek-r1,deepseek_v3,deepseek-v3,deepseek_v4,deepseek-v4,"
     "glm45,glm47,kimi_k2,minimax_m2,minimax,nemotron_v3,nemotron_3,olmo3,step3,step3p5,interns1,"
     "mimo,holo2,hy_v3,hunyuan,ling3,poolside_v1",
     "<think>", "<think>", "</think>"},
    {"hy_v3_opensource,hy_v3,hunyuan", "<think:opensource>", "<think:opensource>",
     "</think:opensource>"},
    {.names = "minimax_m2_append_think,minimax-append-think",
     .template_sign = {},
     .open = "<think>",
     .close = "</think>",
     .in_content = true},
};

}  // namespace

std::span<const ToolDialect> tool_dialects() { return kToolDialects; }
std::span<const ReasoningDialect> reasoning_dialects() { return kReasoningDialects; }

}  // namespace headrace
