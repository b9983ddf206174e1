#include "ops/attention/page_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/attention/kv_numbers.h"
#include "ops/cuda_fixture.h"

namespace headrace::page_rows_test {
namespace {

constexpr int32_t kHeads = 3, kKeyDim = 6, kValueDim = 4;
constexpr int64_t kBlocks = 4;
// Of pages in any order; 8 lies in the first block, 17 and 16 in the second.
const std::vector<int64_t> kSlots = {17, 8, 63, 16, 40};

KvLayerView layer_of(KvFormat format, KeyLayout keys, bool aliases) {
  KvLayerView kv{.k_format = format,
                 .v_format = format,
                 .keys = keys,
                 .v_aliases_k = aliases,
                 .kv_heads = kHeads,
                 .k_dim = kKeyDim,
                 .v_dim = kValueDim};
  kv.v_offset = k_part_bytes(kv);
  kv.block_stride = (kv.v_offset + v_part_bytes(kv) + 31) / 32 * 32;
  return kv;
}

TEST(PageRows, KeepsARowAsKeysAndValuesHeadByHead) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  for (const KvFormat format : {KvFormat::kF32, KvFormat::kF16}) {
    for (const bool aliases : {false, true}) {
      KvLayerView kv = layer_of(format, KeyLayout::kTransposed, aliases);
      std::vector<std::byte> memory(static_cast<size_t>(kBlocks * kv.block_stride));
      kv.base = memory.data();
      const int64_t columns = page_row_components(kv) - 1;
      EXPECT_EQ(columns, kHeads * (kKeyDim + (aliases ? 0 : kValueDim)) - 1);
      Rng rng(3);
      TestMatrix rows(rng, std::ssize(kSlots), columns), read(std::ssize(kSlots), columns);
      rows.at(1, 2) = 1e6f;
      page_rows(context, {.rows = rows.view(), .slots = kSlots, .kv = kv});
      page_rows(context,
                {.way = PageRowsWay::kLoad, .rows = read.view(), .slots = kSlots, .kv = kv});
      for (int64_t r = 0; r < read.rows(); ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          const float wanted =
              format == KvFormat::kF32
                  ? rows.at(r, c)
                  : half_to_float(float_to_half(std::min(rows.at(r, c), 65504.0f)));
          ASSERT_EQ(read.at(r, c), wanted) << r << " " << c;
        }
      }
      EXPECT_TRUE(read.gaps_untouched());
      const int64_t per_head = kKeyDim + (aliases ? 0 : kValueDim);
      EXPECT_EQ(load_key(kv, kSlots[2], 1, 5), read.at(2, per_head + 5));
      const float other = aliases ? load_key(kv, kSlots[2], 1, 2) : load_value(kv, kSlots[2], 1, 2);
      EXPECT_EQ(other, read.at(2, per_head + (aliases ? 0 : kKeyDim) + 2));
    }
  }
}

TEST(PageRowsCuda, StoresAndLoadsWhatTheCpuDoes) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  TestDevice cpu = TestDevice::cpu(1);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const bool aliases : {false, true}) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + (aliases ? " aliased" : ""));
      KvLayerView kv = layer_of(kv_format(dtype), KeyLayout::kRows, aliases);
      const int64_t bytes = kBlocks * kv.block_stride;
      std::vector<std::byte> memory(static_cast<size_t>(bytes));
      kv.base = memory.data();
      const int64_t columns = page_row_components(kv);
      const auto row_count = std::ssize(kSlots);
      Rng rng(4);
      std::vector<float> values = rounded_floats(rng, dtype, row_count * columns, 2.0f);
      OpContext reference = cpu.context(), context = cuda.context();
      page_rows(reference,
                {.rows = host_view(values, row_count, columns), .slots = kSlots, .kv = kv});

      Buffer pages = std::move(cuda.device().allocate(bytes).value());
      cuda.stream().fill_zero(pages.data(), bytes);
      KvLayerView on_gpu = kv;
      on_gpu.base = pages.data();
      const CudaArray<int64_t> slots(cuda, kSlots);
      const CudaMatrix rows(cuda, dtype, row_count, columns, 3, &values);
      page_rows(context, {.rows = rows.view(), .slots = slots.span(), .kv = on_gpu});
      std::vector<std::byte> read(memory.size());
      cuda.stream().copy_out(read.data(), pages.data(), bytes);
      ASSERT_TRUE(cuda.stream().synchronize().ok());
      EXPECT_EQ(read, memory);
      const CudaMatrix loaded(cuda, dtype, row_count, columns, 5, nullptr);
      page_rows(
          context,
          {.way = PageRowsWay::kLoad, .rows = loaded.view(), .slots = slots.span(), .kv = on_gpu});
      EXPECT_EQ(loaded.read(), values);
    }
  }
}

}  // namespace
}  // namespace headrace::page_rows_test
