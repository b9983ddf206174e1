// A segment of a packed weight as tests of the plans need it: no data.
#pragma once

#include "ops/linear/linear.h"

namespace headrace {

inline LinearWeight::Segment segment_of(DType type, int64_t groups) {
  LinearWeight::Segment segment{};
  segment.dtype = type;
  segment.row_count = kLinearGroupRows * groups;
  segment.group_count = groups;
  return segment;
}

}  // namespace headrace
