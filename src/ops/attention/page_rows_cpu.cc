#include <algorithm>
#include <array>
#include <vector>

#include "ops/attention/kv_numbers.h"
#include "ops/attention/page_rows.h"

namespace headrace {
namespace {

constexpr float kF16Max = 65504.0f;
constexpr int64_t kRowsOfThread = 16;

// Numbers [first, first + count) of a row: those of a head's key or value.
struct PagePiece {
  int32_t head = 0;
  bool key = false;
  int64_t first = 0, count = 0;
};

template <class Visit>
void for_each_piece(const KvLayerView& kv, int64_t width, const Visit& visit) {
  PagePiece piece;
  for (piece.head = 0; piece.head < kv.kv_heads; ++piece.head) {
    for (const bool key : {true, false}) {
      if (piece.first >= width || (!key && kv.v_aliases_k)) continue;
      piece.key = key;
      piece.count = std::min<int64_t>(key ? kv.k_dim : kv.v_dim, width - piece.first);
      visit(piece);
      piece.first += piece.count;
    }
  }
}

void store_row(const KvLayerView& kv, int64_t slot, std::span<const float> row,
               std::vector<float>& numbers) {
  for_each_piece(kv, std::ssize(row), [&](const PagePiece& piece) {
    numbers.assign(static_cast<size_t>(std::max(kv.k_dim, kv.v_dim)), 0.0f);
    const KvFormat format = piece.key ? kv.k_format : kv.v_format;
    for (int64_t i = 0; i < piece.count; ++i) {
      const float number = row[static_cast<size_t>(piece.first + i)];
      numbers[static_cast<size_t>(i)] =
          format == KvFormat::kF16 ? std::clamp(number, -kF16Max, kF16Max) : number;
    }
    if (piece.key) {
      store_key(kv, slot, piece.head, numbers.data());
    } else {
      store_value(kv, slot, piece.head, numbers.data());
    }
  });
}

void load_row(const KvLayerView& kv, int64_t slot, std::span<float> row) {
  for_each_piece(kv, std::ssize(row), [&](const PagePiece& piece) {
    for (int32_t i = 0; i < piece.count; ++i) {
      row[static_cast<size_t>(piece.first + i)] =
          piece.key ? load_key(kv, slot, piece.head, i) : load_value(kv, slot, piece.head, i);
    }
  });
}

void reference(OpContext& context, const PageRowsArgs& args) {
  const auto columns = static_cast<size_t>(args.rows.columns());
  context.device.pool().parallel_for(args.rows.rows(), kRowsOfThread,
                                     [&](int64_t first, int64_t last) {
                                       std::vector<float> numbers;
                                       for (int64_t r = first; r < last; ++r) {
                                         const int64_t slot = args.slots[static_cast<size_t>(r)];
                                         const std::span<float> row(f32_row(args.rows, r), columns);
                                         if (args.way == PageRowsWay::kStore) {
                                           store_row(args.kv, slot, row, numbers);
                                         } else {
                                           load_row(args.kv, slot, row);
                                         }
                                       }
                                     });
}

bool any_cpu(const DeviceTraits& traits, const PageRowsArgs& args) {
  return traits.kind == DeviceKind::kCpu && args.rows.dtype == DType::kF32;
}

constexpr std::array kPageRowsKernels = {
    Kernel<PageRowsArgs>{"page_rows/cpu/reference", any_cpu, reference}};

}  // namespace

KernelTable<PageRowsArgs> page_rows_cpu_kernels() { return kPageRowsKernels; }

}  // namespace headrace
