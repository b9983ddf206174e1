#include "cli/command_line.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"

namespace headrace {
namespace {

constexpr size_t kHelpColumn = 30;  // where descriptions begin
constexpr size_t kHelpWidth = 100;
constexpr const char* kLastGroup = "Other";

struct SizeUnit {
  char letter;
  double factor;
};
constexpr SizeUnit kSizeUnits[] = {
    {'k', 1e3},    {'m', 1e6},       {'g', 1e9},          {'t', 1e12},
    {'K', 1024.0}, {'M', 1048576.0}, {'G', 1073741824.0}, {'T', 1099511627776.0},
};

Status bad_size(std::string_view text) {
  return invalid_argument(fmt::format(
      "'{}' is not a size: expected a number such as 512, 4k (4000) or 4K (4096)", text));
}

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
}

// The part of "--flag=value" before '='.
std::string_view flag_name(std::string_view argument) {
  return argument.substr(0, argument.find('='));
}

bool is_word(std::string_view text) {
  return text.size() >= 2 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::islower(c) != 0 || c == '-' || c == '_';
         });
}

std::string normalise_argument(const CLI::App& app, std::string argument) {
  const std::string name(flag_name(argument));
  if (name.starts_with("--")) {
    std::replace(argument.begin(), argument.begin() + static_cast<ptrdiff_t>(name.size()), '_',
                 '-');
    return argument;
  }
  const bool dash_word = name.starts_with('-') && is_word(std::string_view(name).substr(1));
  if (dash_word && app.get_option_no_throw("-" + name) != nullptr) return "-" + argument;
  return argument;
}

bool is_switch(const CLI::Option* option) {
  return option != nullptr && option->get_items_expected_max() == 0;
}

// "--no-x" of a switch that has no such twin of its own: "--x=false".
std::string with_twin_as_value(const CLI::App& app, std::string argument) {
  constexpr std::string_view kNo = "--no-";
  if (!argument.starts_with(kNo) || app.get_option_no_throw(argument) != nullptr) return argument;
  const std::string name = "--" + argument.substr(kNo.size());
  return is_switch(app.get_option_no_throw(name)) ? name + "=false" : argument;
}

// vLLM's short form of a flag with JSON, "--flag.key.inner value", where "key+" adds to a list.
struct DottedFlag {
  std::string flag, path;
  std::optional<std::string> value;  // behind '='
};

std::optional<DottedFlag> dotted_flag(const CLI::App& app, const std::string& argument) {
  const std::string name(flag_name(argument));
  const size_t dot = name.find('.');
  if (!name.starts_with('-') || dot == name.npos || dot + 1 == name.size()) return std::nullopt;
  DottedFlag dotted{.flag = normalise_argument(app, name.substr(0, dot)),
                    .path = name.substr(dot + 1)};
  const CLI::Option* option = app.get_option_no_throw(dotted.flag);
  if (option == nullptr || is_switch(option)) return std::nullopt;
  if (name.size() < argument.size()) dotted.value = argument.substr(name.size() + 1);
  return dotted;
}

void put_at_path(Json& object, std::string_view path, Json value) {
  const size_t dot = path.find('.');
  std::string_view key = path.substr(0, dot);
  const bool adds = dot == path.npos && key.ends_with('+');
  if (adds) key.remove_suffix(1);
  const Json* there = object.find(key);
  Json member = there ? *there : Json();
  if (adds) {
    if (!member.is_array()) member = Json::array();
    member.push(std::move(value));
  } else if (dot == path.npos) {
    member = std::move(value);
  } else {
    if (!member.is_object()) member = Json::object();
    put_at_path(member, path.substr(dot + 1), std::move(value));
  }
  object.set(key, std::move(member));
}

