#include "text/named_templates.h"

#include "base/named.h"

namespace headrace {
namespace {

constexpr Named<std::string_view> kTemplates[] = {
    {"chatml",
     R"({% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }})"
     R"({% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})"},
    // It has no system turn: what the system says stands before the next turn's text.
    {"gemma",
     R"({{ bos_token }}{% set ns = namespace(system='') %}{% for m in messages %})"
     R"({% if m.role == 'system' %}{% set ns.system = m.content | trim + '\n\n' %}{% else %})"
     R"({{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }})"
     R"({{ ns.system + m.content | trim + '<end_of_turn>\n' }}{% set ns.system = '' %}{% endif %})"
     R"({% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %})"},
    {"llama3",
     R"({{ bos_token }}{% for m in messages %})"
     R"({{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim }})"
     R"({{ '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %})"
     R"({{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %})"},
    {"phi3",
     R"({% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %})"
     R"({% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})"},
    // RWKV's world models end a turn with two line ends, a token of their vocabulary.
    {"rwkv-world",
     R"({% for m in messages %}{% set text = m.content | trim %}{% if m.role == 'system' %})"
     R"({{ 'System: ' + text + '\n\n' }}{% elif m.role == 'user' %}{{ 'User: ' + text + '\n\n' }})"
     R"({% else %}{{ 'Assistant: ' + text + '\n\n' }}{% endif %}{% endfor %})"
     R"({% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %})"},
    {"vicuna",
     R"({{ bos_token }}{% for m in messages %}{% if m.role == 'system' %})"
     R"({{ m.content + '\n\n' }}{% elif m.role == 'user' %}{{ 'USER: ' + m.content + '\n' }})"
     R"({% else %}{{ 'ASSISTANT: ' + m.content + '</s>\n' }}{% endif %}{% endfor %})"
     R"({% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %})"},
    {"zephyr",
     R"({% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|endoftext|>\n' }})"
     R"({% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})"},
};

}  // namespace

std::string_view named_template(std::string_view name) {
  return value_named(kTemplates, name).value_or("");
}

std::vector<std::string> template_names() { return names_of(kTemplates); }

}  // namespace headrace
