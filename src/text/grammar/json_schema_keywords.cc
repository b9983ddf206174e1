#include "text/grammar/json_schema_keywords.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

namespace headrace {
namespace {

// For people, or for the schema itself.
constexpr std::string_view kSilent[] = {"title",
                                        "description",
                                        "default",
                                        "examples",
                                        "example",
                                        "$schema",
                                        "$id",
                                        "id",
                                        "$comment",
                                        "$defs",
                                        "definitions",
                                        "deprecated",
                                        "readOnly",
                                        "writeOnly",
                                        "contentEncoding",
                                        "contentMediaType",
                                        "discriminator",
                                        "$anchor"};
constexpr std::string_view kOfAny[] = {"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"};
constexpr std::string_view kOfObjects[] = {"properties", "required", "additionalProperties",
                                           "unevaluatedProperties"};
constexpr std::string_view kOfArrays[] = {"items", "prefixItems", "minItems", "maxItems"};
constexpr std::string_view kOfStrings[] = {"minLength", "maxLength", "pattern", "format"};
constexpr std::string_view kOfNumbers[] = {"minimum", "maximum", "exclusiveMinimum",
                                           "exclusiveMaximum", "multipleOf"};

bool is_among(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Other keywords, with a value that asks for nothing.
bool asks_for_nothing(std::string_view keyword, const Json& value) {
  const bool is_switch = keyword == "uniqueItems" || keyword == "nullable";
  if (is_switch) return value == Json(false);
  if (keyword == "minProperties") return value == Json(0);
  if (keyword == "patternProperties") return value == Json::object();
  return keyword.starts_with("x-");
}

struct FormatPattern {
  std::string_view name, pattern;
};
#define HR_DATE                                                                               \
  R"re([1-9]\d{3}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|)re" \
  R"re(02-(0[1-9]|1\d|2[0-8])))re"
#define HR_TIME R"re(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))re"
#define HR_SPAN R"re((T(\d{1,6}S|\d{1,6}M(\d{1,6}S)?|\d{1,6}H(\d{1,6}M(\d{1,6}S)?)?)))re"
#define HR_DAYS R"re((\d{1,6}D|\d{1,6}M(\d{1,6}D)?|\d{1,6}Y(\d{1,6}M(\d{1,6}D)?)?))re"
#define HR_LABEL R"re([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)re"
// RFC 1035 and 5321: a name has 253 characters at most, what stands before an @ 64. Here either few
// labels of any length or ten of 24; either one word or some of 32 characters together.
#define HR_SHORT_LABEL R"re([A-Za-z0-9]([A-Za-z0-9-]{0,22}[A-Za-z0-9])?)re"
#define HR_HOST                                                                           \
  "(" HR_LABEL R"re((\.)re" HR_LABEL "){0,2}|" HR_SHORT_LABEL R"re((\.)re" HR_SHORT_LABEL \
  "){0,9}"                                                                                \
  ")"
#define HR_MAILBOX R"re(([A-Za-z0-9_+-]{1,64}|[A-Za-z0-9_+-](\.?[A-Za-z0-9_+-]){0,31}))re"
#define HR_BYTE R"re((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))re"
#define HR_GROUP "[0-9a-fA-F]{1,4}"
constexpr FormatPattern kFormats[] = {
    {"date", HR_DATE},
    {"time", HR_TIME},
    {"date-time", HR_DATE "T" HR_TIME},
    {"duration", R"re(P(\d{1,6}W|)re" HR_DAYS HR_SPAN "?|" HR_SPAN ")"},
    {"uuid", "[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"},
    {"email", HR_MAILBOX "@" HR_HOST},
    {"hostname", HR_HOST},
    {"ipv4", HR_BYTE R"re((\.)re" HR_BYTE "){3}"},
    {"ipv6", "(" HR_GROUP ":){7}" HR_GROUP "|(" HR_GROUP ":){1,6}:" HR_GROUP "|::" HR_GROUP "|::"},
    {"uri", R"re([a-zA-Z][a-zA-Z0-9+.-]*:([A-Za-z0-9._~:/?#@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+)re"},
};
#undef HR_DATE
#undef HR_TIME
#undef HR_SPAN
#undef HR_DAYS
#undef HR_LABEL
#undef HR_SHORT_LABEL
#undef HR_HOST
#undef HR_MAILBOX
#undef HR_BYTE
#undef HR_GROUP

}  // namespace

Status check_schema_keywords(const Json& schema, const std::string& place) {
  for (const auto& [keyword, value] : schema.as_object()) {
    const bool known = is_among(kSilent, keyword) || is_among(kOfAny, keyword) ||
                       is_among(kOfObjects, keyword) || is_among(kOfArrays, keyword) ||
                       is_among(kOfStrings, keyword) || is_among(kOfNumbers, keyword);
    if (known || asks_for_nothing(keyword, value)) continue;
    return unsupported(fmt::format("{}: \"{}\" is not supported", place, keyword.substr(0, 64)));
  }
  return ok_status();
}

bool says_more_than(const Json& schema, std::string_view keyword) {
  const Json::Object& members = schema.as_object();
  return std::any_of(members.begin(), members.end(), [&](const Json::Member& member) {
    return member.first != keyword && !is_among(kSilent, member.first) &&
           !asks_for_nothing(member.first, member.second);
  });
}

bool speaks_of(const Json& schema, SchemaFamily family) {
  const auto names = [&]() -> std::span<const std::string_view> {
    switch (family) {
      case SchemaFamily::kObject:
        return kOfObjects;
      case SchemaFamily::kArray:
        return kOfArrays;
      case SchemaFamily::kString:
        return kOfStrings;
      case SchemaFamily::kNumber:
        return kOfNumbers;
    }
    return {};
  }();
  return std::any_of(names.begin(), names.end(),
                     [&](std::string_view name) { return schema.find(name) != nullptr; });
}

std::string_view format_pattern(std::string_view format) {
  for (const FormatPattern& each : kFormats) {
    if (each.name == format) return each.pattern;
  }
  return {};
}

}  // namespace headrace