// Each flag whose members come apart is given once, as a whole, at the place of the first.
std::vector<std::string> with_members_joined(const CLI::App& app,
                                             std::vector<std::string> arguments) {
  std::vector<std::string> result;
  std::map<std::string, std::pair<size_t, Json>> wholes;  // by flag: place in `result`
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--") {
      std::move(arguments.begin() + static_cast<ptrdiff_t>(i), arguments.end(),
                std::back_inserter(result));
      break;
    }
    std::optional<DottedFlag> dotted = dotted_flag(app, arguments[i]);
    if (dotted && !dotted->value && i + 1 < arguments.size()) dotted->value = arguments[++i];
    if (!dotted || !dotted->value) {
      result.push_back(std::move(arguments[i]));
      continue;
    }
    const auto [whole, made] = wholes.try_emplace(dotted->flag, result.size(), Json::object());
    if (made) result.emplace_back();
    Result<Json> value = parse_json(*dotted->value);
    put_at_path(whole->second.second, dotted->path, value.ok() ? *value : Json(*dotted->value));
  }
  for (const auto& [flag, whole] : wholes)
    result[whole.first] = flag + "=" + write_json(whole.second);
  return result;
}

// Whether `option` may stand without a value, and has a closed list of them.
bool takes_optional_word(const CLI::Option* option) {
  return option != nullptr && option->get_items_expected_min() == 0 &&
         option->get_items_expected_max() == 1 && !choices_of(*option).empty();
}

// "--fa" before what is none of its words becomes "--fa=on", and "--fa off" "--fa=off": CLI11 would
// take the model behind it for its value.
std::vector<std::string> with_words_joined(const CLI::App& app,
                                           std::vector<std::string> arguments) {
  std::vector<std::string> result;
  for (size_t i = 0; i < arguments.size(); ++i) {
    result.push_back(std::move(arguments[i]));
    if (result.back() == "--") {
      std::move(arguments.begin() + static_cast<ptrdiff_t>(i) + 1, arguments.end(),
                std::back_inserter(result));
      break;
    }
    const CLI::Option* option = app.get_option_no_throw(result.back());
    if (!result.back().starts_with('-') || !takes_optional_word(option)) continue;
    const std::vector<std::string> words = choices_of(*option);
    const bool word_follows =
        i + 1 < arguments.size() &&
        std::find(words.begin(), words.end(), arguments[i + 1]) != words.end();
    result.back() += "=" + (word_follows ? arguments[++i] : words.front());
  }
  return result;
}

// "cpu|cuda"; longer lists of choices stand in the description.
std::string short_choices(const CLI::Option& option) {
  const std::string list = fmt::format("{}", fmt::join(choices_of(option), "|"));
  return list.size() > kHelpWidth - kHelpColumn ? "NAME" : list;
}
std::string long_choices(const CLI::Option& option) {
  if (short_choices(option) != "NAME") return "";
  return fmt::format(": {}", fmt::join(choices_of(option), ", "));
}

// "-m, --model FILE"
std::string option_heading(const CLI::Option& option) {
  const std::string type = option.get_type_name();  // "N:INT in [1 - 9]": the range is in errors
  std::string value = option.get_items_expected_max() == 0 ? "" : type.substr(0, type.find(':'));
  if (!choices_of(option).empty()) value = short_choices(option);
  if (option.get_lnames().empty() && option.get_snames().empty()) return option.get_name(true);
  std::string heading = option.get_snames().empty() ? "    " : "-" + option.get_snames()[0];
  if (!option.get_lnames().empty()) {
    if (!option.get_snames().empty()) heading += ", ";
    heading += "--" + option.get_lnames()[0];
  }
  if (!value.empty()) heading += " " + value;
  return heading;
}

// " (also --ctx-size, -c) (off: --no-overlap)"
std::string option_aliases(const CLI::Option& option) {
  std::vector<std::string> names, off;
  const auto& longs = option.get_lnames();
  const auto& shorts = option.get_snames();
  const auto& negated = option.get_fnames();
  for (size_t i = 0; i < longs.size(); ++i) {
    const bool is_off = std::find(negated.begin(), negated.end(), longs[i]) != negated.end();
    if (is_off || i > 0) (is_off ? off : names).push_back("--" + longs[i]);
  }
  for (size_t i = 1; i < shorts.size(); ++i) names.push_back("-" + shorts[i]);
  const std::string also = names.empty() ? "" : fmt::format(" (also {})", fmt::join(names, ", "));
  return also + (off.empty() ? "" : fmt::format(" (off: {})", fmt::join(off, ", ")));
}

