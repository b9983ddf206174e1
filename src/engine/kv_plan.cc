#include "engine/kv_plan.h"

#include <algorithm>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kv/kv_demand.h"

namespace headrace {
namespace {

// A page is as large as is best for sequences of so many tokens, or of the model's context where
// that is shorter.
constexpr int64_t kStatedTokens = 32768;
// A group costs the host some time a step, a block table and a list of slots: it must save this
// part of what such a sequence holds.
constexpr int64_t kGroupSaves = 200;
constexpr int32_t kGroupsMax = 32;
// Keys are read in whole cache lines: 64 bytes on the CPU, 128 on GPUs.
constexpr int64_t kPageAlignment = 128;

int64_t aligned(int64_t bytes) {
  return (bytes + kPageAlignment - 1) / kPageAlignment * kPageAlignment;
}

// The tokens whose keys and values a layer keeps.
int64_t seen_tokens(const LayerKv& kv, int64_t tokens) {
  return kv.window > 0 ? std::min<int64_t>(kv.window, tokens) : tokens;
}

// Of one layer in a page.
int64_t layer_bytes(const LayerKv& layer, KvFormats formats, int32_t block_tokens) {
  const KvLayerView kv = kv_view(layer, formats, KeyLayout::kTransposed, block_tokens);
  return layer_part_bytes(kv);
}

std::vector<KvLayerKind> kinds_of(const ModelSpec& spec, KvFormats formats, int32_t block_tokens) {
  std::vector<KvLayerKind> kinds;
  for (const LayerKv& kv : spec.kv) {
    if (kv.kv_heads == 0) continue;
    const auto found = std::find_if(kinds.begin(), kinds.end(),
                                    [&](const KvLayerKind& kind) { return kind.kv == kv; });
    KvLayerKind& kind = found == kinds.end()
                            ? kinds.emplace_back(KvLayerKind{
                                  .kv = kv, .layer_bytes = layer_bytes(kv, formats, block_tokens)})
                            : *found;
    CHECK_MSG(kind.layer_bytes > 0, "a layer of a KV plan keeps something");
    ++kind.layer_count;
  }
  return kinds;
}

int64_t groups_of(const KvLayerKind& kind, int64_t page_bytes) {
  const int64_t layers = page_bytes / kind.layer_bytes;
  return (kind.layer_count + layers - 1) / layers;
}

// What pages of one size cost a sequence of `tokens` tokens.
struct Layout {
  int64_t page_bytes = 0;
  int64_t groups = 0;
  double cost = 0;

