#include "text/template/template_format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include <fmt/core.h>

#include "text/template/template_builtins.h"
#include "text/template/template_text.h"

namespace headrace {
namespace {

// One "%..." directive: flags, width, precision, then its letter.
std::string format_directive(TemplateContext& context, std::string directive, char letter,
                             const Value& value) {
  if (letter == 's' || letter == 'r') {
    std::string text;
    if (letter == 'r' && value.is_string()) {
      text = python_repr(value.text());
    } else {
      append_string(context, value, text);
    }
    if (directive == "%") return text;
    context.fail(fmt::format("'{}{}' is not supported", directive, letter));
  }
  if (!value.is_number()) {
    context.fail(fmt::format("'%{}' needs a number, not {}", letter, value.type_name()));
  }
  char buffer[512];  // 309 digits before the point and 99 behind it at most
  const bool is_integer =
      letter == 'd' || letter == 'i' || letter == 'x' || letter == 'o' || letter == 'X';
  if (is_integer) {
    const double real = value.real();
    if (!value.is_integral() && !(std::fabs(real) < 9e18)) context.fail("the number does not fit");
    const long long integer = value.is_integral() ? value.integer() : static_cast<long long>(real);
    directive += "ll";
    directive += letter;
    std::snprintf(buffer, sizeof(buffer), directive.c_str(), integer);
  } else {
    directive += letter;
    std::snprintf(buffer, sizeof(buffer), directive.c_str(), value.real());
  }
  return buffer;
}

// What stands behind ":" in a field.
struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // < > ^ =, 0: by type
  char sign = '-';
  bool groups = false;  // commas between thousands
  int64_t width = 0, precision = -1;
  char type = 0;
};

int64_t take_number(TemplateContext& context, std::string_view& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::result_out_of_range) context.fail("a width or precision is too large");
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

FormatSpec parse_spec(TemplateContext& context, std::string_view text) {
  constexpr std::string_view kAligns = "<>^=";
  const std::string whole(text.substr(0, 20));
  FormatSpec spec;
  const std::vector<std::string_view> letters = characters(text.substr(0, 8));
  if (letters.size() > 1 && kAligns.find(letters[1]) != kAligns.npos) {
    spec.fill = letters[0];
    text.remove_prefix(letters[0].size());
  }
  const auto take_one_of = [&](std::string_view set) {
    if (text.empty() || set.find(text[0]) == set.npos) return char{0};
    const char taken = text[0];
    text.remove_prefix(1);
    return taken;
  };
  spec.align = take_one_of(kAligns);
  if (const char sign = take_one_of("+- ")) spec.sign = sign;
  if (take_one_of("0") && !spec.align) {
    spec.fill = "0";
    spec.align = '=';
  }
  if (!text.empty() && text[0] >= '0' && text[0] <= '9') spec.width = take_number(context, text);
  spec.groups = take_one_of(",") != 0;
  if (take_one_of(".")) spec.precision = take_number(context, text);
  spec.type = take_one_of("sdxXobcfFeEgG%");
  if (!text.empty() || spec.precision > 99) {
    context.fail(fmt::format("format '{}' is not supported", whole));
  }
  return spec;
}

std::string integer_digits(int64_t value, char type) {
  // Of the negative too, whose absolute value may not fit.
  const uint64_t magnitude =
      value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  switch (type) {
    case 'x':
      return fmt::format("{:x}", magnitude);
    case 'X':
      return fmt::format("{:X}", magnitude);
    case 'o':
      return fmt::format("{:o}", magnitude);
    case 'b':
      return fmt::format("{:b}", magnitude);
    default:
      return fmt::format("{}", magnitude);
  }
}

std::string real_digits(TemplateContext& context, double value, const FormatSpec& spec) {
  if (!std::isfinite(value)) context.fail("only finite numbers can be formatted");
  const double magnitude = std::fabs(value);
  if (spec.type == 0) {
    if (spec.precision >= 0) context.fail("a precision needs a type: f, e or g");
    return python_float(magnitude);
  }
  const char letter = spec.type == '%' ? 'f' : spec.type;
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  const char directive[] = {'%', '.', '*', letter, 0};
  char buffer[512];  // 309 digits before the point and 99 behind it at most
  std::snprintf(buffer, sizeof(buffer), directive, precision,
                spec.type == '%' ? magnitude * 100 : magnitude);
  return spec.type == '%' ? std::string(buffer) + "%" : buffer;
}

void group_thousands(std::string& digits) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t at = whole; at > 3;) digits.insert(at -= 3, ",");
}

