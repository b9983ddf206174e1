#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <compare>
#include <functional>

#include <fmt/format.h>
#include <simdjson.h>

namespace headrace {
namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;

struct Budget {
  const JsonLimits& limits;
  size_t keys_left;
  size_t elements_left;
};

Result<Json> convert(element node, int depth, Budget& budget);

Result<Json> convert_array(simdjson::dom::array items, int depth, Budget& budget) {
  Json::Array out;
  out.reserve(std::min(items.size(), budget.elements_left));
  for (element item : items) {
    if (budget.elements_left-- == 0) {
      return exhausted(fmt::format("more than {} elements", budget.limits.element_count_max));
    }
    HR_ASSIGN_OR_RETURN(Json value, convert(item, depth + 1, budget));
    out.push_back(std::move(value));
  }
  return Json(std::move(out));
}

// By hash first, which is quick to compare; equal hashes, which a client can make, by the text.
struct HashedKey {
  size_t hash;
  std::string_view text;
  auto operator<=>(const HashedKey&) const = default;
};

std::vector<HashedKey> sorted_keys(const Json::Object& members) {
  std::vector<HashedKey> keys;
  keys.reserve(members.size());
  for (const auto& [key, value] : members)
    keys.push_back({std::hash<std::string_view>()(key), key});
  std::sort(keys.begin(), keys.end());
  return keys;
}

Status refuse_duplicates(const Json::Object& members) {
  const std::vector<HashedKey> keys = sorted_keys(members);
  const auto twin = std::adjacent_find(keys.begin(), keys.end());
  if (twin == keys.end()) return ok_status();
  const std::string name(twin->text.substr(0, 80));
  return invalid_argument(fmt::format("key \"{}\" appears twice in one object", name), name);
}

Result<Json> convert_object(simdjson::dom::object items, int depth, Budget& budget) {
  if (items.size() > budget.limits.object_keys_max) {
    return exhausted(fmt::format("an object of more than {} keys", budget.limits.object_keys_max));
  }
  Json::Object out;
  out.reserve(items.size());
  for (auto item : items) {
    if (budget.keys_left-- == 0) {
      return exhausted(fmt::format("more than {} keys", budget.limits.key_count_max));
    }
    HR_ASSIGN_OR_RETURN(Json value, convert(item.value, depth + 1, budget));
    out.emplace_back(std::string(item.key), std::move(value));
  }
  HR_RETURN_IF_ERROR(refuse_duplicates(out));
  return Json(std::move(out));
}

Result<Json> convert(element node, int depth, Budget& budget) {
  if (depth > budget.limits.depth_max) {
    return exhausted(fmt::format("nested deeper than {}", budget.limits.depth_max));
  }
  switch (node.type()) {
    case element_type::ARRAY:
      return convert_array(node.get_array().value_unsafe(), depth, budget);
    case element_type::OBJECT:
      return convert_object(node.get_object().value_unsafe(), depth, budget);
    case element_type::STRING:
      return Json(node.get_string().value_unsafe());
    case element_type::INT64:
      return Json(node.get_int64().value_unsafe());
    case element_type::UINT64:
      return Json(static_cast<double>(node.get_uint64().value_unsafe()));
    case element_type::DOUBLE:
      return Json(node.get_double().value_unsafe());
    case element_type::BOOL:
      return Json(node.get_bool().value_unsafe());
    case element_type::NULL_VALUE:
      return Json();
  }
  return internal_error("unknown JSON element");
}

// The parser makes 16 bytes and more of each value before we see it, and a value can be two bytes
// of text. Every comma outside of a string stands between two members or two elements, so that a
// text with more of them than both may be together breaks one of the limits, whatever else it is.
Status refuse_crowds(std::string_view text, const JsonLimits& limits) {
  const size_t most = limits.element_count_max > SIZE_MAX - limits.key_count_max
                          ? SIZE_MAX
                          : limits.element_count_max + limits.key_count_max;
  if (text.size() / 2 <= most) return ok_status();
  size_t commas = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size() && commas <= most; ++i) {
    const char c = text[i];
    if (in_string && c == '\\') {
      ++i;
    } else if (c == '"') {
      in_string = !in_string;
    } else if (c == ',' && !in_string) {
      ++commas;
    }
  }
  if (commas <= most) return ok_status();
  return exhausted(fmt::format("more than {} elements and {} keys", limits.element_count_max,
                               limits.key_count_max));
}

// The parser refuses integers of more than 64 bits. The same text with an exponent behind them,
// which makes doubles of them; empty: it has none. What is no JSON remains none.
std::string with_doubles_for_long_integers(std::string_view text) {
  std::string out;
  size_t copied = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\' ? 1 : 0;
      continue;
    }
    const size_t end = std::min(text.find_first_not_of("+-.0123456789eE", i), text.size());
    if (end == i) continue;
    const std::string_view number = text.substr(i, end - i);
    i = end - 1;
    if (number.find_first_of(".eE") != number.npos) continue;
    int64_t fits = 0;
    const auto [rest, error] = std::from_chars(number.begin(), number.end(), fits);
    if (error != std::errc::result_out_of_range) continue;
    out.append(text, copied, end - copied).append("e0");
    copied = end;
  }
  if (copied > 0) out.append(text, copied);
  return out;
}

