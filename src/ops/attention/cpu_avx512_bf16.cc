// Attention by panels with vdpbf16ps.
// Compiled with those flags: include nothing that has inline functions shared with other files.
#include <immintrin.h>

#include "ops/attention/panel.h"

namespace headrace {
namespace {

#include "ops/attention/panel_dot.inc"

#include "ops/attention/panel.inc"

}  // namespace

void attend_panel_avx512_bf16(const AttentionPanel& panel) {
  PanelLoops loops(panel);
  loops.run();
}

}  // namespace headrace