// `text` to the width, with `prefix` (a sign) before it or, for '=', before the fill.
std::string padded(TemplateContext& context, const std::string& prefix, const std::string& text,
                   const FormatSpec& spec, char align) {
  const auto length = static_cast<int64_t>(characters(prefix + text).size());
  const int64_t missing = std::max<int64_t>(spec.width - length, 0);
  const size_t size_max = context.limits().output_bytes_max;
  context.check_string_size(static_cast<size_t>(missing) > size_max ? size_max + 1 : 0);
  const auto fill = [&](int64_t count) {
    std::string out;
    for (int64_t i = 0; i < count; ++i) out += spec.fill;
    return out;
  };
  switch (align) {
    case '<':
      return prefix + text + fill(missing);
    case '^':
      return fill(missing / 2) + prefix + text + fill(missing - missing / 2);
    case '=':
      return prefix + fill(missing) + text;
    default:
      return fill(missing) + prefix + text;
  }
}

std::string format_value(TemplateContext& context, const Value& value, std::string_view text) {
  if (text.empty()) {
    std::string out;
    append_string(context, value, out);
    return out;
  }
  const FormatSpec spec = parse_spec(context, text);
  if (value.is_string()) {
    if ((spec.type != 0 && spec.type != 's') || spec.align == '=' || spec.groups) {
      context.fail("a string has no such format");
    }
    context.charge(value.text().size() / 16);
    const std::vector<std::string_view> all = characters(value.text());
    const size_t kept =
        spec.precision < 0 ? all.size() : std::min(all.size(), static_cast<size_t>(spec.precision));
    std::string cut;
    for (size_t i = 0; i < kept; ++i) cut += all[i];
    return padded(context, "", cut, spec, spec.align ? spec.align : '<');
  }
  if (!value.is_number()) {
    context.fail(fmt::format("'{}' takes no format", value.type_name()));
  }
  const bool as_integer =
      value.is_integral() &&
      (spec.type == 0 || std::string_view("dxXob").find(spec.type) != std::string_view::npos);
  if (as_integer ? spec.precision >= 0
                 : spec.type != 0 &&
                       std::string_view("fFeEgG%").find(spec.type) == std::string_view::npos) {
    context.fail("a number has no such format");
  }
  std::string digits = as_integer ? integer_digits(value.integer(), spec.type)
                                  : real_digits(context, value.real(), spec);
  if (spec.groups) group_thousands(digits);
  const bool negative = as_integer ? value.integer() < 0 : std::signbit(value.real());
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  return padded(context, sign, digits, spec, spec.align ? spec.align : '>');
}

// Finds the values of fields: by order, number or name, then by members.
class FieldFinder {
 public:
  FieldFinder(TemplateContext& context, const Arguments& arguments)
      : context_(context), arguments_(arguments) {}

  Value find(std::string_view field) {
    const size_t end = std::min(field.find_first_of(".["), field.size());
    Value value = find_argument(field.substr(0, end));
    field.remove_prefix(end);
    while (!field.empty()) {
      context_.charge(1);
      const bool by_item = field[0] == '[';
      const size_t stop =
          by_item ? field.find(']') : std::min(field.find_first_of(".[", 1), field.size());
      if (stop == field.npos) context_.fail("a field lacks its ']'");
      const std::string_view name = field.substr(1, stop - 1);
      value = by_item
                  ? get_item(context_, value, item_key(name))
                  : get_attribute(context_, value, context_.make_string(std::string(name)).text());
      if (value.is_undefined()) value = Value();  // the name goes with this field
      field.remove_prefix(stop + (by_item ? 1 : 0));
      if (by_item && !field.empty() && field[0] != '.' && field[0] != '[') {
        context_.fail("a field has text behind its ']'");
      }
    }
    return value;
  }

