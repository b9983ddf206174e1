// Attention by panels over emulated tiles: for tests.
// Compiled with those flags: include nothing that has inline functions shared with other files.
#include <immintrin.h>

#include "ops/amx_emulation.h"
#include "ops/attention/panel.h"

namespace headrace {
namespace {

#include "ops/amx_tiles_emulated.inc"
#include "ops/attention/panel_amx.inc"

#include "ops/attention/panel.inc"

}  // namespace

void attend_panel_amx_emulated(const AttentionPanel& panel) {
  const TileScope scope;
  PanelLoops loops(panel);
  loops.run();
}

}  // namespace headrace
