#include "ops/vec16_avx512.h"
// The bodies are written in the vocabulary above.
#include "ops/linear/lora_linear_vec16.h"

namespace headrace {

const LoraRowKernels kLoraAvx512 = {shrink_any, expand_any};

}  // namespace headrace