// `root` lives as long as the parser and its next text.
Status parse_text(std::string_view text, int depth_max, simdjson::dom::parser& parser,
                  element& root) {
  if (text.data() == nullptr) text = "";  // as an empty file is seen
  if (constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
      text.starts_with(kByteOrderMark)) {
    text.remove_prefix(kByteOrderMark.size());  // RFC 8259 8.1
  }
  // The parser's own depth bound covers its stack; ours is exact.
  if (parser.allocate(std::max<size_t>(text.size(), 1), static_cast<size_t>(depth_max) + 2)) {
    return exhausted("not enough memory for the JSON text");
  }
  const auto error = parser.parse(text.data(), text.size()).get(root);
  if (error == simdjson::DEPTH_ERROR) {
    return exhausted(fmt::format("nested deeper than {}", depth_max));
  }
  if (!error) return ok_status();
  const std::string_view hint =
      error == simdjson::STRING_ERROR
          ? " (half of a surrogate pair behind \\u, perhaps: send both or the character itself)"
          : "";
  return invalid_argument(
      fmt::format("not valid JSON: {}{}", simdjson::error_message(error), hint));
}

// Length of the UTF-8 sequence at text[0], 0 where it is malformed.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool surrogate = first == 0xed && byte(1) >= 0xa0;
  const bool too_large = first == 0xf4 && byte(1) >= 0x90;
  return overlong || surrogate || too_large ? 0 : length;
}

void append(std::string& out, const Json& value);

void append_number(std::string& out, double number) {
  if (!std::isfinite(number)) {
    out += "null";
    return;
  }
  const size_t start = out.size();
  fmt::format_to(std::back_inserter(out), "{}", number);
  // Python and JavaScript read "1" as an integer; a double keeps its point.
  if (out.find_first_of(".e", start) == std::string::npos) out += ".0";
}

void append_array(std::string& out, const Json::Array& items) {
  out += '[';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ',';
    append(out, items[i]);
  }
  out += ']';
}

void append_object(std::string& out, const Json::Object& members) {
  out += '{';
  for (size_t i = 0; i < members.size(); ++i) {
    if (i > 0) out += ',';
    append_json_string(out, members[i].first);
    out += ':';
    append(out, members[i].second);
  }
  out += '}';
}

void append(std::string& out, const Json& value) {
  if (value.is_null()) {
    out += "null";
  } else if (value.is_bool()) {
    out += value.as_bool() ? "true" : "false";
  } else if (value.is_int()) {
    fmt::format_to(std::back_inserter(out), "{}", value.as_int());
  } else if (value.is_double()) {
    append_number(out, value.as_double());
  } else if (value.is_string()) {
    append_json_string(out, value.as_string());
  } else if (value.is_array()) {
    append_array(out, value.as_array());
  } else {
    append_object(out, value.as_object());
  }
}

}  // namespace

std::string_view Json::type_name() const {
  constexpr std::string_view kNames[] = {"null",   "boolean", "integer", "number",
                                         "string", "array",   "object"};
  return kNames[value_.index()];
}

const Json* Json::find(std::string_view key) const {
  const auto* members = std::get_if<Object>(&value_);
  if (members == nullptr) return nullptr;
  for (const Member& member : *members) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

Json& Json::set(std::string_view key, Json value) {
  Object& members = as_object();
  for (Member& member : members) {
    if (member.first == key) {
      member.second = std::move(value);
      return *this;
    }
  }
  members.emplace_back(std::string(key), std::move(value));
  return *this;
}

Json& Json::merge(Object members) {
  Object& mine = as_object();
  const std::vector<HashedKey> theirs = sorted_keys(members);
  std::erase_if(mine, [&](const Member& member) {
    const HashedKey key{std::hash<std::string_view>()(member.first), member.first};
    return std::binary_search(theirs.begin(), theirs.end(), key);
  });
  std::move(members.begin(), members.end(), std::back_inserter(mine));
  return *this;
}

Json& Json::push(Json value) {
  as_array().push_back(std::move(value));
  return *this;
}

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  JsonLimits left = limits;
  return parse_json_within(text, left);
}

Result<Json> parse_json_within(std::string_view text, JsonLimits& left) {
  const JsonLimits limits = left;
  HR_RETURN_IF_ERROR(refuse_crowds(text, limits));
  simdjson::dom::parser parser;
  element root;
  Status status = parse_text(text, limits.depth_max, parser, root);
  if (status.code() == StatusCode::kInvalidArgument) {
    const std::string readable = with_doubles_for_long_integers(text);
    if (!readable.empty()) status = parse_text(readable, limits.depth_max, parser, root);
  }
  HR_RETURN_IF_ERROR(status);
  Budget budget{limits, limits.key_count_max, limits.element_count_max};
  Result<Json> json = convert(root, 0, budget);
  if (!json.ok()) return json;  // a budget that was overdrawn has wrapped around
  left.key_count_max = budget.keys_left;
  left.element_count_max = budget.elements_left;
  return json;
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text[0]);
    const size_t length = utf8_length(text);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c < 0x20 || c == 0x7f) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", c);
    } else if (length == 0) {
      out += "\xef\xbf\xbd";
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  out += '"';
}

std::string write_json(const Json& value) {
  std::string out;
  append(out, value);
  return out;
}

}  // namespace headrace
