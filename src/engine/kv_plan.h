// KvPlan: which layers share a page, and how large pages are.
//
// Layers of one kind (same window, same heads of the same sizes and formats) keep the same tokens,
// so they share block lists: a KV group. All groups draw on one pool of equal pages. Where a model
// has several kinds (5 layers with full attention beside 29 that slide), a page that holds all
// layers of the largest would lie mostly empty under the others. So each kind is split into groups
// of as many layers as a page holds, and the size of a page is chosen such that little stays empty
// (docs/decisions/0029-kv-groups-of-equal-pages.md). A model of one kind has one group. So has one
// of which no layer keeps anything of a token: its pages, of the least size, say where a sequence
// has come to, for the prefix cache as for the scheduler.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kv/kv_group.h"
#include "models/model.h"

namespace headrace {

// Layers that attend alike. Their groups follow one another.
struct KvLayerKind {
  LayerKv kv;
  int32_t layer_count = 0;
  int64_t layer_bytes = 0;  // of one layer in a page
  int32_t group_first = 0;
  int32_t group_count = 0;
  int32_t group_end() const { return group_first + group_count; }
};

struct KvPlan {
  KvFormats formats;  // of layers that have none of their own
  int32_t block_tokens = 16;
  int64_t page_bytes = 0;
  std::vector<KvLayerKind> kinds;     // by their first layer
  std::vector<KvGroupSpec> groups;    // of all kinds, one kind behind the other
  std::vector<int32_t> layer_group;   // [layers] index into groups; 0 of one that keeps nothing
  std::vector<int64_t> layer_offset;  // [layers] bytes from a page's start to the layer's K part

  // Whether some layer keeps something of a token; else pages are places alone.
  bool keeps_tokens() const;
  // What a sequence takes of the pool for each token until windows pass: a slot in every group,
  // empty parts of pages included.
  int64_t bytes_per_token() const;
  // What a sequence of `tokens` tokens holds while a decode computes the last of them: whole pages
  // in every group, of sliding groups those that the token sees.
  int64_t held_bytes(int64_t tokens) const;
  // Of that, the keys and values that the token sees, itself included: the least that any layout
  // could hold.
  int64_t seen_bytes(int64_t tokens) const;
  // Of numbers in columns: what each page has beside the pool, where a layer of it is unpacked to
  // 16 bits (KvLayerView::unpacked); else 0.
  int64_t unpacked_page_bytes() const;
  // How layers lie in pages, as text: equal for equal layouts of the same model.
  std::string layout() const;
  // One line: pages, groups, and what a sequence of `tokens` tokens holds.
  std::string to_string(int64_t tokens) const;
};

// What a model and its draft keep of a token together: the draft's layers behind the model's. A
// draft keeps what a window has passed too, since it may compute tokens long after the model.
ModelSpec with_draft(const ModelSpec& model, const ModelSpec& draft);
// With layers behind these in which a row of `width` numbers a token is kept as keys and values of
// `kind`, whatever window that has.
ModelSpec with_rows(const ModelSpec& model, LayerKv kind, int64_t width);
KvPlan plan_kv(const ModelSpec& spec, KvFormats formats, int32_t block_tokens);
// Of a rank that keeps `spec.kv` of what `whole` is planned for: the same groups of the same
// layers, in pages of its own size.
KvPlan plan_kv_of_rank(const KvPlan& whole, const ModelSpec& spec);

}  // namespace headrace