 private:
  static bool is_number(std::string_view text) {
    return !text.empty() && text.size() < 10 &&
           text.find_first_not_of("0123456789") == std::string_view::npos;
  }
  Value item_key(std::string_view name) {
    if (is_number(name)) return take_number(context_, name);
    return context_.make_string(std::string(name));
  }

  Value find_argument(std::string_view name) {
    if (name.empty() || is_number(name)) {
      const int order = name.empty() ? 1 : 2;
      if (std::exchange(order_, order) == 3 - order) {
        context_.fail("fields are numbered all or none");
      }
      const int64_t index = name.empty() ? next_++ : take_number(context_, name);
      if (static_cast<size_t>(index) >= arguments_.positional.size()) {
        context_.fail("not enough arguments for the format");
      }
      return arguments_.positional[static_cast<size_t>(index)];
    }
    for (const auto& [keyword, value] : arguments_.keyword) {
      if (keyword == name) return value;
    }
    context_.fail(fmt::format("the format has no argument '{}'", name.substr(0, 40)));
  }

  TemplateContext& context_;
  const Arguments& arguments_;
  int64_t next_ = 0;
  int order_ = 0;  // 1: by order, 2: by number
};

}  // namespace

Value format_percent(TemplateContext& context, std::string_view format,
                     const std::vector<Value>& arguments) {
  std::string out;
  size_t next = 0;
  for (size_t i = 0; i < format.size(); ++i) {
    const size_t percent = std::min(format.find('%', i), format.size());
    context.append(out, format.substr(i, percent - i));
    if (percent == format.size()) break;
    size_t end = percent + 1;
    while (end < format.size() &&
           std::string_view("-+ #0123456789.").find(format[end]) != format.npos) {
      ++end;
    }
    if (end == format.size()) context.fail("the format ends inside a '%'");
    const char letter = format[end];
    std::string directive(format.substr(percent, end - percent));
    if (letter == '%' && directive == "%") {
      context.append(out, "%");
    } else if (std::string_view("srdixXofFeEgG").find(letter) == format.npos ||
               directive.size() > 6) {
      context.fail(fmt::format("format '{}{}' is not supported", directive.substr(0, 8), letter));
    } else {
      if (next == arguments.size()) context.fail("not enough arguments for the format");
      context.append(out,
                     format_directive(context, std::move(directive), letter, arguments[next++]));
    }
    i = end;
  }
  if (next < arguments.size()) context.fail("too many arguments for the format");
  return context.make_string(std::move(out));
}

Value format_braces(TemplateContext& context, std::string_view format, const Arguments& arguments) {
  FieldFinder fields(context, arguments);
  std::string out;
  while (!format.empty()) {
    const size_t brace = std::min(format.find_first_of("{}"), format.size());
    context.append(out, format.substr(0, brace));
    format.remove_prefix(brace);
    if (format.empty()) break;
    if (format.size() > 1 && format[1] == format[0]) {  // {{ is {
      context.append(out, format.substr(0, 1));
      format.remove_prefix(2);
      continue;
    }
    const size_t end = format.find('}');
    const std::string_view field = format.substr(1, end == format.npos ? 0 : end - 1);
    if (format[0] == '}' || end == format.npos || field.find('{') != field.npos) {
      context.fail("a brace of the format is alone, or fields are nested");
    }
    const std::string_view name = field.substr(0, field.find_first_of("!:"));
    std::string_view rest = field.substr(name.size());
    Value value = fields.find(name);
    if (rest.starts_with('!')) {
      if (rest.size() < 2 || (rest[1] != 's' && rest[1] != 'r')) context.fail("only !s and !r");
      std::string text;
      if (rest[1] == 'r' && value.is_string()) {
        text = python_repr(value.text());
      } else {
        append_string(context, value, text);
      }
      value = context.make_string(std::move(text));
      rest.remove_prefix(2);
      if (!rest.empty() && rest[0] != ':') context.fail("':' is missing behind '!'");
    }
    context.append(out, format_value(context, value, rest.empty() ? rest : rest.substr(1)));
    format.remove_prefix(end + 1);
  }
  return context.make_string(std::move(out));
}

}  // namespace headrace
