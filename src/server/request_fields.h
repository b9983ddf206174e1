// Reading a request body by tables: one row per field with its type and range, so that every field
// is checked in the same way, an error always names the field, and tests can walk the tables.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/sampling_defaults.h"
#include "base/status.h"
#include "sched/scheduler.h"
#include "server/server_limits.h"

namespace headrace {

enum class FieldType : uint8_t {
  kBool,
  kInteger,  // a number without fraction in [low, high]
  kNumber,   // finite, in [low, high]
  kString,   // at most label_bytes_max bytes
  kAny,      // the row's own reader checks it
};

struct FieldRange {
  double low = 0, high = 0;
  bool above_low = false;  // (low, high]
};

// A field as a table has it, for who describes what a route reads (openapi.h).
struct FieldNote {
  std::string_view name;
  FieldType type = FieldType::kAny;
  FieldRange range;
  const char* schema = nullptr;
  std::vector<FieldNote> inside;  // the fields of this one, where it was read
};

// What readers of fields need to know besides the body.
struct FieldContext {
  const RequestLimits& limits;
  int32_t vocab_size = 0;
  std::span<const SloClass> slo_classes = {};  // that slo_class may name
  SamplingDefaults defaults = {};              // of fields that a body does not have
  bool reads_calls = false;                    // of tools, out of the model's answers
  bool reads_reasoning = false;
  bool takes_forms = false;           // the engine keeps to forms of answers
  bool enforces_calls = false;        // and the form of calls is known
  bool bounds_thoughts = false;       // and that of thoughts
  std::string_view shown_model = {};  // what answers call the model; empty: as requests do
  // Where readers note every field that they look for; null: nowhere.
  std::vector<FieldNote>* notes = nullptr;
};

template <class Target>
struct Field {
  std::string_view name;
  FieldType type = FieldType::kAny;
  FieldRange range;
  // Stores a value of the right type and range; refuses with a message that begins with the name.
  Status (*read)(const Json& value, const FieldContext& context, Target& target) = nullptr;
  // A JSON schema of what `read` takes, where type and range do not say it.
  const char* schema = nullptr;

  FieldNote note() const { return {name, type, range, schema, {}}; }
};

// kInvalidArgument unless `value` has the type and lies in the range. Conditions are positive
// (low <= x && x <= high), so that NaN can never pass.
Status check_field(std::string_view name, FieldType type, const FieldRange& range,
                   const Json& value, const FieldContext& context);
// REQUIRES: check_field(kInteger) was ok
int64_t integer_of(const Json& value);
Status field_error(std::string_view name, std::string_view expected, const Json& value);
// Of a word that is none of some; quotes it where it is short.
Status choice_error(std::string_view name, std::span<const std::string_view> choices,
                    const Json& value);

// Fields that would change what the answer means and that this server does not implement. Silence
// about them would be a wrong answer with status 200.
struct RefusedField {
  std::string_view name;
  bool (*asks_for_something)(const Json& value);
  std::string_view remedy = "leave it out";
};
Status check_refused(std::span<const RefusedField> refused, const Json& body);

// kInvalidArgument if the body has the field.
Status refuse_if_given(std::string_view name, const Json& body);
// Of a check of what a field holds: names the field as the one at fault.
Status in_field(std::string_view field, const Status& status);

template <class Target, size_t kCount>
constexpr std::array<std::string_view, kCount> names_of(const Field<Target> (&fields)[kCount]) {
  std::array<std::string_view, kCount> names{};
  for (size_t i = 0; i < kCount; ++i) names[i] = fields[i].name;
  return names;
}

// Reads a field that a protocol takes, if the body has it; null counts as absent.
template <class Target>
Status read_field(const Field<Target>& field, const Json& body, const FieldContext& context,
                  Target& target) {
  if (context.notes) context.notes->push_back(field.note());
  const Json* value = body.find(field.name);
  if (!value || value->is_null()) return ok_status();
  HR_RETURN_IF_ERROR(check_field(field.name, field.type, field.range, *value, context));
  if (!context.notes) return field.read(*value, context, target);
  FieldContext inside = context;
  inside.notes = &context.notes->back().inside;
  return field.read(*value, inside, target);
}

// Reads every field that the body has and the table knows; other fields are ignored, as the servers
// we stand in for do.
template <class Target>
Status read_fields(std::span<const Field<Target>> fields, const Json& body,
                   const FieldContext& context, Target& target) {
  for (const Field<Target>& field : fields) {
    HR_RETURN_IF_ERROR(read_field(field, body, context, target));
  }
  return ok_status();
}

inline bool is_named(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The same for a protocol that has some of the fields only: those in `taken`. Any other that the
// table knows would be ignored in silence: it is refused by its name, unless it is one of `own`,
// which the protocol reads by a table of its own.
template <class Target>
Status read_some_fields(std::span<const Field<Target>> fields,
                        std::span<const std::string_view> taken, const Json& body,
                        const FieldContext& context, Target& target,
                        std::span<const std::string_view> own = {}) {
  for (const Field<Target>& field : fields) {
    if (is_named(taken, field.name)) {
      HR_RETURN_IF_ERROR(read_field(field, body, context, target));
    } else if (!is_named(own, field.name)) {
      HR_RETURN_IF_ERROR(refuse_if_given(field.name, body));
    }
  }
  return ok_status();
}

// The same, but other fields are ignored: they mean nothing in that protocol.
template <class Target>
Status read_named_fields(std::span<const Field<Target>> fields,
                         std::span<const std::string_view> names, const Json& body,
                         const FieldContext& context, Target& target) {
  for (const Field<Target>& field : fields) {
    if (is_named(names, field.name)) HR_RETURN_IF_ERROR(read_field(field, body, context, target));
  }
  return ok_status();
}

// An array of token ids inside the vocabulary.
Result<std::vector<int32_t>> read_token_ids(std::string_view name, const Json& value,
                                            const FieldContext& context, size_t count_max);

// What a client notes down on what it stores: an object of a few short texts.
Status check_metadata(const Json& metadata);

}  // namespace headrace