  static Layout of(std::span<const KvLayerKind> kinds, int64_t page_bytes, int64_t tokens) {
    Layout layout{.page_bytes = page_bytes};
    int64_t pages = 0;  // times tokens of a page
    for (const KvLayerKind& kind : kinds) {
      const int64_t groups = groups_of(kind, page_bytes);
      layout.groups += groups;
      pages += groups * seen_tokens(kind.kv, tokens);
    }
    layout.cost =
        static_cast<double>(pages * page_bytes) * static_cast<double>(kGroupSaves + layout.groups);
    return layout;
  }
  // Few groups before many.
  bool better_than(const Layout& other) const {
    const bool few = groups <= kGroupsMax, other_few = other.groups <= kGroupsMax;
    return few != other_few ? few : cost < other.cost;
  }
};

// Pages hold whole layers of some kind; one layer of the largest, at least.
int64_t best_page_bytes(std::span<const KvLayerKind> kinds, int64_t tokens) {
  int64_t page_min = 0;
  for (const KvLayerKind& kind : kinds) page_min = std::max(page_min, kind.layer_bytes);
  std::optional<Layout> best;
  for (const KvLayerKind& kind : kinds) {
    for (int32_t layers = 1; layers <= kind.layer_count; ++layers) {
      const int64_t bytes = aligned(layers * kind.layer_bytes);
      if (bytes < page_min) continue;
      const Layout layout = Layout::of(kinds, bytes, tokens);
      if (!best || layout.better_than(*best)) best = layout;
    }
  }
  return best ? best->page_bytes : 0;
}

// The next layer of a kind takes its place in the last group of it that has room.
void place_layer(KvPlan& plan, KvLayerKind& kind, int32_t layer) {
  const int64_t per_page = plan.page_bytes / kind.layer_bytes;
  int32_t group = kind.group_first;
  while (std::ssize(plan.groups[static_cast<size_t>(group)].layers) >= per_page) ++group;
  KvGroupSpec& spec = plan.groups[static_cast<size_t>(group)];
  spec.layers.push_back(layer);
  plan.layer_group.push_back(group);
  plan.layer_offset.push_back(spec.block_bytes);
  spec.block_bytes += kind.layer_bytes;
}

// The group of a model that keeps nothing of a token.
KvPlan plan_places(const ModelSpec& spec, KvFormats formats, int32_t block_tokens) {
  const auto layers = static_cast<size_t>(spec.layer_count);
  return {.formats = formats,
          .block_tokens = block_tokens,
          .page_bytes = kPageAlignment,
          .kinds = {KvLayerKind{.group_count = 1}},
          .groups = {{.kind = KvKind::kFull, .window = 0, .block_tokens = block_tokens}},
          .layer_group = std::vector<int32_t>(layers),
          .layer_offset = std::vector<int64_t>(layers)};
}

}  // namespace

bool KvPlan::keeps_tokens() const {
  return std::ranges::any_of(kinds, [](const KvLayerKind& kind) { return kind.layer_count > 0; });
}

int64_t KvPlan::bytes_per_token() const { return std::ssize(groups) * page_bytes / block_tokens; }

int64_t KvPlan::held_bytes(int64_t tokens) const {
  return pages_in_decode(groups, tokens) * page_bytes;
}

int64_t KvPlan::seen_bytes(int64_t tokens) const {
  int64_t bytes = 0;
  for (const KvLayerKind& kind : kinds) {
    bytes += kind.layer_count * kind.layer_bytes / block_tokens * seen_tokens(kind.kv, tokens);
  }
  return bytes;
}

int64_t KvPlan::unpacked_page_bytes() const {
  int64_t bytes = 0;
  for (const KvLayerKind& kind : kinds) {
    if (kind.layer_count == 0) continue;
    const KvLayerView kv = kv_view(kind.kv, formats, KeyLayout::kRows, block_tokens);
    if (!alike_in_columns(kv)) continue;
    bytes = std::max(bytes, unpacked_kv(kv, DType::kF16).block_stride);
  }
  return bytes;
}

std::string KvPlan::layout() const {
  std::vector<size_t> layers;
  for (const KvGroupSpec& group : groups) layers.push_back(group.layers.size());
  return fmt::format("{}", fmt::join(layers, "+"));
}

std::string KvPlan::to_string(int64_t tokens) const {
  constexpr double kMib = 1 << 20;
  if (!keeps_tokens()) {
    return fmt::format("pages of {} bytes, which hold no keys and values", page_bytes);
  }
  const auto held = static_cast<double>(held_bytes(tokens));
  return fmt::format(
      "pages of {:.1f} KiB, {} group{} of layers; a sequence of {} tokens holds {:.1f} MiB, {:.3f} "
      "of what it attends to",
      static_cast<double>(page_bytes) / 1024, groups.size(), groups.size() == 1 ? "" : "s", tokens,
      held / kMib, held / static_cast<double>(seen_bytes(tokens)));
}

ModelSpec with_draft(const ModelSpec& model, const ModelSpec& draft) {
  ModelSpec both = model;
  both.layer_count += draft.layer_count;
  if (!both.keys_of.empty()) both.keys_of.resize(static_cast<size_t>(both.layer_count), -1);
  for (LayerKv kv : draft.kv) {
    kv.window = kv.chunk = 0;
    both.kv.push_back(kv);
  }
  return both;
}

ModelSpec with_rows(const ModelSpec& model, LayerKv kind, int64_t width) {
  ModelSpec with = model;
  kind.window = kind.chunk = 0;
  const int64_t of_layer =
      kind.kv_heads * int64_t{kind.k_dim + (kind.v_aliases_k ? 0 : kind.v_dim)};
  CHECK(of_layer > 0);
  for (int64_t kept = 0; kept < width; kept += of_layer) {
    with.kv.push_back(kind);
    ++with.layer_count;
    if (!with.keys_of.empty()) with.keys_of.push_back(-1);
  }
  return with;
}

KvPlan plan_kv(const ModelSpec& spec, KvFormats formats, int32_t block_tokens) {
  KvPlan plan{.formats = formats, .block_tokens = block_tokens};
  plan.kinds = kinds_of(spec, formats, block_tokens);
  if (plan.kinds.empty()) return plan_places(spec, formats, block_tokens);
  const int64_t tokens = std::min<int64_t>(
      kStatedTokens, spec.context_length > 0 ? spec.context_length : kStatedTokens);
  plan.page_bytes = best_page_bytes(plan.kinds, tokens);
  for (KvLayerKind& kind : plan.kinds) {
    kind.group_first = static_cast<int32_t>(plan.groups.size());
    kind.group_count = static_cast<int32_t>(groups_of(kind, plan.page_bytes));
    plan.groups.insert(plan.groups.end(), static_cast<size_t>(kind.group_count),
                       {.kind = kind.kv.window > 0 ? KvKind::kSliding : KvKind::kFull,
                        .window = kind.kv.window,
                        .block_tokens = block_tokens});
  }
  for (int32_t layer = 0; layer < spec.layer_count; ++layer) {
    if (spec.kv[static_cast<size_t>(layer)].kv_heads == 0) {  // nothing, and of any group
      const auto of_keys = static_cast<size_t>(layer_of_keys(spec, layer));
      const bool attends = of_keys < plan.layer_group.size();  // what a layer before it keeps
      plan.layer_group.push_back(attends ? plan.layer_group[of_keys] : 0);
      plan.layer_offset.push_back(0);
      continue;
    }
    const auto kind = std::find_if(plan.kinds.begin(), plan.kinds.end(), [&](const auto& of) {
      return of.kv == spec.kv[static_cast<size_t>(layer)];
    });
    place_layer(plan, *kind, layer);
  }
  return plan;
}

KvPlan plan_kv_of_rank(const KvPlan& whole, const ModelSpec& spec) {
  KvPlan plan = whole;
  if (!whole.keeps_tokens()) return plan;  // pages hold nothing, of whatever rank
  plan.page_bytes = 0;
  for (KvGroupSpec& group : plan.groups) group.block_bytes = 0;
  for (size_t layer = 0; layer < spec.kv.size(); ++layer) {
    const LayerKv& kv = spec.kv[layer];
    if (kv.kv_heads == 0) continue;
    const int64_t bytes = layer_bytes(kv, plan.formats, plan.block_tokens);
    const int32_t index = plan.layer_group[layer];
    KvGroupSpec& group = plan.groups[static_cast<size_t>(index)];
    plan.layer_offset[layer] = group.block_bytes;
    group.block_bytes += bytes;
    plan.page_bytes = std::max(plan.page_bytes, aligned(group.block_bytes));
    for (KvLayerKind& kind : plan.kinds) {
      if (index < kind.group_first || index >= kind.group_end()) continue;
      kind.kv = kv;
      kind.layer_bytes = bytes;
    }
  }
  return plan;
}

}  // namespace headrace
