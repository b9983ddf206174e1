// Attention of DeepSeek V4 (DeepSeek-AI, 2026): one key a token for all heads, which is the value,
// too; a row attends those of a window and, in most layers, keys that several tokens share
// (parts/key_compressor.h), all of them or those that an index chooses, and each head a sink. What
// heads see is turned back by the row's angle, so that it is of positions relative to the row, and
// goes through products by groups of heads, then one of all groups.
#pragma once

#include <memory>

#include "models/parts/key_compressor.h"
#include "models/parts/layer_part.h"

namespace headrace {

struct CompressedAttentionSpec {
  int32_t heads = 0;
  int32_t head_dim = 0;
  int32_t query_rank = 0;
  int32_t rope = 0;  // index into DecoderSpec::ropes, of the last pairs of a head's components
  int32_t window = 0;
  float scale = 0.0f;
  float norm_eps = 0.0f;
  int32_t groups = 0;      // of heads; divides them
  int32_t group_rank = 0;  // of what a group's product makes
  KeyCompressorSpec compressor;

  int32_t group_heads() const { return heads / groups; }
};

std::unique_ptr<Mixer> make_part(const CompressedAttentionSpec& spec, int64_t hidden);

}  // namespace headrace