// " (default 64)", where the description does not tell it in words
std::string option_default(const CLI::Option& option) {
  const std::string value = option.get_default_str();
  const bool told = option.get_description().find("default") != std::string::npos;
  const bool list = option.get_items_expected_max() != 1;
  return value.empty() || told || list ? "" : fmt::format(" (default {})", value);
}

// Appends `text` from column kHelpColumn on, broken at spaces.
void append_wrapped(std::string& page, std::string_view text) {
  const size_t width = kHelpWidth - kHelpColumn;
  while (text.size() > width) {
    size_t cut = text.rfind(' ', width);
    if (cut == std::string_view::npos) cut = width;
    page.append(text.substr(0, cut)).append("\n").append(kHelpColumn, ' ');
    text.remove_prefix(std::min(cut + 1, text.size()));
  }
  page.append(text).append("\n");
}

void append_option(std::string& page, const CLI::Option& option) {
  const std::string heading = "  " + option_heading(option);
  page += heading;
  if (heading.size() + 2 > kHelpColumn) {
    page.append("\n").append(kHelpColumn, ' ');
  } else {
    page.append(kHelpColumn - heading.size(), ' ');
  }
  append_wrapped(page, option.get_description() + long_choices(option) + option_default(option) +
                           option_aliases(option));
}

// Letters to add, drop or change (Levenshtein).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, changed}));
    }
  }
  return row.back();
}

std::vector<std::string> shown_flags(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

// Of the first argument that `app` does not take.
std::string unexpected_argument(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    const std::string name(flag_name(argument));
    const bool is_flag = name.size() > 1 && name[0] == '-' && !all_digits(name.substr(1, 1));
    if (!is_flag || app.get_option_no_throw(name) != nullptr) continue;
    const std::string near =
        nearest_word(shown_flags(app), std::string_view(name).substr(name.find_first_not_of('-')));
    return fmt::format("there is no flag {}{}", name,
                       near.empty() ? "" : fmt::format("; did you mean --{}?", near));
  }
  return fmt::format("'{}' was not expected", app.remaining().back());
}

}  // namespace

Result<int64_t> parse_size(std::string_view text) {
  std::string_view digits = text;
  double factor = 1;
  bool decimal = false;
  for (const SizeUnit& unit : kSizeUnits) {
    if (text.empty() || text.back() != unit.letter) continue;
    digits.remove_suffix(1);
    factor = unit.factor;
    decimal = std::islower(static_cast<unsigned char>(unit.letter)) != 0;
  }
  const size_t point = digits.find('.');
  if (point != std::string_view::npos && !decimal) return bad_size(text);
  if (!all_digits(digits.substr(0, point))) return bad_size(text);
  if (point != std::string_view::npos && !all_digits(digits.substr(point + 1))) {
    return bad_size(text);
  }
  if (factor == 1) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), value);
    return error == std::errc() ? Result<int64_t>(value) : Result<int64_t>(bad_size(text));
  }
  double number = 0;
  std::from_chars(digits.begin(), digits.end(), number);
  const double value = std::round(number * factor);
  if (!(value < 0x1p63)) return bad_size(text);
  return static_cast<int64_t>(value);
}

Result<std::vector<int64_t>> parse_size_list(std::string_view text) {
  std::vector<int64_t> values;
  while (true) {
    const size_t comma = text.find(',');
    HR_ASSIGN_OR_RETURN(const int64_t value, parse_size(text.substr(0, comma)));
    values.push_back(value);
    if (comma == std::string_view::npos) return values;
    text.remove_prefix(comma + 1);
  }
}

CLI::Validator size_between(int64_t low, int64_t high) {
  return CLI::Validator(
      [low, high](std::string& text) -> std::string {
        const Result<int64_t> size = parse_size(text);
        if (!size.ok()) return size.status().message();
        if (*size < low || *size > high) {
          return fmt::format("{} is outside {} to {}", text, low, high);
        }
        text = std::to_string(*size);
        return {};
      },
      "");
}

