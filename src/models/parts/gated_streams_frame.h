// What a layer of Qwen 4 does around its mixer and its network: each reads one row of N streams of
// rows, and what it makes is added to all of them (parts/gated_streams.h).
#pragma once

#include <memory>

#include "models/parts/carried_rows.h"
#include "models/parts/layer_frame.h"

namespace headrace {

struct GatedStreamsSpec {
  CarriedSpec carried;
};

std::unique_ptr<LayerFrame> make_frame(const GatedStreamsSpec& spec, int64_t hidden);

}  // namespace headrace
