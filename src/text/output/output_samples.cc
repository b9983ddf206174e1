#include "text/output/output_samples.h"

namespace headrace {

std::string_view output_sample_tools() {
  return R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
     "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
                    "metric": {"type": "boolean"}, "where": {"type": "object"},
                    "tags": {"type": "array"}}}}},
    {"type": "function", "function": {"name": "now"}},
    {"type": "function", "function": {"name": "write_file", "parameters": {"type": "object",
     "properties": {"path": {"type": "string"}, "text": {"type": "string"}}}}}])";
}

const std::vector<OutputSample>& output_samples() {
  static const std::vector<OutputSample> kSamples = {
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
      {"hermes", "<tool_call>{\"name\": \"now\", \"argum",
       "<tool_call>{\"name\": \"now\", \"argum"},
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
  };
  return kSamples;
}

}  // namespace headrace
