// The text that quantisers measure by where none is given: a page of many kinds of writing
// (calibration.txt) and this project's own pages, all of them written for it.
#pragma once

#include <string_view>

namespace headrace {

std::string_view default_calibration_text();

}  // namespace headrace
