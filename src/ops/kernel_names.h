// The names of all kernels of this build, for who prefers some of them (OpHooks).
#pragma once

#include <string_view>
#include <vector>

namespace headrace {

std::vector<std::string_view> kernel_names();

}  // namespace headrace
