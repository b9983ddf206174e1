#include "text/grammar/json_schema_grammar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "text/grammar/json_schema_apart.h"
#include "text/grammar/json_schema_keywords.h"
#include "text/grammar/regex_grammar.h"

namespace headrace {
namespace {

constexpr std::array<std::string_view, 7> kTypes = {"object",  "array",   "string", "number",
                                                    "integer", "boolean", "null"};

bool is_of_type(const Json& value, std::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "number") return value.is_number();
  if (type == "integer") {
    return value.is_int() ||
           (value.is_double() && std::floor(value.as_double()) == value.as_double());
  }
  if (type == "boolean") return value.is_bool();
  return value.is_null();
}

// A schema and where it stands.
struct Place {
  const Json* schema;
  std::string name;

  Place at(std::string_view keyword, const Json& inner) const {
    constexpr size_t kNameMax = 200;  // of a message
    std::string path = fmt::format("{}/{}", name, keyword);
    if (path.size() > kNameMax) path = path.substr(0, kNameMax) + "...";
    return {&inner, std::move(path)};
  }
};

// An object's properties, gathered from one schema or from all of an allOf.
struct ObjectForm {
  std::vector<std::pair<std::string, Place>> properties;
  std::set<std::string> names;  // theirs
  std::set<std::string> required;
  std::optional<Place> additional;
  // The schemas that were gathered, those of them that describe properties, and who says
  // `additional`.
  std::map<const Json*, bool> gathered;  // false: not to its end yet
  std::set<const Json*> describing;
  const Json* additional_of = nullptr;
};

class SchemaCompiler {
 public:
  SchemaCompiler(GrammarBuilder& builder, JsonGrammar& json, const Json& root)
      : builder_(builder), json_(json), root_(root) {}

  Result<GrammarPiece> compile(const Json& at, std::string name) {
    HR_ASSIGN_OR_RETURN(const GrammarPiece root, reference({&at, std::move(name)}));
    // What is referred to is compiled one after the other: a chain of references is no recursion.
    while (!pending_.empty() && !builder_.too_large()) {
      const auto [rule, place] = pending_.front();
      pending_.pop_front();
      HR_ASSIGN_OR_RETURN(const GrammarPiece piece, value(place));
      builder_.add(rule, piece);
    }
    // By now what they refer to is there, so that beginnings can be compared.
    for (const auto& [rule, alternatives] : unions_) {
      if (builder_.too_large()) break;
      builder_.add(rule, builder_.left_factored(alternatives));
    }
    return root;
  }

 private:
  static Status error(const Place& place, std::string_view what) {
    return invalid_argument(fmt::format("{}: {}", place.name, what));
  }
  static Status no(const Place& place, std::string_view what) {
    return unsupported(fmt::format("{}: {}", place.name, what));
  }

  GrammarPiece nothing() { return builder_.choice({}); }

  Result<GrammarPiece> reference(const Place& place) {
    const auto [known, is_new] = rules_.try_emplace(place.schema);
    if (is_new) {
      known->second = builder_.declare();
      pending_.emplace_back(known->second, place);
    }
    return known->second;
  }

  Result<GrammarPiece> value(const Place& place) {
    const Json& schema = *place.schema;
    if (schema.is_bool()) return schema.as_bool() ? json_.value() : nothing();
    if (!schema.is_object()) return error(place, "a schema must be an object, true or false");
    if (builder_.too_large()) return GrammarPiece();
    HR_RETURN_IF_ERROR(check_schema_keywords(schema, place.name));
    if (schema.find("$ref")) {
      if (says_more_than(schema, "$ref")) return no(place, "keywords beside \"$ref\"");
      HR_ASSIGN_OR_RETURN(const Place target, resolve(place));
      return reference(target);
    }
    if (schema.find("enum") || schema.find("const")) return literals(place);
    for (std::string_view keyword : {"anyOf", "oneOf"}) {
      if (const Json* list = schema.find(keyword)) return any_of(place, keyword, *list);
    }
    if (schema.find("allOf")) return all_of(place);
    return by_type(place);
  }

  // --- references

