// Rows of plain numbers in the pages of a layer that keeps nothing else there: component c of a row
// is, head by head, one of the head's key or behind these one of its value. So what is kept of a
// token that is neither lies in the sequence's pages (engine/draft_features.h).
#pragma once

#include <cstdint>
#include <span>

#include "ops/attention/kv_view.h"
#include "ops/op.h"

namespace headrace {

enum class PageRowsWay : uint8_t { kStore, kLoad };

struct PageRowsArgs {
  PageRowsWay way = PageRowsWay::kStore;
  TensorView rows;                 // [T, C], C at most page_row_components(kv); kLoad writes it
  std::span<const int64_t> slots;  // [T] in device memory
  KvLayerView kv;
};

// Numbers that a layer keeps of a token.
inline int64_t page_row_components(const KvLayerView& kv) {
  return int64_t{kv.kv_heads} * (kv.k_dim + (kv.v_aliases_k ? 0 : kv.v_dim));
}

// In F16 a number beyond its range becomes the largest. What a layer keeps behind component C means
// nothing then.
void page_rows(OpContext& context, const PageRowsArgs& args);

OpCost op_cost(const PageRowsArgs& args);
const KernelSet<PageRowsArgs>& page_rows_kernels();
KernelTable<PageRowsArgs> page_rows_cpu_kernels();
KernelTable<PageRowsArgs> page_rows_cuda_kernels();

}  // namespace headrace
