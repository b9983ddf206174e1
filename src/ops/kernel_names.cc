#include "ops/kernel_names.h"

#include "ops/op_list.h"

namespace headrace {

std::vector<std::string_view> kernel_names() {
  std::vector<std::string_view> names;
  const auto add = [&](const auto& kernels) {
    for (const auto& kernel : kernels.all()) names.push_back(kernel.name);
  };
#define HR_ADD_NAMES(op, Args) add(op##_kernels());
  HR_OPS(HR_ADD_NAMES)
#undef HR_ADD_NAMES
  return names;
}

}  // namespace headrace