  Result<Place> resolve(const Place& place) const {
    const Json& ref = *place.schema->find("$ref");
    if (!ref.is_string() || !ref.as_string().starts_with('#')) {
      return no(place, "a \"$ref\" must begin with #: other documents are not looked up");
    }
    const Json* at = &root_;
    const std::string decoded = percent_decoded(ref.as_string().substr(1));
    std::string_view path = decoded;
    while (at && !path.empty()) {
      if (path[0] != '/') return error(place, "its \"$ref\" is no path such as #/$defs/a");
      const size_t end = std::min(path.find('/', 1), path.size());
      at = step(*at, unescape(path.substr(1, end - 1)));
      path = path.substr(end);
    }
    if (!at) return error(place, "its \"$ref\" leads to nothing");
    return Place{at, ref.as_string().substr(0, 200)};
  }

  static const Json* step(const Json& from, const std::string& key) {
    if (!from.is_array()) return from.find(key);
    const bool is_index =
        !key.empty() && key.size() < 7 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!is_index) return nullptr;
    const size_t index = std::stoul(key);
    return index < from.as_array().size() ? &from.as_array()[index] : nullptr;
  }

  // A "$ref" is a URI: %20 is a space.
  static std::string percent_decoded(std::string_view part) {
    std::string text;
    for (size_t i = 0; i < part.size(); ++i) {
      unsigned value = 0;
      const char* const digits = part.data() + i + 1;
      const bool coded = part[i] == '%' && i + 2 < part.size() &&
                         std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2;
      text += coded ? static_cast<char>(value) : part[i];
      if (coded) i += 2;
    }
    return text;
  }

  // ~1 is a slash, ~0 a tilde (RFC 6901).
  static std::string unescape(std::string_view part) {
    std::string text;
    for (size_t i = 0; i < part.size(); ++i) {
      const bool escaped = part[i] == '~' && i + 1 < part.size();
      if (escaped) ++i;
      text += escaped ? (part[i] == '1' ? '/' : '~') : part[i];
    }
    return text;
  }

  // --- values that are listed, and unions

  Result<GrammarPiece> literals(const Place& place) {
    const Json& schema = *place.schema;
    const Json* one = schema.find("const");
    const Json* list = schema.find("enum");
    if (one && list) return no(place, "\"enum\" beside \"const\"");
    for (const auto& [keyword, unused] : schema.as_object()) {
      const Json only = Json::Object{{keyword, unused}};
      if (keyword == "const" || keyword == "enum" || keyword == "type") continue;
      if (says_more_than(only, "")) {
        return no(place, fmt::format("\"{}\" beside \"enum\" or \"const\"", keyword));
      }
    }
    if (list && !list->is_array()) return error(place, "\"enum\" must be a list");
    HR_ASSIGN_OR_RETURN(const std::vector<std::string_view> types, types_of(place));
    std::vector<std::string> texts;
    for (const Json& value : list ? list->as_array() : Json::Array{*one}) {
      const bool fits =
          !schema.find("type") || std::any_of(types.begin(), types.end(),
                                              [&](auto type) { return is_of_type(value, type); });
      if (fits) texts.push_back(json_.text_of(value));
    }
    if (texts.empty()) return error(place, "\"enum\" has no value, or none of its \"type\"");
    return builder_.one_of(std::move(texts));
  }

  Result<GrammarPiece> any_of(const Place& place, std::string_view keyword, const Json& list) {
    if (!list.is_array()) return error(place, fmt::format("\"{}\" must be a list", keyword));
    if (says_more_than(*place.schema, keyword)) {
      return no(place, fmt::format("keywords beside \"{}\"", keyword));
    }
    const auto target = [&](const Json& schema) -> const Json& { return target_of(schema); };
    if (keyword == "oneOf" && list.as_array().size() > kSchemasApartMax) {
      return no(place, fmt::format("\"oneOf\" of more than {}; use \"anyOf\"", kSchemasApartMax));
    }
    if (keyword == "oneOf" && !schemas_are_apart(list.as_array(), target)) {
      return no(place, "\"oneOf\" of schemas that one value may satisfy together; use \"anyOf\"");
    }
    std::vector<GrammarPiece> alternatives;
    for (size_t i = 0; i < list.as_array().size(); ++i) {
      HR_ASSIGN_OR_RETURN(GrammarPiece one,
                          value(place.at(fmt::format("{}/{}", keyword, i), list.as_array()[i])));
      alternatives.push_back(std::move(one));
    }
    unions_.emplace_back(builder_.declare(), std::move(alternatives));
    return unions_.back().first;
  }

