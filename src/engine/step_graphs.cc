#include "engine/step_graphs.h"

namespace headrace {

int32_t StepGraphs::padded_rows(int32_t rows, int32_t rows_max) {
  int32_t padded = 1;
  while (padded < rows && padded < 8) padded *= 2;
  const int32_t grain = rows <= 64 ? 8 : 16;
  if (padded < rows) padded = (rows + grain - 1) / grain * grain;
  return padded <= rows_max ? padded : 0;
}

}  // namespace headrace
