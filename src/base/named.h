// The values of an enum and what flags, messages and reports call them: one table for each enum,
// beside the enum. The first name of a value is its own; others may mean it too.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

template <class T>
struct Named {
  std::string_view name;
  T value;
};

// The value that is called `name`; empty: none is.
template <class T, size_t N>
std::optional<T> value_named(const Named<T> (&table)[N], std::string_view name) {
  for (const Named<T>& row : table) {
    if (row.name == name) return row.value;
  }
  return std::nullopt;
}

// Empty where the table has no such value.
template <class T, size_t N>
std::string_view name_of(const Named<T> (&table)[N], const T& value) {
  for (const Named<T>& row : table) {
    if (row.value == value) return row.name;
  }
  return {};
}

// All names, in the table's order.
template <class T, size_t N>
std::vector<std::string> names_of(const Named<T> (&table)[N]) {
  std::vector<std::string> names;
  for (const Named<T>& row : table) names.emplace_back(row.name);
  return names;
}

}  // namespace headrace
