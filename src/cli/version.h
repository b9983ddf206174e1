// What this binary was built from.
#pragma once

#include <string_view>

namespace headrace {

std::string_view program_version();  // "0.1.0"
std::string_view build_commit();     // short hash, "unknown" outside a checkout
int build_number();                  // commits up to it, 0 outside a checkout

}  // namespace headrace
