// Every op, so that what is said of all of them is said once: its name, whose kernels are
// name_kernels(), and its arguments. A new op is an include and a row.
#pragma once

#include "ops/attention/attention.h"
#include "ops/attention/compress_keys.h"
#include "ops/attention/full_attention.h"
#include "ops/attention/gather_keys.h"
#include "ops/attention/index_keys.h"
#include "ops/attention/latent_kv.h"
#include "ops/attention/page_rows.h"
#include "ops/attention/pool_index_keys.h"
#include "ops/attention/rope_attention.h"
#include "ops/attention/rope_kv.h"
#include "ops/attention/select_blocks.h"
#include "ops/attention/select_keys.h"
#include "ops/linear/activated_linear.h"
#include "ops/linear/gated_linear.h"
#include "ops/linear/grouped_linear.h"
#include "ops/linear/head_linear.h"
#include "ops/linear/linear.h"
#include "ops/linear/lora_linear.h"
#include "ops/linear/norm_linear.h"
#include "ops/linear/norm_route.h"
#include "ops/linear/residual_linear.h"
#include "ops/rows/activation.h"
#include "ops/rows/altup.h"
#include "ops/rows/cut_gates.h"
#include "ops/rows/embedding.h"
#include "ops/rows/gated_norm.h"
#include "ops/rows/hyper_connection.h"
#include "ops/rows/layer_norm.h"
#include "ops/rows/match_size.h"
#include "ops/rows/norm_add.h"
#include "ops/rows/residual_add.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/rope_angles.h"
#include "ops/rows/rotate_tails.h"
#include "ops/rows/route_experts.h"
#include "ops/rows/row_gather.h"
#include "ops/rows/row_gather_sum.h"
#include "ops/rows/row_scatter_add.h"
#include "ops/rows/scale_queries.h"
#include "ops/rows/scale_rows.h"
#include "ops/rows/sigmoid_gate.h"
#include "ops/rows/soft_cap.h"
#include "ops/sampling/device_sample.h"
#include "ops/sampling/sample.h"
#include "ops/sampling/slot_state.h"
#include "ops/sampling/spread_logits.h"
#include "ops/states/causal_conv.h"
#include "ops/states/delta_rule.h"
#include "ops/states/kimi_delta.h"
#include "ops/states/rg_lru.h"
#include "ops/states/selective_scan.h"
#include "ops/states/ssd_scan.h"
#include "ops/states/token_shift.h"
#include "ops/states/wkv7.h"

// Those with a table on CUDA, name_cuda_kernels().
#define HR_OPS_ON_CUDA(OP)                   \
  OP(activated_linear, ActivatedLinearArgs)  \
  OP(activation, ActivationArgs)             \
  OP(altup_correct, AltUpCorrectArgs)        \
  OP(altup_predict, AltUpPredictArgs)        \
  OP(attention, AttentionArgs)               \
  OP(causal_conv, CausalConvArgs)            \
  OP(cut_gates, CutGatesArgs)                \
  OP(delta_rule, DeltaRuleArgs)              \
  OP(device_sample, DeviceSampleArgs)        \
  OP(embedding, EmbeddingArgs)               \
  OP(gated_activation, GatedActivationArgs)  \
  OP(gated_linear, GatedLinearArgs)          \
  OP(gated_norm, GatedNormArgs)              \
  OP(gather_keys, GatherKeysArgs)            \
  OP(grouped_linear, GroupedLinearArgs)      \
  OP(head_linear, HeadLinearArgs)            \
  OP(index_keys, IndexKeysArgs)              \
  OP(kimi_delta, KimiDeltaArgs)              \
  OP(latent_kv, LatentKvArgs)                \
  OP(layer_norm, LayerNormArgs)              \
  OP(linear, LinearArgs)                     \
  OP(lora_linear, LoraLinearArgs)            \
  OP(match_size, MatchSizeArgs)              \
  OP(norm_add, NormAddArgs)                  \
  OP(norm_gated_linear, NormGatedLinearArgs) \
  OP(norm_linear, NormLinearArgs)            \
  OP(norm_route, NormRouteArgs)              \
  OP(page_rows, PageRowsArgs)                \
  OP(residual_add, ResidualAddArgs)          \
  OP(residual_linear, ResidualLinearArgs)    \
  OP(rg_lru, RgLruArgs)                      \
  OP(rms_norm, RmsNormArgs)                  \
  OP(rope_angles, RopeAnglesArgs)            \
  OP(rope_attention, RopeAttentionArgs)      \
  OP(rope_kv, RopeKvArgs)                    \
  OP(route_experts, RouteExpertsArgs)        \
  OP(row_gather, RowGatherArgs)              \
  OP(row_gather_sum, RowGatherSumArgs)       \
  OP(scale_queries, ScaleQueriesArgs)        \
  OP(scale_rows, ScaleRowsArgs)              \
  OP(select_keys, SelectKeysArgs)            \
  OP(selective_scan, SelectiveScanArgs)      \
  OP(sigmoid_gate, SigmoidGateArgs)          \
  OP(slot_state, SlotStateArgs)              \
  OP(soft_cap, SoftCapArgs)                  \
  OP(spread_logits, SpreadLogitsArgs)        \
  OP(ssd_scan, SsdScanArgs)                  \
  OP(token_shift, TokenShiftArgs)            \
  OP(wkv7, Wkv7Args)

#define HR_OPS(OP)                       \
  HR_OPS_ON_CUDA(OP)                     \
  OP(compress_keys, CompressKeysArgs)    \
  OP(full_attention, FullAttentionArgs)  \
  OP(hyper_add, HyperAddArgs)            \
  OP(hyper_mix, HyperMixArgs)            \
  OP(keep_sources, KeepSourcesArgs)      \
  OP(pool_index_keys, PoolIndexKeysArgs) \
  OP(rotate_tails, RotateTailsArgs)      \
  OP(row_scatter_add, RowScatterAddArgs) \
  OP(sample, SampleArgs)                 \
  OP(select_blocks, SelectBlocksArgs)    \
  OP(token_logprobs, TokenLogprobsArgs)
