#include "server/beam_fields.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "server/field_schemas.h"

namespace headrace {
namespace {

using Settings = GenerationSettings;
using Context = FieldContext;

Status read_width(std::string_view name, const Json& value, const Context& context,
                  Settings& settings) {
  const FieldRange range{1, static_cast<double>(context.limits.beams_max)};
  HR_RETURN_IF_ERROR(check_field(name, FieldType::kInteger, range, value, context));
  settings.search.width = static_cast<int32_t>(integer_of(value));
  return ok_status();
}

Status read_early_stopping(const Json& value, const Context&, Settings& settings) {
  const std::string word = value.is_bool()     ? (value.as_bool() ? "true" : "false")
                           : value.is_string() ? value.as_string()
                                               : std::string();
  const auto found = value_named(kEarlyStoppings, word);
  if (!found || (value.is_string() && *found != EarlyStopping::kNever)) {
    return field_error("early_stopping", "true, false or \"never\"", value);
  }
  settings.search.early_stopping = *found;
  return ok_status();
}

constexpr Field<Settings> kFields[] = {
    {"use_beam_search",
     FieldType::kBool,
     {},
     [](const Json& v, const Context&, Settings& s) {
       return s.search.wanted = v.as_bool(), ok_status();
     }},
    {"beam_width",
     FieldType::kAny,
     {},
     [](const Json& v, const Context& c, Settings& s) { return read_width("beam_width", v, c, s); },
     kBeamCountSchema},
    {"best_of",
     FieldType::kAny,
     {},
     [](const Json& v, const Context& c, Settings& s) { return read_width("best_of", v, c, s); },
     kBeamCountSchema},
    {"length_penalty",
     FieldType::kNumber,
     {-10, 10},
     [](const Json& v, const Context&, Settings& s) {
       return s.search.length_penalty = static_cast<float>(v.as_double()), ok_status();
     }},
    {"early_stopping", FieldType::kAny, {}, read_early_stopping, kEarlyStoppingSchema},
};

// A field without which nothing would be searched; nullptr: none asks for a search.
// `n`: answers that are asked for; the best of as many are all.
const char* field_of_search(const Json& body, const SearchSettings& search, int32_t n) {
  const auto has = [&](const char* name) {
    const Json* value = body.find(name);
    return value != nullptr && !value->is_null();
  };
  if (has("beam_width")) return "beam_width";
  if (has("best_of") && search.width != 1 && search.width != n) return "best_of";
  if (search.length_penalty != 1) return "length_penalty";
  return search.early_stopping != EarlyStopping::kNo ? "early_stopping" : nullptr;
}

// What cannot be told, or kept to, of an answer that is found at its end; empty: all can.
std::string outside_of_search(const Settings& settings) {
  if (settings.stream) return "stream";
  if (settings.form.kind != AnswerForm::Kind::kFree) return settings.form.field;
  if (settings.sampling.loop.on()) return "repetition_detection";
  if (!settings.allowed_tokens.empty()) return "allowed_token_ids";
  return settings.bad_words.empty() ? "" : "bad_words";
}

}  // namespace

std::span<const Field<Settings>> beam_fields() { return kFields; }

Status settle_beams(const Json& body, Settings& settings) {
  const SearchSettings& search = settings.search;
  if (!search.wanted) {
    const char* field = field_of_search(body, search, settings.sampling.n);
    if (field == nullptr) return ok_status();
    return invalid_argument(fmt::format("{} needs use_beam_search to be true", field), field);
  }
  if (const std::string field = outside_of_search(settings); !field.empty()) {
    return invalid_argument(
        fmt::format("{} does not go with use_beam_search: its answers are found whole", field),
        field);
  }
  SamplingParams& sampling = settings.sampling;
  const auto is_given = [&](const char* name) {
    const Json* const value = body.find(name);
    return value != nullptr && !value->is_null();
  };
  if (!is_given("repetition_penalty") && !is_given("repeat_penalty")) {
    sampling.repetition_penalty = 1;
  }
  settings.beams = {.width = search.width.value_or(sampling.n),
                    .length_penalty = search.length_penalty,
                    .early_stopping = search.early_stopping};
  if (settings.beams->width >= sampling.n) return ok_status();
  return invalid_argument(fmt::format("n must be at most the number of beams ({}), got {}",
                                      settings.beams->width, sampling.n),
                          "n");
}

}  // namespace headrace
