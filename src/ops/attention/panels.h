// A batch as panels (panel.h) on the threads of the pool; sequences of few rows as tiles
// (tiles.h).
#pragma once

#include "ops/attention/attention.h"
#include "ops/attention/panel.h"

namespace headrace {

// Whether panels cover these arguments, and some sequence has rows enough for one.
bool fits_attention_panels(const AttentionArgs& args);

// `attend_split` does the sequences of few rows.
void run_attention_panels(OpContext& context, const AttentionArgs& args, AttendPanel attend_panel,
                          AttendSplit attend_split);

}  // namespace headrace
