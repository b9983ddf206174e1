// What a GPU can do at most: memory, the link to the host, the vendor library's matrix products of
// one layer. The figures that bench/roof.py makes roofs of.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "tensor/device.h"

namespace headrace {

struct CeilingRow {
  std::string name;  // "read"
  std::string of;    // "8192 MiB", "M 64"
  double value;
  std::string unit;
};

// `print` gets the rows as they are measured: medians of `repetitions`.
Status measure_device_ceilings(Device& device, int repetitions,
                               const std::function<void(const CeilingRow&)>& print);

}  // namespace headrace
