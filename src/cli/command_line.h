// What every subcommand's command line has in common: spellings, sizes, errors and help.
//
// Spellings: --max-model-len and --max_model_len are one flag; names of several letters are also
// found behind one dash (-np, -ub), as llama.cpp's scripts write them. The last value wins. Every
// switch has a twin, --no-x. A flag with JSON may come by its members, as vLLM's do: --flag.key
// value, --flag.key.inner value, --flag.list+ value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/named.h"
#include "base/status.h"
#include "cli/subcommand.h"

namespace headrace {

// "512", "1k" = 1000, "1K" = 1024, "25.6k" = 25600; also m/M, g/G, t/T. Fractions only before the
// decimal (small) letters. kInvalidArgument for anything else and beyond int64.
Result<int64_t> parse_size(std::string_view text);

// "1,2,4" -> {1, 2, 4}, each as parse_size(). kInvalidArgument for empty items.
Result<std::vector<int64_t>> parse_size_list(std::string_view text);

// A validator that rewrites sizes to plain digits and refuses values outside [low, high].
CLI::Validator size_between(int64_t low, int64_t high);

// A validator that refuses numbers outside [low, high], and NaN.
CLI::Validator number_between(double low, double high);

// A validator that refuses what is no number above 0.
CLI::Validator number_above_zero();

// The word of `known` that somebody who wrote `word` may have meant; empty: none is near.
std::string nearest_word(const std::vector<std::string>& known, std::string_view word);

// A flag whose value is one of the table's, by its name. The table outlives the app.
template <class T, size_t N>
CLI::Option* add_choice(CLI::App& app, const std::string& names, T& value,
                        const Named<T> (&table)[N], const std::string& description) {
  const auto read = [&value, &table](const std::string& name) {
    value = *value_named(table, name);
  };
  return app.add_option_function<std::string>(names, read, description)
      ->check(CLI::IsMember(names_of(table)))
      ->default_str(std::string(name_of(table, value)));
}

// A flag whose value is the name of a row of some table (a policy, a rule of eviction).
CLI::Option* add_choice(CLI::App& app, const std::string& names, std::string& value,
                        std::vector<std::string> choices, const std::string& description);

// An application whose help shows the defaults of the flags that are added to it.
std::unique_ptr<CLI::App> make_app(const Subcommand& subcommand);

enum class ParseOutcome { kRun, kHelp };

// Reads the arguments after the subcommand's name into the variables bound to `app`; kHelp: help
// was asked for. kInvalidArgument names the flag.
Result<ParseOutcome> parse_arguments(CLI::App& app, std::vector<std::string> arguments);

// Arguments in the one spelling that `app` knows.
std::vector<std::string> normalise_arguments(const CLI::App& app,
                                             std::vector<std::string> arguments);

// The help page of a subcommand, for people: groups of flags, one description a line.
std::string help_page(const CLI::App& app);

// The values a flag allows, when it has a closed list of them (see add_choice).
std::vector<std::string> choices_of(const CLI::Option& option);

}  // namespace headrace
