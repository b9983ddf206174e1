// Marks, forms and spellings of the dialects whose arguments stand between tags, for dialect.cc.
#pragma once

#include <string_view>

#include "text/output/call_forms.h"
#include "text/output/dialect_table.h"

namespace headrace {

// Of its later models, which think.
inline constexpr std::string_view kLongCatTagSigns[] = {"<longcat_arg_key>"};
inline constexpr std::string_view kLongCatTags[] = {"<longcat_arg_key>", "</longcat_arg_key>",
                                                    "<longcat_arg_value>", "</longcat_arg_value>"};
inline constexpr TaggedCallForm kLongCatForm = {.argument_open = "<longcat_arg_key>",
                                                .key_end = "</longcat_arg_key>",
                                                .value_open = "<longcat_arg_value>",
                                                .value_close = "</longcat_arg_value>",
                                                .end = "</longcat_tool_call>"};
inline constexpr CallSpelling kLongCatTagSpelling[] = {
    {.close = "</longcat_tool_call>", .separator = "", .tags = &kLongCatForm}};

inline constexpr std::string_view kFunctionOpen[] = {"<function="};
inline constexpr std::string_view kQwenSigns[] = {"<function=", "<parameter="};
inline constexpr std::string_view kQwenLayout[] = {"<tool_call>", "</tool_call>"};
inline constexpr std::string_view kSeedLayout[] = {"<seed:tool_call>", "</seed:tool_call>"};
inline constexpr TaggedCallForm kFunctionForm = {.name_end = ">",
                                                 .argument_open = "<parameter=",
                                                 .key_end = ">",
                                                 .value_close = "</parameter>",
                                                 .end = "</function>",
                                                 .lines = true};
inline constexpr CallSpelling kQwenSpelling[] = {{.lead = "<tool_call>\n",
                                                  .close = "</function>",
                                                  .behind_close = "\n</tool_call>",
                                                  .separator = "\n",
                                                  .tags = &kFunctionForm}};
inline constexpr CallSpelling kSeedSpelling[] = {{.lead = "<seed:tool_call>\n",
                                                  .close = "</function>",
                                                  .behind_close = "\n</seed:tool_call>",
                                                  .separator = "\n",
                                                  .tags = &kFunctionForm}};

inline constexpr std::string_view kMiniMaxOpen[] = {"<invoke name=\""};
inline constexpr std::string_view kMiniMaxLayout[] = {"<minimax:tool_call>",
                                                      "</minimax:tool_call>"};
inline constexpr TaggedCallForm kMiniMaxForm = {.name_end = "\">",
                                                .argument_open = "<parameter name=\"",
                                                .key_end = "\">",
                                                .value_close = "</parameter>",
                                                .end = "</invoke>"};
inline constexpr CallSpelling kMiniMaxSpelling[] = {{.section_open = "<minimax:tool_call>\n",
                                                     .section_close = "\n</minimax:tool_call>",
                                                     .close = "</invoke>",
                                                     .separator = "\n",
                                                     .tags = &kMiniMaxForm}};

// Of M3: one token in front of each tag, and tags within tags.
inline constexpr std::string_view kMiniMaxNestedSigns[] = {"]<]minimax[>[", "<invoke name=\""};
inline constexpr std::string_view kMiniMaxNestedOpen[] = {"]<]minimax[>[<invoke name=\""};
inline constexpr std::string_view kMiniMaxNestedLayout[] = {"]<]minimax[>[<tool_call>",
                                                            "]<]minimax[>[</tool_call>"};
inline constexpr std::string_view kMiniMaxNestedInner[] = {"]<]minimax[>["};
inline constexpr NestedCallForm kMiniMaxNestedForm = {
    .mark = "]<]minimax[>[", .name_end = "\">", .call = "invoke", .list_member = "item"};

// Of a form that is enforced what is no text is JSON, which is read between these tags, too.
inline constexpr TaggedCallForm kMiniMaxOuterForm = {.name_end = "\">",
                                                     .argument_open = "]<]minimax[>[<",
                                                     .key_end = ">",
                                                     .value_close = "]<]minimax[>[",
                                                     .end = "]<]minimax[>[</invoke>",
                                                     .close_key_open = "</",
                                                     .close_key_end = ">"};
inline constexpr CallSpelling kMiniMaxNestedSpelling[] = {
    {.section_open = "]<]minimax[>[<tool_call>\n",
     .section_close = "\n]<]minimax[>[</tool_call>",
     .close = "]<]minimax[>[</invoke>",
     .separator = "\n",
     .tags = &kMiniMaxOuterForm}};

inline constexpr std::string_view kGlmSigns[] = {"<arg_key>"};
inline constexpr std::string_view kGlmInner[] = {"<arg_key>", "</arg_key>", "<arg_value>",
                                                 "</arg_value>"};
inline constexpr TaggedCallForm kGlmForm = {.argument_open = "<arg_key>",
                                            .key_end = "</arg_key>",
                                            .value_open = "<arg_value>",
                                            .value_close = "</arg_value>",
                                            .end = "</tool_call>"};
inline constexpr CallSpelling kGlmSpelling[] = {
    {.close = "</tool_call>", .separator = "\n", .tags = &kGlmForm}};

inline constexpr std::string_view kDsmlSigns[] = {"｜DSML｜"};
inline constexpr std::string_view kDsmlOpen[] = {"<｜DSML｜invoke name=\""};
inline constexpr std::string_view kDsmlLayout[] = {"<｜DSML｜function_calls>",
                                                   "</｜DSML｜function_calls>",
                                                   "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"};
inline constexpr TaggedCallForm kDsmlForm = {.name_end = "\">",
                                             .argument_open = "<｜DSML｜parameter name=\"",
                                             .key_end = "\" string=\"",
                                             .kind_end = "\">",
                                             .value_close = "</｜DSML｜parameter>",
                                             .end = "</｜DSML｜invoke>"};
inline constexpr CallSpelling kDsmlSpellings[] = {
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
inline constexpr std::string_view kDsmlInner[] = {"｜DSML｜"};

inline constexpr std::string_view kStepSigns[] = {"<steptml:invoke"};
inline constexpr std::string_view kStepOpen[] = {"<steptml:invoke name=\""};
inline constexpr std::string_view kStepLayout[] = {"<｜tool_calls_begin｜>",
                                                   "<｜tool_call_begin｜>function<｜tool_sep｜>",
                                                   "<｜tool_call_end｜>", "<｜tool_calls_end｜>"};
inline constexpr std::string_view kStepInner[] = {"<｜tool_call_begin｜>", "<｜tool_sep｜>"};
inline constexpr TaggedCallForm kStepForm = {.name_end = "\">",
                                             .argument_open = "<steptml:parameter name=\"",
                                             .key_end = "\">",
                                             .value_close = "</steptml:parameter>",
                                             .end = "</steptml:invoke>"};
inline constexpr CallSpelling kStepSpelling[] = {
    {.section_open = "<｜tool_calls_begin｜>\n",
     .section_close = "\n<｜tool_calls_end｜>",
     .lead = "<｜tool_call_begin｜>function<｜tool_sep｜>",
     .close = "</steptml:invoke>",
     .behind_close = "<｜tool_call_end｜>",
     .separator = "\n",
     .tags = &kStepForm}};

inline constexpr std::string_view kDotsSigns[] = {"<dots_function_call>"};
inline constexpr std::string_view kDotsLayout[] = {"<dots_function_call>", "</dots_function_call>"};
inline constexpr CallSpelling kDotsSpelling[] = {{.section_open = "<dots_function_call>\n",
                                                  .section_close = "\n</dots_function_call>",
                                                  .close = "</invoke>",
                                                  .separator = "\n",
                                                  .tags = &kMiniMaxForm}};

inline constexpr std::string_view kMiniCpmSigns[] = {"<function name=", "<param name="};
inline constexpr std::string_view kMiniCpmOpen[] = {"<function name=\""};
inline constexpr TaggedCallForm kMiniCpmForm = {.name_end = "\">",
                                                .argument_open = "<param name=\"",
                                                .key_end = "\">",
                                                .value_close = "</param>",
                                                .end = "</function>",
                                                .text_open = "<![CDATA[",
                                                .text_close = "]]>"};
inline constexpr CallSpelling kMiniCpmSpelling[] = {
    {.close = "</function>", .separator = "\n", .tags = &kMiniCpmForm}};

// Of Hunyuan 3; the marks of its released models have a suffix.
inline constexpr std::string_view kHy3Signs[] = {"<tool_sep>", "<arg_key>"};
inline constexpr std::string_view kHy3Layout[] = {"<tool_calls>", "</tool_calls>"};
inline constexpr std::string_view kHy3Inner[] = {"<tool_sep>", "<arg_key>", "</arg_key>",
                                                 "<arg_value>", "</arg_value>"};
inline constexpr TaggedCallForm kHy3Form = {.name_end = "<tool_sep>",
                                            .argument_open = "<arg_key>",
                                            .key_end = "</arg_key>",
                                            .value_open = "<arg_value>",
                                            .value_close = "</arg_value>",
                                            .end = "</tool_call>"};
inline constexpr CallSpelling kHy3Spelling[] = {{.section_open = "<tool_calls>\n",
                                                 .section_close = "\n</tool_calls>",
                                                 .close = "</tool_call>",
                                                 .separator = "\n",
                                                 .tags = &kHy3Form}};
inline constexpr std::string_view kHy3OpenSigns[] = {"<tool_sep:opensource>"};
inline constexpr std::string_view kHy3OpenOpen[] = {"<tool_call:opensource>"};
inline constexpr std::string_view kHy3OpenLayout[] = {"<tool_calls:opensource>",
                                                      "</tool_calls:opensource>"};
inline constexpr std::string_view kHy3OpenInner[] = {
    "<tool_sep:opensource>", "<arg_key:opensource>", "</arg_key:opensource>",
    "<arg_value:opensource>", "</arg_value:opensource>"};
inline constexpr TaggedCallForm kHy3OpenForm = {.name_end = "<tool_sep:opensource>",
                                                .argument_open = "<arg_key:opensource>",
                                                .key_end = "</arg_key:opensource>",
                                                .value_open = "<arg_value:opensource>",
                                                .value_close = "</arg_value:opensource>",
                                                .end = "</tool_call:opensource>"};
inline constexpr CallSpelling kHy3OpenSpelling[] = {{.section_open = "<tool_calls:opensource>\n",
                                                     .section_close = "\n</tool_calls:opensource>",
                                                     .close = "</tool_call:opensource>",
                                                     .separator = "\n",
                                                     .tags = &kHy3OpenForm}};

// Of Kimi K3: channels of tags that are three tokens each.
inline constexpr std::string_view kXtmlSigns[] = {"<|open|>", "<|close|>", "<|sep|>"};
inline constexpr std::string_view kXtmlOpen[] = {"<|open|>call tool=\""};
inline constexpr std::string_view kXtmlLayout[] = {"<|open|>tools<|sep|>", "<|close|>tools<|sep|>",
                                                   "<|close|>message<|sep|>"};
inline constexpr std::string_view kXtmlAnswerOpens[] = {"<|open|>response<|sep|>"};
inline constexpr std::string_view kXtmlAnswerCloses[] = {"<|close|>response<|sep|>",
                                                         "<|close|>message<|sep|>"};
inline constexpr std::string_view kXtmlJsonKinds[] = {"number", "boolean", "null", "object",
                                                      "array"};
inline constexpr TaggedCallForm kXtmlForm = {.name_end = "\" index=\"",
                                             .argument_open = "<|open|>argument key=\"",
                                             .key_end = "\" type=\"",
                                             .kind_end = "\"<|sep|>",
                                             .value_close = "<|close|>argument<|sep|>",
                                             .end = "<|close|>call<|sep|>",
                                             .text_kind = "string",
                                             .json_kinds = kXtmlJsonKinds,
                                             .number_end = "\"<|sep|>"};
inline constexpr CallSpelling kXtmlSpelling[] = {{.section_open = "<|open|>tools<|sep|>",
                                                  .section_close = "<|close|>tools<|sep|>",
                                                  .close = "<|close|>call<|sep|>",
                                                  .tags = &kXtmlForm}};

}  // namespace headrace