CLI::Validator number_between(double low, double high) {
  return CLI::Validator(
      [low, high](std::string& text) -> std::string {
        double value = 0;
        const bool good = CLI::detail::lexical_cast(text, value) && value >= low && value <= high;
        return good ? "" : fmt::format("{} is no number from {} to {}", text, low, high);
      },
      "");
}

CLI::Validator number_above_zero() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        double value = 0;
        const bool good =
            CLI::detail::lexical_cast(text, value) && value > 0 && std::isfinite(value);
        return good ? "" : fmt::format("{} is no number above 0", text);
      },
      "");
}

std::string nearest_word(const std::vector<std::string>& known, std::string_view word) {
  std::string nearest;
  size_t least = std::max<size_t>(1, word.size() / 4) + 1;
  for (const std::string& candidate : known) {
    const bool begins = candidate.starts_with(word) || word.starts_with(candidate);
    const size_t distance = begins ? 1 : edit_distance(word, candidate);
    if (distance < least) nearest = candidate, least = distance;
  }
  return nearest;
}

CLI::Option* add_choice(CLI::App& app, const std::string& names, std::string& value,
                        std::vector<std::string> choices, const std::string& description) {
  return app.add_option(names, value, description)->check(CLI::IsMember(std::move(choices)));
}

std::vector<std::string> choices_of(const CLI::Option& option) {
  // IsMember writes its values into the type: "TEXT:{auto,cpu}".
  const std::string type = option.get_type_name();
  const size_t open = type.find('{');
  const size_t close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos) return {};
  return CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
}

std::vector<std::string> normalise_arguments(const CLI::App& app,
                                             std::vector<std::string> arguments) {
  arguments = with_members_joined(app, std::move(arguments));
  for (std::string& argument : arguments) {
    if (argument == "--") break;
    argument = with_twin_as_value(app, normalise_argument(app, std::move(argument)));
  }
  return with_words_joined(app, std::move(arguments));
}

std::unique_ptr<CLI::App> make_app(const Subcommand& subcommand) {
  auto app =
      std::make_unique<CLI::App>(std::string(subcommand.summary), std::string(subcommand.name));
  app->option_defaults()->always_capture_default();
  app->set_help_flag("-h,--help", "This page")->group(kLastGroup);
  return app;
}

Result<ParseOutcome> parse_arguments(CLI::App& app, std::vector<std::string> arguments) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() == 1) option->take_last();
  }
  arguments = normalise_arguments(app, std::move(arguments));
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants them
  const auto failure = [&](std::string_view what) {
    return invalid_argument(fmt::format("{} (see 'headrace {} --help')", what, app.get_name()));
  };
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    return ParseOutcome::kHelp;
  } catch (const CLI::FileError& error) {
    return invalid_argument(fmt::format("--config: {}", error.what()));
  } catch (const CLI::ExtrasError&) {
    return failure(unexpected_argument(app, arguments));
  } catch (const CLI::ParseError& error) {
    // CLI11 has no name for a hidden flag that lacks its value, which is the last argument then.
    const std::string what = error.what();
    return failure(what.starts_with(": ") && !arguments.empty() ? arguments.back() + what : what);
  }
  return ParseOutcome::kRun;
}

std::string help_page(const CLI::App& app) {
  std::string page = fmt::format("Usage: headrace {}", app.get_name());
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    const std::string name = option->get_name(true);
    page += option->get_required() ? " " + name : " [" + name + "]";
  }
  page += " [flags]";
  page += fmt::format("\n\n  {}\n", app.get_description());
  std::vector<std::string> groups = app.get_groups();
  std::stable_partition(groups.begin(), groups.end(),
                        [](const std::string& group) { return group != kLastGroup; });
  for (const std::string& group : groups) {
    if (group.empty()) continue;  // hidden
    page += fmt::format("\n{}:\n", group);
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_group() == group) append_option(page, *option);
    }
  }
  if (!app.get_footer().empty()) page += "\n" + app.get_footer() + "\n";
  return page;
}

}  // namespace headrace
