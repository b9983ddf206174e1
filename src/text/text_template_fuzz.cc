// Any template, up to a NUL, over any JSON behind it (or a fixed chat): a text or a Status within
// the budgets, never a crash.
#include <cstdint>
#include <string>

#include "base/json.h"
#include "text/chat_template.h"

using namespace headrace;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Json kChat = *parse_json(
      R"({"messages": [{"role": "user", "content": "Hi é"}, {"role": "assistant", "content": "Yo",
          "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5, null, true]}}}]}],
          "tools": [], "n": 3, "s": "text 日 x", "xs": [3, 1, 2], "d": {"a": 1, "b": "c"},
          "add_generation_prompt": true, "bos_token": "<s>"})");
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t nul = input.find('\0');
  // Small budgets: an execution that only runs into them teaches nothing more.
  const TemplateLimits limits{.steps_max = 2'000, .output_bytes_max = size_t{32} << 10};
  const auto chat_template = ChatTemplate::compile(input.substr(0, nul), limits);
  if (!chat_template.ok()) return 0;
  Json variables = kChat;
  if (nul != input.npos) {
    auto json = parse_json(input.substr(nul + 1));
    if (json.ok()) variables = json->is_object() ? *json : Json::object().set("messages", *json);
  }
  const auto text = chat_template->render(variables, 1'700'000'000);
  if (text.ok()) CHECK(text->size() <= limits.output_bytes_max);
  return 0;
}