  // Behind its references, of which there may be a chain.
  const Json& target_of(const Json& schema) const {
    constexpr int kChainMax = 16;
    const Json* at = &schema;
    for (int i = 0; i < kChainMax && at->find("$ref"); ++i) {
      const Result<Place> target = resolve({at, ""});
      if (!target.ok()) break;
      at = target->schema;
    }
    return *at;
  }

  // Of one schema it is that one; of several, all are objects, whose properties come together.
  Result<GrammarPiece> all_of(const Place& place) {
    const Json& list = *place.schema->find("allOf");
    if (!list.is_array() || list.as_array().empty()) {
      return error(place, "\"allOf\" must be a list of schemas");
    }
    if (list.as_array().size() == 1 && !says_more_than(*place.schema, "allOf")) {
      return value(place.at("allOf/0", list.as_array()[0]));
    }
    ObjectForm form;
    HR_RETURN_IF_ERROR(check_of_objects(place));
    HR_RETURN_IF_ERROR(gather(place, 0, form));
    // Each schema would judge the properties of the others.
    const bool judges = form.additional && *form.additional->schema != Json(true);
    form.describing.erase(form.additional_of);
    if (judges && !form.describing.empty()) {
      return no(*form.additional, "\"additionalProperties\" beside other schemas of an \"allOf\"");
    }
    return object(place, form);
  }

  // --- types

  Result<std::vector<std::string_view>> types_of(const Place& place) const {
    const Json& schema = *place.schema;
    const Json* type = schema.find("type");
    std::vector<std::string_view> types;
    if (type) {
      for (const Json& each : type->is_array() ? type->as_array() : Json::Array{*type}) {
        const auto known = std::find_if(kTypes.begin(), kTypes.end(), [&](std::string_view name) {
          return each.is_string() && each.as_string() == name;
        });
        if (known == kTypes.end()) return error(place, "\"type\" is none of JSON's");
        if (std::find(types.begin(), types.end(), *known) == types.end()) types.push_back(*known);
      }
      return types;
    }
    if (speaks_of(schema, SchemaFamily::kObject)) types.push_back("object");
    if (speaks_of(schema, SchemaFamily::kArray)) types.push_back("array");
    if (speaks_of(schema, SchemaFamily::kString)) types.push_back("string");
    if (speaks_of(schema, SchemaFamily::kNumber)) types.push_back("number");
    return types;
  }

  Result<GrammarPiece> by_type(const Place& place) {
    HR_ASSIGN_OR_RETURN(const std::vector<std::string_view> types, types_of(place));
    if (types.empty() && !place.schema->find("type")) return json_.value();
    std::vector<GrammarPiece> alternatives;
    for (std::string_view type : types) {
      HR_ASSIGN_OR_RETURN(GrammarPiece one, of_type(place, type));
      alternatives.push_back(std::move(one));
    }
    return builder_.choice(alternatives);
  }

  Result<GrammarPiece> of_type(const Place& place, std::string_view type) {
    if (type == "object") return object_value(place);
    if (type == "array") return array(place);
    if (type == "string") return string(place);
    if (type == "number" || type == "integer") return number(place, type == "integer");
    return type == "null" ? json_.null() : json_.boolean();
  }

  // A count such as minItems. Absent: `otherwise`.
  Result<int64_t> count(const Place& place, std::string_view keyword, int64_t otherwise) const {
    const Json* value = place.schema->find(keyword);
    if (!value) return otherwise;
    const bool good = value->is_int() && value->as_int() >= 0;
    if (!good) return error(place, fmt::format("\"{}\" must be a count", keyword));
    return value->as_int();
  }

  Result<GrammarPiece> string(const Place& place) {
    const Json& schema = *place.schema;
    HR_ASSIGN_OR_RETURN(const int64_t min, count(place, "minLength", 0));
    HR_ASSIGN_OR_RETURN(const int64_t max, count(place, "maxLength", GrammarBuilder::kNoLimit));
    const Json* pattern = schema.find("pattern");
    const Json* format = schema.find("format");
    if (max != GrammarBuilder::kNoLimit && max < min) return nothing();
    if (pattern && !pattern->is_string()) return error(place, "\"pattern\" must be a string");
    if (format && !format->is_string()) return error(place, "\"format\" must be a string");
    // A format that is not known says nothing.
    std::string_view expression = format ? format_pattern(format->as_string()) : std::string_view();
    if (pattern && !expression.empty()) return no(place, "\"pattern\" beside \"format\"");
    // What is of a format is not empty.
    const bool bounded = min > (expression.empty() ? 0 : 1) || max != GrammarBuilder::kNoLimit;
    if (pattern) expression = pattern->as_string();
    if (!pattern && expression.empty()) return json_.string(min, max);
    if (bounded) {
      return no(place, "\"pattern\" or \"format\" beside \"minLength\" or \"maxLength\"");
    }
    const Result<GrammarPiece> characters = regex_grammar(
        builder_, expression, [&](const CodePointSet& set) { return json_.character(set); });
    if (!characters.ok()) return characters.status().with_context(place.name);
    return json_.quoted(*characters);
  }

