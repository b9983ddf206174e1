#include "server/answer_form.h"

#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "server/field_schemas.h"

namespace headrace {
namespace {

using Settings = GenerationSettings;
using Kind = AnswerForm::Kind;

constexpr size_t kFormBytesMax = size_t{256} << 10;
constexpr size_t kChoicesMax = 4096;

Status form_error(std::string_view name, std::string_view expected, const Json& value) {
  return in_field(root_field(name), field_error(name, expected, value));
}

Status set_form(std::string_view name, AnswerForm form, size_t bytes, const FieldContext& context,
                Settings& settings) {
  const std::string root = root_field(name);
  if (!context.takes_forms) {
    return invalid_argument(
        fmt::format("{} is not supported: this model's engine takes no structured output", name),
        root);
  }
  if (settings.form.kind != Kind::kFree) {
    // Some clients send one form by two names, for servers of each.
    if (settings.form.asks_for_the_same(form)) return ok_status();
    return invalid_argument(
        fmt::format("{} and {} both ask for a form: send one of them", settings.form.field, name),
        root);
  }
  if (bytes > kFormBytesMax) {
    return invalid_argument(fmt::format("{} is too large: it has {} bytes, {} are the most", name,
                                        bytes, kFormBytesMax),
                            root);
  }
  form.field = name;
  settings.form = std::move(form);
  return ok_status();
}

Status read_pattern_form(std::string_view name, Kind kind, const Json& value,
                         const FieldContext& context, Settings& settings) {
  if (!value.is_string()) return form_error(name, "a string", value);
  AnswerForm form;
  form.kind = kind;
  form.pattern = value.as_string();
  return set_form(name, std::move(form), value.as_string().size(), context, settings);
}

Status read_choice_form(std::string_view name, const Json& value, const FieldContext& context,
                        Settings& settings) {
  const std::string expected = fmt::format("an array of 1 to {} strings", kChoicesMax);
  const bool good =
      value.is_array() && !value.as_array().empty() && value.as_array().size() <= kChoicesMax;
  if (!good) return form_error(name, expected, value);
  AnswerForm form;
  form.kind = Kind::kChoice;
  size_t bytes = 0;
  for (const Json& choice : value.as_array()) {
    const bool is_text = choice.is_string() && !choice.as_string().empty();
    if (!is_text) return form_error(name, expected, choice);
    form.choices.push_back(choice.as_string());
    bytes += choice.as_string().size();
  }
  return set_form(name, std::move(form), bytes, context, settings);
}

Status read_switch_form(std::string_view name, const Json& value, const FieldContext& context,
                        Settings& settings) {
  if (!value.is_bool()) return form_error(name, "true or false", value);
  return value.as_bool() ? read_any_json_form(name, context, settings) : ok_status();
}

// llama.cpp's and vLLM's: an empty grammar is none.
Status read_gbnf_form(std::string_view name, const Json& value, const FieldContext& context,
                      Settings& settings) {
  if (value == Json("")) return ok_status();
  return read_pattern_form(name, Kind::kGbnf, value, context, settings);
}

// vLLM's; what says how a form is enforced, and not which, must be at its default.
Status read_structured_outputs(const Json& value, const FieldContext& context, Settings& settings) {
  if (!value.is_object()) return field_error("structured_outputs", "an object", value);
  for (const auto& [key, inner] : value.as_object()) {
    const std::string name = fmt::format("structured_outputs.{}", key.substr(0, 64));
    if (inner.is_null() || inner == Json(false)) continue;
    Status status;
    if (key == "json") {
      status = read_schema_form(name, inner, context, settings);
    } else if (key == "regex") {
      status = read_pattern_form(name, Kind::kRegex, inner, context, settings);
    } else if (key == "choice") {
      status = read_choice_form(name, inner, context, settings);
    } else if (key == "grammar") {
      status = read_gbnf_form(name, inner, context, settings);
    } else if (key == "json_object") {
      status = read_switch_form(name, inner, context, settings);
    } else if (key != "disable_fallback" && key != "disable_additional_properties") {
      status = in_field("structured_outputs",
                        invalid_argument(fmt::format("{} is not supported: leave it out", name)));
    }
    HR_RETURN_IF_ERROR(status);
  }
  return ok_status();
}

#define HR_FORM(read) \
  [](const Json& v, const FieldContext& c, Settings& s) -> Status { return read; }

constexpr Field<Settings> kFormFields[] = {
    {"response_format",
     FieldType::kAny,
     {},
     HR_FORM(read_response_format("response_format", v, c, s)),
     kObjectSchema},
    {"structured_outputs", FieldType::kAny, {}, read_structured_outputs, kObjectSchema},
    {"guided_json", FieldType::kAny, {}, HR_FORM(read_schema_form("guided_json", v, c, s))},
    {"guided_regex",
     FieldType::kAny,
     {},
     HR_FORM(read_regex_form("guided_regex", v, c, s)),
     kTextSchema},
    {"guided_choice", FieldType::kAny, {}, HR_FORM(read_choice_form("guided_choice", v, c, s))},
    {"guided_grammar",
     FieldType::kAny,
     {},
     HR_FORM(read_gbnf_form("guided_grammar", v, c, s)),
     kTextSchema},
    {"guided_json_object",
     FieldType::kAny,
     {},
     HR_FORM(read_switch_form("guided_json_object", v, c, s))},
    {"grammar", FieldType::kAny, {}, HR_FORM(read_gbnf_form("grammar", v, c, s)), kTextSchema},
    {"json_schema", FieldType::kAny, {}, HR_FORM(read_schema_form("json_schema", v, c, s))},
    {"regex", FieldType::kAny, {}, HR_FORM(read_regex_form("regex", v, c, s)), kTextSchema},
    {"ebnf", FieldType::kAny, {}, HR_FORM(read_gbnf_form("ebnf", v, c, s)), kTextSchema},
};
#undef HR_FORM

constexpr std::string_view kSglangForms[] = {"json_schema", "regex", "ebnf"};

}  // namespace

std::span<const Field<GenerationSettings>> form_fields() { return kFormFields; }
std::span<const std::string_view> sglang_form_names() { return kSglangForms; }

Status read_any_json_form(std::string_view name, const FieldContext& context,
                          GenerationSettings& settings) {
  AnswerForm form;
  form.kind = Kind::kJsonObject;
  return set_form(name, std::move(form), 0, context, settings);
}

Status read_schema_form(std::string_view name, const Json& schema, const FieldContext& context,
                        GenerationSettings& settings) {
  AnswerForm form;
  form.kind = Kind::kJsonSchema;
  form.schema = schema;
  if (schema.is_string() && schema.as_string().size() <= kFormBytesMax) {
    Result<Json> parsed = parse_json(schema.as_string());
    if (!parsed.ok()) {
      return invalid_argument(fmt::format("{}: {}", name, parsed.status().message()),
                              root_field(name));
    }
    form.schema = *std::move(parsed);
  }
  if (!form.schema.is_object() && form.schema != Json(true)) {
    return form_error(name, "a JSON schema", schema);
  }
  const size_t bytes = write_json(form.schema).size();
  return set_form(name, std::move(form), bytes, context, settings);
}

Status read_regex_form(std::string_view name, const Json& pattern, const FieldContext& context,
                       GenerationSettings& settings) {
  return read_pattern_form(name, Kind::kRegex, pattern, context, settings);
}

Status read_response_format(std::string_view name, const Json& format, const FieldContext& context,
                            GenerationSettings& settings) {
  static constexpr std::array<std::string_view, 3> kTypes = {"text", "json_object", "json_schema"};
  if (!format.is_object()) return form_error(name, "an object", format);
  const Json* type = format.find("type");
  if (type && *type == Json("text")) return ok_status();
  const Json* const value = format.find("value");  // text generation inference's
  if (type && value && (*type == Json("json") || *type == Json("json_object"))) {
    return read_schema_form(fmt::format("{}.value", name), *value, context, settings);
  }
  if (type && value && *type == Json("regex")) {
    return read_regex_form(fmt::format("{}.value", name), *value, context, settings);
  }
  const Json* schema = format.find("schema");  // llama.cpp, and the Responses API
  std::string schema_name = fmt::format("{}.schema", name);
  if (const Json* inner = format.find("json_schema"); inner && !schema) {
    schema = inner->find("schema");
    schema_name = fmt::format("{}.json_schema.schema", name);
  }
  const bool any_json = type && *type == Json("json_object");
  if (any_json && (!schema || schema->is_null())) {
    return read_any_json_form(name, context, settings);
  }
  if (!any_json && (!type || *type != Json("json_schema"))) {
    return in_field(root_field(name),
                    choice_error(fmt::format("{}.type", name), kTypes, type ? *type : Json()));
  }
  if (!schema || schema->is_null()) {
    return in_field(root_field(name), invalid_argument(fmt::format("{} is missing", schema_name)));
  }
  return read_schema_form(schema_name, *schema, context, settings);
}

}  // namespace headrace
