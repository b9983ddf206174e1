#include "text/output/output_samples.h"

namespace headrace {

namespace {

constexpr OutputSample kOutputSamples[] = {
    // ---- Hermes, Qwen 2.5 and 3
    {"hermes", "Just words.", "Just words."},
    {"hermes", "  Two\n\nparagraphs, a < b.\n", "  Two\n\nparagraphs, a < b.\n"},
    {"hermes",
     "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n"
     "</tool_call>",
     R"({get_weather {"city": "Paris"}})"},
    {"hermes",
     "Let me look.\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n"
     "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Köln 日本 😀\", "
     "\"days\": 3}}\n</tool_call>\nDone.",
     "Let me look.{now {}}{get_weather {\"city\": \"Köln 日本 😀\", \"days\": 3}}Done."},
    {"hermes",
     "<tool_call>{\"arguments\": {\"text\": \"say \\\"</tool_call>\\\" {x}\", \"path\": "
     "\"a\\\\b\"}, \"name\": \"write_file\"}</tool_call>",
     "{write_file {\"text\": \"say \\\"</tool_call>\\\" {x}\", \"path\": \"a\\\\b\"}}"},
    {"hermes", "<tool_call>{\"name\": \"now\"}</tool_call>", "{now {}}"},
    {"hermes", "<tool_call>{\"name\": \"now\", \"arguments\": null}</tool_call>", "{now {}}"},
    {"hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {}}", "{now {}}"},
    {"hermes", "<tool_call>{\"name\": \"now\", \"argum", "<tool_call>{\"name\": \"now\", \"argum"},
    {"hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": [1, ", "{now {\"a\": [1}"},
    {"hermes", "<tool_call>\nnow()\n</tool_call>", "<tool_call>\nnow()\n</tool_call>"},
    {"hermes", "<tool_call>{\"nome\": 1}<tool_call>{\"name\": \"now\"}</tool_call>",
     "<tool_call>{\"nome\": 1}{now {}}"},
    {"hermes", "a <tool_call b </tool_call> <<tool_call>> c",
     "a <tool_call b </tool_call> <<tool_call>> c"},
    {"hermes",
     "<tool_call>{\"name\": \"write_file\", \"arguments\": {\"text\": \"a\n\tb\",}}</tool_call>",
     "{write_file {\"text\": \"a\\n\\tb\"}}"},
    {"hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": b}}</tool_call>",
     "{now {\"a\": }b}}</tool_call>"},
    {"hermes", "<tool_call>{\"name\": \"now\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
     "{now \"{\\\"a\\\": 1}\"}"},
    {"hermes", "<tool_call>{\"name\": \"now\", \"arguments\": 12}</tool_call>!", "{now 12}!"},
    {"hermes",
     "<think>\nHm, <tool_call>?\n\nYes.\n</think>\n\n<tool_call>\n{\"name\": \"now\", "
     "\"arguments\": {}}\n</tool_call>",
     "(Hm, <tool_call>?\n\nYes.){now {}}"},
    {"hermes", "So it is.\n</think>\n\nFour.", "(So it is.)Four.", true},
    {"hermes", "So it is", "(So it is)", true},
    {"hermes", "<think>\n\n</think>\n\nFour.", "Four."},
    {"hermes", "Four <think>no</think>.", "Four <think>no</think>."},
    // What Qwen2.5-Coder writes for the same prompt.
    {"hermes",
     "```json\n{\n  \"name\": \"get_weather\",\n  \"arguments\": {\n    \"city\": \"Paris\"\n  "
     "}\n}\n```",
     "{get_weather {\n    \"city\": \"Paris\"\n  }}"},
    {"hermes",
     "I look.\n\n```json\n{\"name\": \"now\", \"arguments\": {}}\n```\n\n```json\n{\"name\": "
     "\"get_weather\", "
     "\"arguments\": {\"city\": \"Oslo\"}}\n```\nSo.",
     "I look.{now {}}{get_weather {\"city\": \"Oslo\"}}So."},
    {"hermes", "<tools>\n{\"name\": \"now\", \"arguments\": {}}\n</tools>", "{now {}}"},
    {"hermes", "{\"name\": \"now\", \"arguments\": {}}", "{now {}}"},
    {"hermes", "{\"answer\": 42}", "{\"answer\": 42}"},
    {"hermes", "As asked:\n```json\n{\"name\": \"nobody\", \"arguments\": {}}\n```\nok",
     "As asked:\n```json\n{\"name\": \"nobody\", \"arguments\": {}}\n```\nok"},
    {"hermes", "```json\n[1, {\"a\": 2}]\n```\n", "```json\n[1, {\"a\": 2}]\n```\n"},
    {"hermes", "```json {\"name\": \"now\", \"arguments\": {}}\n``x", "{now {}}\n``x"},
    {"hermes", "{{\"name\": \"now\", \"arguments\": {\"a\": 1}}", "{now {\"a\": 1}}"},
    {"hermes", "{{\"name\": \"now\", \"arguments\": {\"a\": 1}}}\n", "{now {\"a\": 1}}"},
    {"hermes", "{{\"name\": \"now\", \"arguments\": {\"a\": 1}}}}", "{now {\"a\": 1}}"},
    {"hermes", "{{\"name\": \"now\", \"arguments\": {}}}\nSo.", "{now {}}So."},
    {"hermes", "{{\"name\": \"now\"}}\n{{\"name\": \"now\", \"arguments\": {\"a\": 1}}}",
     "{now {}}{now {\"a\": 1}}"},
    {"hermes", "<tool_call>\n{{\"name\": \"now\", \"arguments\": {}}}\n</tool_call>", "{now {}}"},
    {"hermes", "<tool_call>{{{\"name\": \"now\"}}}</tool_call>",
     "<tool_call>{{{\"name\": \"now\"}}}</tool_call>"},
    {"hermes", "Use `<tools>` or ```json", "Use `<tools>` or ```json"},

    // ---- Qwen3-Coder, Seed, GLM, MiniMax, DeepSeek V3.2
    {"qwen3_coder",
     "I look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
     "<parameter=days>\n3\n</parameter>\n<parameter=metric>\nTrue\n</parameter>\n"
     "<parameter=where>\n{\"a\": [1, 2]}\n</parameter>\n</function>\n</tool_call>\nDone.",
     "I look.{get_weather {\"city\": \"Paris\", \"days\": 3, \"metric\": true, \"where\": "
     "{\"a\": [1, 2]}}}Done."},
    {"qwen3_coder", "<function=now>\n</function>", "{now {}}"},
    {"qwen3_coder",
     "<tool_call>\n<function=now></function>\n</tool_call>\n<tool_call>\n<function=write_file>\n"
     "<parameter=path>\nä\n</parameter>\n<parameter=text>\n\nif a < b and \"c\" != "
     "'\\n':\n\tx()\n"
     "\n</parameter>\n</function>\n</tool_call>",
     "{now {}}{write_file {\"path\": \"ä\", \"text\": \"\\nif a < b and \\\"c\\\" != "
     "'\\\\n':\\n\\tx()"
     "\\n\"}}"},
    {"qwen3_coder", "<function=get_weather><parameter=days>many</parameter></function>",
     "{get_weather {\"days\": \"many\"}}"},
    {"qwen3_coder",
     "<function=get_weather><parameter=city>a</parameter><parameter=city>b</parameter>"
     "<parameter=days>1</parameter></function>",
     "{get_weather {\"city\": \"a\", \"days\": 1}}"},
    {"qwen3_coder", "<function=get_weather><parameter=city>\nPar",
     "{get_weather {\"city\": \"Par}"},
    {"qwen3_coder", "<function=get_weather><parameter=city>x</parameter><oops>",
     "{get_weather {\"city\": \"x\"}<oops>"},
    {"qwen3_coder", "<tool_call> <function=> </tool_call>", "<tool_call> <function=> </tool_call>"},
    {"qwen3_xml", "<function=foo> is how", "<function=foo> is how"},
    {"seed_oss",
     "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Köln</parameter>\n</function>\n"
     "</seed:tool_call>",
     "{get_weather {\"city\": \"Köln\"}}"},
    {"glm45",
     "Sure.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>北京</arg_value>\n"
     "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
     "Sure.{get_weather {\"city\": \"北京\", \"days\": 2}}"},
    {"glm45", "<tool_call>now</tool_call><tool_call>now\n</tool_call>\nok", "{now {}}{now {}}ok"},
    {"glm47",
     "<tool_call>get_weather<arg_key>tags</arg_key><arg_value>[\"a\", "
     "\"b\"]</arg_value></tool_call>",
     "{get_weather {\"tags\": [\"a\", \"b\"]}}"},
    {"glm45", "<tool_call>not a call</tool_call>", "<tool_call>not a call</tool_call>"},
    {"minimax_m2",
     "Hm.\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">\"Paris\""
     "</parameter>\n<parameter name=\"days\">1</parameter>\n</invoke>\n<invoke name=\"now\">\n"
     "</invoke>\n</minimax:tool_call>",
     "Hm.{get_weather {\"city\": \"\\\"Paris\\\"\", \"days\": 1}}{now {}}"},
    {"deepseek_v32",
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter "
     "name=\"city\" string=\"true\">Paris 1</｜DSML｜parameter>\n<｜DSML｜parameter "
     "name=\"days\" "
     "string=\"false\">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
     "{get_weather {\"city\": \"Paris 1\", \"days\": 1}}"},
    // ---- MiniMax M3
    {"minimax_m3",
     "I look.\n]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke "
     "name=\"get_weather\">]<]minimax[>[<city>Köln \"a\" <b>]<]minimax[>[</city>]<]minimax[>["
     "<days>3]<]minimax[>[</days>]<]minimax[>[<metric>true]<]minimax[>[</metric>]<]minimax[>["
     "</invoke>\n]<]minimax[>[<invoke name=\"now\">]<]minimax[>[</invoke>\n]<]minimax[>["
     "</tool_call>\nDone.",
     "I look.{get_weather {\"city\": \"Köln \\\"a\\\" <b>\", \"days\": 3, \"metric\": true}}"
     "{now {}}Done."},
    {"minimax-m3",
     "]<]minimax[>[<invoke name=\"order\">\n]<]minimax[>[<lines>\n]<]minimax[>[<item>]<]minimax[>["
     "<sku>018]<]minimax[>[</sku>]<]minimax[>[<count>2]<]minimax[>[</count>]<]minimax[>[</item>\n"
     "]<]minimax[>[<item>]<]minimax[>[<sku>]<]minimax[>[</sku>]<]minimax[>[</item>]<]minimax[>["
     "</lines>]<]minimax[>[<to>]<]minimax[>[<zip>018956]<]minimax[>[</zip>]<]minimax[>[</to>"
     "]<]minimax[>[<note>\n a\n]<]minimax[>[</note>]<]minimax[>[<more>]<]minimax[>[</more>"
     "]<]minimax[>[</invoke>",
     "{order {\"lines\": [{\"sku\": \"018\", \"count\": 2}, {\"sku\": \"\"}], \"to\": {\"zip\": "
     "\"018956\"}, \"note\": \"\\n a\\n\", \"more\": []}}"},
    // Nothing is said of its members.
    {"minimax_m3",
     "]<]minimax[>[<invoke name=\"get_weather\">]<]minimax[>[<where>]<]minimax[>[<a>]<]minimax[>["
     "<item>1]<]minimax[>[</item>]<]minimax[>[<item>\"x\"]<]minimax[>[</item>]<]minimax[>[</a>"
     "]<]minimax[>[<b>None]<]minimax[>[</b>]<]minimax[>[</where>]<]minimax[>[<tags>[\"a\"]"
     "]<]minimax[>[</tags>]<]minimax[>[</invoke>",
     "{get_weather {\"where\": {\"a\": [1, \"\\\"x\\\"\"], \"b\": null}, \"tags\": [\"a\"]}}"},
    {"minimax_m3",
     "]<]minimax[>[<invoke name=\"get_weather\">]<]minimax[>[<city>]<]]<]minimax[>[</city>",
     "{get_weather {\"city\": \"]<]\"}}"},
    {"minimax_m3", "]<]minimax[>[<invoke name=\"get_weather\">]<]minimax[>[<city>Par",
     "{get_weather {\"city\": \"Par}"},
    {"minimax_m3",
     "]<]minimax[>[<invoke name=\"get_weather\">]<]minimax[>[<city>a]<]minimax[>[</town>",
     "{get_weather {\"city\": \"a}]<]minimax[>[</town>"},
    {"minimax_m3", "]<]minimax[>[<invoke name=\"get_weather\">Paris",
     "]<]minimax[>[<invoke name=\"get_weather\">Paris"},
    {"minimax_m3", "a ]<]minimax[>[<tool_call> b ]<]minimax[>[ c",
     "a ]<]minimax[>[<tool_call> b ]<]minimax[>[ c"},
    // ---- DeepSeek V3, V3.1
    {"deepseek_v3",
     "One moment.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
     "```json\n{\"city\": \"杭州\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function"
     "<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "One moment.{get_weather {\"city\": \"杭州\"}}{now {}}"},
    {"deepseek_v3", "```python\nx = 1\n```\nDone.", "```python\nx = 1\n```\nDone."},
    {"deepseek_v31",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"a "
     "\\\"b\\\" "
     "```\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
     "<｜tool▁calls▁end｜>",
     "{get_weather {\"city\": \"a \\\"b\\\" ```\"}}{now {}}"},
    {"deepseek_v31", "<｜tool▁call▁begin｜>get weather", "<｜tool▁call▁begin｜>get weather"},
    // ---- Kimi K2
    {"kimi_k2",
     "Let me see.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
     "<|tool_call_argument_begin|>{\"city\": \"北京\"}<|tool_call_end|><|tool_call_begin|>"
     "functions.now:1 <|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
     "Let me see.{get_weather#functions.get_weather:0 {\"city\": \"北京\"}}"
     "{now#functions.now:1 {}}"},
    // ---- Mistral
    {"mistral", "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}]",
     "{get_weather {\"city\": \"Paris\"}}"},
    {"mistral",
     "[TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {}}, {\"arguments\": {\"city\": \"é\"}, "
     "\"name\": \"get_weather\"}]",
     "{now {}}{get_weather {\"city\": \"é\"}}"},
    {"mistral", "ok[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]get_weather{\"city\": \"[ARGS]\"} end",
     "ok{now {}}{get_weather {\"city\": \"[ARGS]\"}}end"},
    {"mistral", "[TOOL_CALLS]now[CALL_ID]abcDEF123[ARGS]{\"x\": 1}", "{now#abcDEF123 {\"x\": 1}}"},
    {"mistral", "[TOOL_CALLS][]", "[TOOL_CALLS][]"},
    {"mistral", "See [1] and [TOOL].", "See [1] and [TOOL]."},
    // ---- Llama
    {"llama3_json", "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}",
     "{get_weather {\"city\": \"Paris\"}}"},
    {"llama3_json",
     "<|python_tag|>{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"get_weather\", "
     "\"parameters\": {\"city\": \"\\u00e9\"}}",
     "{now {}}{get_weather {\"city\": \"\\u00e9\"}}"},
    {"llama3_json", "{\"name\": \"Bob\", \"parameters\": {\"age\": 3}}",
     "{\"name\": \"Bob\", \"parameters\": {\"age\": 3}}"},
    {"llama3_json", "{\"a\": 1} and {", "{\"a\": 1} and {"},
    {"llama3_json", "It is {\"name\": \"now\", \"parameters\": {}}",
     "It is {\"name\": \"now\", \"parameters\": {}}"},
    {"pythonic", "[get_weather(city='Paris', days=3), now()]",
     "{get_weather {\"city\": \"Paris\", \"days\": 3}}{now {}}"},
    {"llama4_pythonic",
     "<|python_start|>[get_weather(city=\"say \\\"hi\\\"\\n\", metric=True, where={'a': [1, "
     "-2.5, "
     "None], \"b\": {}}, tags=['x', ])]<|python_end|>",
     "{get_weather {\"city\": \"say \\\"hi\\\"\\n\", \"metric\": true, \"where\": {\"a\": [1, "
     "-2.5, "
     "null], \"b\": {}}, \"tags\": [\"x\"]}}"},
    {"pythonic", "[1, 2, 3]", "[1, 2, 3]"},
    {"pythonic", "[unknown(a=1)]", "[unknown(a=1)]"},
    {"pythonic", "[get_weather('Paris')]", "[get_weather('Paris')]"},
    {"pythonic", "[get_weather(city='\\u00e9\\x41\\q', days=foo())]",
     "{get_weather {\"city\": \"\\u00e9A\\\\q\", \"days\": }foo())]"},
    {"pythonic", "[", "["},
    {"olmo3", "Yes.<function_calls>\nnow()\nget_weather(city=\"Paris\")\n</function_calls>",
     "Yes.{now {}}{get_weather {\"city\": \"Paris\"}}"},
    // ---- Granite, Phi
    {"granite",
     "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}, "
     "{\"name\": "
     "\"now\", \"arguments\": {}}]",
     "{get_weather {\"city\": \"Paris\"}}{now {}}"},
    {"granite", "<tool_call>[{\"name\": \"now\"}]", "{now {}}"},
    {"granite-20b-fc", "<function_call> {\"name\": \"now\", \"arguments\": {\"a\": \"b\"}}",
     "{now {\"a\": \"b\"}}"},
    {"phi4_mini_json",
     "functools[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}]",
     "{get_weather {\"city\": \"Paris\"}}"},
    {"phi4_mini_json", "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]<|/tool_call|>",
     "{now {}}"},
    {"phi4_mini_json", "import functools\nprint()", "import functools\nprint()"},
    // ---- Gemma
    {"functiongemma",
     "<start_function_call>call:get_weather{city:<escape>Tokyo, \"{<escape>,days:2,metric:true}"
     "<end_function_call><start_function_response>",
     "{get_weather {\"city\": \"Tokyo, \\\"{\", \"days\": 2, \"metric\": true}}"},
    {"functiongemma", "<start_function_call>call:now{}<end_function_call>", "{now {}}"},
    {"functiongemma", "<start_function_call>now{}<end_function_call>",
     "<start_function_call>now{}<end_function_call>"},
    {"gemma4",
     "Ok.<|tool_call>call:get_weather{city:<|\"|>Köln<|\"|>,where:{a:[1,<|\"|>b<|\"|>],c:bare "
     "word}}<tool_call|><|tool_call>call:now{}<tool_call|>",
     "Ok.{get_weather {\"city\": \"Köln\", \"where\": {\"a\": [1, \"b\"], \"c\": \"bare "
     "word\"}}}{now {}}"},
    // ---- Harmony
    {"openai",
     "<|channel|>analysis<|message|>We need \"weather\".<|end|><|start|>assistant<|channel|>"
     "commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": "
     "\"東京\"}<|call|>",
     "(We need \"weather\".){get_weather {\"city\": \"東京\"}}"},
    {"openai",
     "<|channel|>commentary<|message|>I look twice.<|end|><|start|>assistant to=functions.now"
     "<|channel|>commentary json<|message|><|call|><|start|>assistant<|channel|>commentary "
     "to=functions.get_weather<|message|>{\"city\": \"a\"}<|call|><|start|>assistant<|channel|>"
     "final<|message|>Done.<|return|>",
     "I look twice.{now {}}{get_weather {\"city\": \"a\"}}Done."},
    {"openai", "<|channel|>final<|message|>Four, a <| b.", "Four, a <| b."},
    {"openai", "Just words.", "Just words."},
    {"openai", "<|channel|>analysis<|message|>Cut", "(Cut)"},
    // ---- LongCat
    {"longcat",
     "Let me see.\n<longcat_tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
     "\"北京\"}}\n</longcat_tool_call>\n<longcat_tool_call>{\"name\": \"now\"}</longcat_tool_call>",
     "Let me see.{get_weather {\"city\": \"北京\"}}{now {}}"},
    {"longcat", "a <longcat_tool_call> b", "a <longcat_tool_call> b"},
    {"longcat_thinking",
     "Well.\n<longcat_tool_call>get_weather\n<longcat_arg_key>city</longcat_arg_key>\n"
     "<longcat_arg_value>北京</longcat_arg_value>\n</longcat_tool_call><longcat_tool_call>now\n"
     "</longcat_tool_call>",
     "Well.{get_weather {\"city\": \"北京\"}}{now {}}"},
    // ---- Ernie 4.5, Jamba, Hunyuan
    {"ernie45",
     "So.\n</think>\n\n\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n",
     "(So.){now {}}", true, "ernie45"},
    {"ernie45", "So.\n</think>\n\n<response>\nFour.\n\nFive.\n</response>\n", "(So.)Four.\n\nFive.",
     true, "ernie45"},
    {"ernie45", "<response>a</response> b <response>c", "a</response> b <response>c", false,
     "ernie45"},
    {"ernie45", "Four </response> is\n</respons", "Four </response> is\n</respons", false,
     "ernie45"},
    {"jamba",
     " Sure! I look.<tool_calls>[\n    {\"name\": \"get_weather\", \"arguments\": {\"city\": "
     "\"Dallas\"}},\n    {\"name\": \"now\", \"arguments\": {}}\n]</tool_calls>",
     " Sure! I look.{get_weather {\"city\": \"Dallas\"}}{now {}}"},
    {"hunyuan_a13b",
     "<think>\nHm.\n</think>\n<answer>\n<tool_calls>[{\"name\": \"now\", \"arguments\": {}}]"
     "</tool_calls>\n</answer>",
     "(Hm.){now {}}", false, "hunyuan_a13b"},
    {"hunyuan_a13b", "<think>\n\n</think>\n<answer>\n<b>4</b>\n</answer>", "<b>4</b>", false,
     "hunyuan_a13b"},
    {"hunyuan_a13b", "<answer>\n\n</answer>", "", false, "hunyuan_a13b"},
    {"hunyuan_a13b", "<answer>\n助手：四。助手：\n</answer>", "四。助手：", false, "hunyuan_a13b"},
    {"jamba", "a <tool_calls> b </tool_calls>", "a <tool_calls> b </tool_calls>"},
    // ---- Command
    {"cohere_command3",
     "<|START_THINKING|> I look.<|END_THINKING|><|START_ACTION|>\n[\n    {\"tool_call_id\": \"0\", "
     "\"tool_name\": \"get_weather\", \"parameters\": {\"city\": \"Köln\"}},\n    "
     "{\"tool_call_id\": \"1\", \"tool_name\": \"now\", \"parameters\": {}}\n]\n<|END_ACTION|>",
     "(I look.){get_weather {\"city\": \"Köln\"}}{now {}}", false, "cohere_command3"},
    {"cohere_command3",
     "<|START_THINKING|>Hm.<|END_THINKING|>\n<|START_RESPONSE|>It is <|START_RESPONSE|> four."
     "<|END_RESPONSE|>",
     "(Hm.)It is <|START_RESPONSE|> four.", false, "cohere_command3"},
    {"cohere_command4", "So.<|END_THINKING|><|START_TEXT|>Four.<|END_TEXT|>", "(So.)Four.", true,
     "cohere_command4"},
    // ---- Apertus
    {"apertus",
     "<|inner_prefix|>I look.<|inner_suffix|><|tools_prefix|>[{\"get_weather\": {\"city\": "
     "\"Bern\"}}, {\"now\": {}}]<|tools_suffix|>Done.",
     "(I look.){get_weather {\"city\": \"Bern\"}}{now {}}Done.", false, "apertus"},
    {"apertus2509", "<|inner_prefix|>I <|look. <|tools_prefix|>[{\"now\": null}]<|tools_suffix|>",
     "(I <|look.){now {}}", false, "apertus2509"},
    {"apertus", "<|tools_prefix|>[{\"now\": {}, \"then\": {}}]", "{now {}}, \"then\": {}}]", false,
     "apertus"},
    // ---- InternLM, GigaChat, xLAM
    {"internlm",
     "I look.<|action_start|><|plugin|>\n{\"name\": \"get_weather\", \"parameters\": {\"city\": "
     "\"Tokyo\"}}<|action_end|>\n",
     "I look.{get_weather {\"city\": \"Tokyo\"}}"},
    {"interns1", "<|action_start|> <|plugin|>\n{\"name\": \"now\"}<|action_end|>", "{now {}}"},
    {"internlm", "a <|action_start|> b", "a <|action_start|> b"},
    {"gigachat3",
     "Смотрю.<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"get_weather\", "
     "\"arguments\": {\"city\": \"Москва\"}}<|message_sep|>\n\n",
     "Смотрю.{get_weather {\"city\": \"Москва\"}}"},
    {"gigachat3", "<|function_call|>{\"name\": \"now\", \"arguments\": {}}", "{now {}}"},
    {"gigachat3", "A function call <|role", "A function call <|role"},
    {"gigachat3", "Привет.<|message_sep|>\n\n", "Привет."},
    {"xlam",
     "[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}, {\"name\": \"now\"}]",
     "{get_weather {\"city\": \"Rome\"}}{now {}}"},
    {"xlam", "Well:\n```json\n[{\"name\": \"now\", \"arguments\": {}}]\n```\nSo.",
     "Well:{now {}}So."},
    {"xlam", "<think>Hm.</think>[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}]",
     "(Hm.){now {}}"},
    {"xlam", "<tool_call>[{\"name\": \"now\"}]</tool_call>", "{now {}}"},
    {"xlam", "[]\n", "[]\n"},
    {"xlam", "[1] says so.", "[1] says so."},
    {"xlam", "[{\"name\": \"nobody\", \"arguments\": {}}]",
     "[{\"name\": \"nobody\", \"arguments\": {}}]"},
    // ---- Step 3, dots, MiniCPM 5, Hunyuan 3, and further names of forms above
    {"step3",
     "I look.\n<｜tool_calls_begin｜>\n<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke "
     "name=\"now\">\n</steptml:invoke><｜tool_call_end｜>\n<｜tool_calls_end｜>",
     "I look.{now {}}"},
    {"step3",
     "<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"get_weather\">\n"
     "<steptml:parameter name=\"city\">a < b</steptml:parameter>\n</steptml:invoke>"
     "<｜tool_call_end｜>",
     "{get_weather {\"city\": \"a < b\"}}"},
    {"dots",
     "Ok.<dots_function_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">上海"
     "</parameter>\n</invoke>\n<invoke name=\"now\"></invoke>\n</dots_function_call>",
     "Ok.{get_weather {\"city\": \"上海\"}}{now {}}"},
    {"minicpm5",
     "好。<function name=\"get_weather\"><param name=\"city\">北京</param><param name=\"days\">2"
     "</param></function>\n<function name=\"now\"></function>",
     "好。{get_weather {\"city\": \"北京\", \"days\": 2}}{now {}}"},
    {"minicpm5",
     "<function name=\"write_file\"><param name=\"text\"><![CDATA[<p>\n</param> & ]] >]]> </param>"
     "<param name=\"path\"><![x</param></function>",
     "{write_file {\"text\": \"<p>\\n</param> & ]] >\", \"path\": \"<![x\"}}"},
    {"minicpm5",
     "<function name=\"get_weather\"><param name=\"where\"><![CDATA[{\"a\": [1]}]]></param>"
     "<param name=\"city\"></param></function>",
     "{get_weather {\"where\": {\"a\": [1]}, \"city\": \"\"}}"},
    {"minicpm5", "<function name=\"now\"><param name=\"a\"><![CDATA[b]]>c</param>",
     "{now {\"a\": \"b\"}c</param>"},
    {"hy_v3",
     "Let me look.<tool_calls>\n<tool_call>get_weather<tool_sep>\n<arg_key>city</arg_key>\n"
     "<arg_value>北京</arg_value>\n</tool_call>\n<tool_call>now<tool_sep></tool_call>\n"
     "</tool_calls>",
     "Let me look.{get_weather {\"city\": \"北京\"}}{now {}}"},
    {"hy_v3_opensource",
     "Hm.</think:opensource><tool_calls:opensource>\n<tool_call:opensource>get_weather"
     "<tool_sep:opensource>\n<arg_key:opensource>days</arg_key:opensource>\n"
     "<arg_value:opensource>2</arg_value:opensource>\n</tool_call:opensource>\n"
     "</tool_calls:opensource>",
     "(Hm.){get_weather {\"days\": 2}}", true, "hy_v3_opensource"},
    {"mimo",
     "<tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>\n</function>\n"
     "</tool_call>",
     "{get_weather {\"city\": \"Paris\"}}"},
    {"poolside_v1",
     "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>",
     "{get_weather {\"city\": \"Paris\"}}"},
    // ---- LFM 2
    {"lfm2", "<|tool_call_start|>[get_weather(city=\"Paris\"), now()]<|tool_call_end|>It comes.",
     "{get_weather {\"city\": \"Paris\"}}{now {}}It comes."},
    // ---- Kimi K3
    {"kimi_k3",
     "So.<|close|>think<|sep|><|open|>response<|sep|>I look.<|close|>response<|sep|><|open|>tools"
     "<|sep|><|open|>call tool=\"now\" index=\"1\"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
     "<|close|>message<|sep|>",
     "(So.)I look.{now {}}", true, "kimi_k3"},
    {"kimi_k3",
     "<|open|>call tool=\"get_weather\" index=\"12\"<|sep|><|open|>argument key=\"city\" "
     "type=\"string\"<|sep|>a \"b\" <|close|>argument<|sep|><|open|>argument key=\"days\" "
     "type=\"number\"<|sep|>3<|close|>argument<|sep|><|close|>call<|sep|>",
     "{get_weather {\"city\": \"a \\\"b\\\" \", \"days\": 3}}", false, "kimi_k3"},
    {"kimi_k3",
     "<|open|>response<|sep|>Four <|close|> it.<|close|>response<|sep|><|close|>message<|sep|>",
     "Four <|close|> it.", false, "kimi_k3"},
    {"kimi_k3", "<|open|>call tool=\"now\" index=\"x\"<|sep|>",
     "<|open|>call tool=\"now\" index=\"x\"<|sep|>", false, "kimi_k3"},
    // ---- thoughts that stay
    {"minimax_m2", "Hm.</think>\n\nFour.", "<think>Hm.</think>\n\nFour.", true,
     "minimax_m2_append_think"},
};

}  // namespace

std::string_view output_sample_tools() {
  return R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
     "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
                    "metric": {"type": "boolean"}, "where": {"type": "object"},
                    "tags": {"type": "array"}}}}},
    {"type": "function", "function": {"name": "now"}},
    {"type": "function", "function": {"name": "write_file", "parameters": {"type": "object",
     "properties": {"path": {"type": "string"}, "text": {"type": "string"}}}}},
    {"type": "function", "function": {"name": "order", "parameters": {"type": "object",
     "properties": {"lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
                    "to": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/address"}]},
                    "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                    "more": {"type": ["array", "null"]}},
     "$defs": {"line": {"type": "object", "properties": {"sku": {"type": "string"},
                                                         "count": {"type": "integer"}}},
               "address": {"type": "object", "additionalProperties": {"type": "string"}}}}}}])";
}

std::span<const OutputSample> output_samples() { return kOutputSamples; }

}  // namespace headrace