  // --- numbers

  Result<std::optional<NumberBound>> bound(const Place& place, bool is_low, bool integer) const {
    constexpr double kDigitsMax = 1e16;  // numbers have 16 digits in front of the point
    std::optional<NumberBound> bound;
    for (const bool exclusive : {false, true}) {
      const std::string_view keyword = exclusive
                                           ? (is_low ? "exclusiveMinimum" : "exclusiveMaximum")
                                           : (is_low ? "minimum" : "maximum");
      const Json* value = place.schema->find(keyword);
      if (!value) continue;
      if (!value->is_number()) return error(place, fmt::format("\"{}\" must be a number", keyword));
      const double exact = value->as_double();
      const double whole = is_low ? std::floor(exact) : std::ceil(exact);
      // Above the largest number that may come, or below the smallest.
      if (is_low ? exact < -kDigitsMax : exact > kDigitsMax) continue;
      if (!(std::abs(exact) <= static_cast<double>(JsonGrammar::kNumberMax))) {
        return no(place, fmt::format("\"{}\" beyond {}", keyword, JsonGrammar::kNumberMax));
      }
      if (whole != exact && !integer) {
        return no(place, fmt::format("\"{}\" with a fraction", keyword));
      }
      // Of integers, those above 2.5 are those above 2.
      const NumberBound found{static_cast<int64_t>(whole), exclusive || whole != exact};
      const bool tighter =
          !bound || (is_low ? found.value > bound->value : found.value < bound->value);
      if (tighter || (found.value == bound->value && found.exclusive)) bound = found;
    }
    return bound;
  }

  Result<GrammarPiece> number(const Place& place, bool integer) {
    if (const Json* step = place.schema->find("multipleOf")) {
      if (!step->is_number() || step->as_double() != 1) return no(place, "a \"multipleOf\" but 1");
      integer = true;
    }
    HR_ASSIGN_OR_RETURN(const std::optional<NumberBound> low, bound(place, true, integer));
    HR_ASSIGN_OR_RETURN(const std::optional<NumberBound> high, bound(place, false, integer));
    if (low && high && low->value > high->value) return nothing();
    return integer ? json_.integer(low, high) : json_.number(low, high);
  }

  // --- arrays

  Result<GrammarPiece> array(const Place& place) {
    const Json& schema = *place.schema;
    const Json* items = schema.find("items");
    const Json* prefix = schema.find("prefixItems");
    HR_ASSIGN_OR_RETURN(const int64_t min, count(place, "minItems", 0));
    HR_ASSIGN_OR_RETURN(const int64_t max, count(place, "maxItems", GrammarBuilder::kNoLimit));
    if (!items && !prefix && min == 0 && max == GrammarBuilder::kNoLimit) return json_.array();
    if (prefix && !prefix->is_array()) return error(place, "\"prefixItems\" must be a list");
    std::vector<GrammarPiece> first;
    for (size_t i = 0; prefix && i < prefix->as_array().size(); ++i) {
      HR_ASSIGN_OR_RETURN(GrammarPiece one,
                          value(place.at(fmt::format("prefixItems/{}", i), prefix->as_array()[i])));
      first.push_back(std::move(one));
    }
    GrammarPiece other = json_.value();
    if (items) {
      HR_ASSIGN_OR_RETURN(other, value(place.at("items", *items)));
    } else if (prefix) {
      other = nothing();  // as objects have no other properties
    }
    if (max != GrammarBuilder::kNoLimit && max < min) return nothing();
    return items_of(first, builder_.choice({other}), min, max);
  }

