// What a layer of Hunyuan V4 or DeepSeek V4 does around its mixer and its network: of N streams of
// rows each part reads one row, which gates make of all, and what it makes is added to each by
// another gate, of DeepSeek's streams that a matrix has mixed (ops/rows/hyper_connection.h).
#pragma once

#include <memory>

#include "models/parts/carried_rows.h"
#include "models/parts/layer_frame.h"

namespace headrace {

struct HyperSpec {
  CarriedSpec carried;
  float magnitude = 1.0f;  // of the gates of what is added
};

std::unique_ptr<LayerFrame> make_frame(const HyperSpec& spec, int64_t hidden);

}  // namespace headrace