  // From the back: what may follow so many items.
  GrammarPiece items_of(const std::vector<GrammarPiece>& first, const GrammarPiece& other,
                        int64_t min, int64_t max) {
    const auto join = GrammarBuilder::join;
    const bool limited = max != GrammarBuilder::kNoLimit;
    const auto fixed = static_cast<int64_t>(first.size());
    GrammarPiece tail;
    if (!limited || max > fixed) {
      const int64_t least = std::max<int64_t>(0, min - fixed);
      const int64_t most = limited ? max - fixed : max;
      tail = items_like(other, fixed == 0, least, most);
    } else if (min > fixed) {
      return nothing();
    }
    for (int64_t i = fixed; i-- > 0;) {
      if (limited && i >= max) continue;
      const GrammarPiece& item = first[static_cast<size_t>(i)];
      const GrammarPiece one = join({i == 0 ? GrammarPiece() : json_.comma(), item, tail});
      tail = i < min ? builder_.choice({one}) : builder_.optional(one);
    }
    return json_.list_of(tail);
  }

  // Items behind others; as_first: or none before.
  GrammarPiece items_like(const GrammarPiece& item, bool as_first, int64_t min, int64_t max) {
    const auto join = GrammarBuilder::join;
    const GrammarPiece next = join({json_.comma(), item});
    if (!as_first) return builder_.repeat(next, min, max);
    if (max == 0) return {};
    const int64_t rest = max == GrammarBuilder::kNoLimit ? max : max - 1;
    const GrammarPiece all =
        join({item, builder_.repeat(next, std::max<int64_t>(0, min - 1), rest)});
    return min == 0 ? builder_.optional(all) : all;
  }

  // --- objects

  Result<GrammarPiece> object_value(const Place& place) {
    if (!speaks_of(*place.schema, SchemaFamily::kObject)) return json_.object();
    ObjectForm form;
    HR_RETURN_IF_ERROR(gather(place, 0, form));
    return object(place, form);
  }

  // What a schema, those that it refers to and those of its allOf say of one object.
  Status gather(const Place& place, int depth, ObjectForm& form) {
    constexpr int kDepthMax = 32, kGatheredMax = 10'000;
    const Json& schema = *place.schema;
    const auto [known, is_new] = form.gathered.try_emplace(&schema, false);
    if (!is_new && known->second) return ok_status();
    if (!is_new || depth > kDepthMax || ++gathered_ > kGatheredMax) {
      return error(place, "\"allOf\" is nested too deeply, or refers to itself");
    }
    if (!schema.is_object()) return no(place, "true or false in \"allOf\"");
    HR_RETURN_IF_ERROR(check_schema_keywords(schema, place.name));
    for (std::string_view keyword : {"anyOf", "oneOf", "enum", "const"}) {
      if (schema.find(keyword)) return no(place, fmt::format("\"{}\" in \"allOf\"", keyword));
    }
    if (depth > 0) HR_RETURN_IF_ERROR(check_of_objects(place));
    if (schema.find("$ref")) {
      HR_ASSIGN_OR_RETURN(const Place target, resolve(place));
      HR_RETURN_IF_ERROR(gather(target, depth + 1, form));
    }
    if (const Json* all = schema.find("allOf")) {
      if (!all->is_array()) return error(place, "\"allOf\" must be a list");
      for (size_t i = 0; i < all->as_array().size(); ++i) {
        HR_RETURN_IF_ERROR(
            gather(place.at(fmt::format("allOf/{}", i), all->as_array()[i]), depth + 1, form));
      }
    }
    HR_RETURN_IF_ERROR(gather_own(place, form));
    form.gathered[&schema] = true;
    return ok_status();
  }

  // Whatever is said of other values would be lost.
  static Status check_of_objects(const Place& place) {
    const Json& schema = *place.schema;
    const Json* type = schema.find("type");
    const bool of_others = speaks_of(schema, SchemaFamily::kArray) ||
                           speaks_of(schema, SchemaFamily::kString) ||
                           speaks_of(schema, SchemaFamily::kNumber);
    if (of_others || (type && *type != Json("object"))) {
      return no(place, "\"allOf\" of what are no objects");
    }
    if (schema.find("unevaluatedProperties")) {
      return no(place, "\"unevaluatedProperties\" beside or in \"allOf\"");
    }
    return ok_status();
  }

  static Status gather_own(const Place& place, ObjectForm& form) {
    const Json& schema = *place.schema;
    if (schema.find("properties") || schema.find("required")) form.describing.insert(&schema);
    if (const Json* properties = schema.find("properties")) {
      if (!properties->is_object()) return error(place, "\"properties\" must be an object");
      for (const auto& [name, property] : properties->as_object()) {
        const Place inner = place.at("properties/" + name.substr(0, 64), property);
        if (!form.names.insert(name).second) return no(inner, "a property that is described twice");
        form.properties.emplace_back(name, inner);
      }
    }
    if (const Json* required = schema.find("required")) {
      const bool names = required->is_array() &&
                         std::all_of(required->as_array().begin(), required->as_array().end(),
                                     [](const Json& name) { return name.is_string(); });
      if (!names) return error(place, "\"required\" must be a list of names");
      for (const Json& name : required->as_array()) form.required.insert(name.as_string());
    }
    // Where no allOf is, the second says what the first would.
    for (std::string_view keyword : {"additionalProperties", "unevaluatedProperties"}) {
      const Json* additional = schema.find(keyword);
      if (!additional) continue;
      if (form.additional) return no(place, "\"additionalProperties\" twice in \"allOf\"");
      form.additional = place.at(keyword, *additional);
      form.additional_of = &schema;
      break;
    }
    return ok_status();
  }

  // Properties in their order. What may follow depends on whether one stands before: the rules of
  // both are made from the back.
  Result<GrammarPiece> object(const Place& place, ObjectForm& form) {
    const auto join = GrammarBuilder::join;
    HR_RETURN_IF_ERROR(add_undescribed(place, form));
    GrammarPiece behind, front;  // one; none
    HR_RETURN_IF_ERROR(add_others(form, behind, front));
    for (size_t i = form.properties.size(); i-- > 0;) {
      const auto& [name, property] = form.properties[i];
      // An allOf may lead back here.
      HR_ASSIGN_OR_RETURN(const GrammarPiece inner, reference(property));
      const GrammarPiece member = builder_.choice({json_.member(json_.literal(Json(name)), inner)});
      std::vector<GrammarPiece> next = {join({json_.comma(), member, behind})};
      std::vector<GrammarPiece> first = {join({member, behind})};
      if (!form.required.contains(name)) {
        next.push_back(behind);
        first.push_back(front);
      }
      behind = builder_.choice(next);
      front = builder_.choice(first);
    }
    return json_.object_of(front);
  }

  // A property that must be there and is described nowhere is one of the others.
  static Status add_undescribed(const Place& place, ObjectForm& form) {
    static const Json kAnything(true);
    for (const std::string& name : form.required) {
      if (form.names.contains(name)) continue;
      if (form.additional && *form.additional->schema == Json(false)) {
        return error(place, fmt::format("\"{}\" is required and not allowed", name.substr(0, 64)));
      }
      form.properties.emplace_back(name, form.additional.value_or(Place{&kAnything, place.name}));
    }
    return ok_status();
  }

  // Names that the schema does not list.
  Status add_others(const ObjectForm& form, GrammarPiece& behind, GrammarPiece& front) {
    if (!form.additional || *form.additional->schema == Json(false)) return ok_status();
    std::vector<std::string> names;
    for (const auto& property : form.properties) names.push_back(property.first);
    const GrammarPiece key = names.empty() ? json_.string() : json_.string_but(names);
    HR_ASSIGN_OR_RETURN(const GrammarPiece inner, reference(*form.additional));
    const GrammarPiece member = builder_.choice({json_.member(key, inner)});
    behind =
        builder_.repeat(GrammarBuilder::join({json_.comma(), member}), 0, GrammarBuilder::kNoLimit);
    front = builder_.optional(GrammarBuilder::join({member, behind}));
    return ok_status();
  }

  GrammarBuilder& builder_;
  JsonGrammar& json_;
  const Json& root_;
  std::map<const Json*, GrammarPiece> rules_;
  std::deque<std::pair<GrammarPiece, Place>> pending_;
  std::vector<std::pair<GrammarPiece, std::vector<GrammarPiece>>> unions_;
  int gathered_ = 0;
};

}  // namespace

Result<GrammarPiece> json_schema_grammar(GrammarBuilder& builder, JsonGrammar& json,
                                         const Json& schema) {
  return SchemaCompiler(builder, json, schema).compile(schema, "#");
}

Result<GrammarPiece> json_property_grammar(GrammarBuilder& builder, JsonGrammar& json,
                                           const Json& schema, const Json& property,
                                           std::string_view name) {
  return SchemaCompiler(builder, json, schema)
      .compile(property, "#/properties/" + std::string(name.substr(0, 64)));
}

}  // namespace headrace
