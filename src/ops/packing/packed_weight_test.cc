#include "ops/packing/packed_weight.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "ops/packing/random_matrix.h"
#include "tensor/half.h"
#include "tensor/quantised_row.h"
#include "tensor/uploader.h"

namespace headrace::packed_weight_test {
namespace {

std::vector<std::byte> random_matrix(Rng& rng, DType dtype, int64_t n, int64_t k) {
  std::vector<std::byte> bytes(static_cast<size_t>(*tensor_bytes(dtype, Shape{n, k})));
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng.next() & 0x3b);  // finite as any float
  return bytes;
}

TEST(LinearWeight, RowsReadBackAsTheSourceSays) {
  Rng rng(1);
  const auto device = create_cpu_device(2);
  for (const DType dtype : kWeightTypes) {
    for (const int64_t n : {1, 16, 300}) {
      const int64_t k = is_quantised(dtype) ? 3 * dtype_info(dtype).block_elements : 77;
      const RandomMatrix matrix(rng, dtype, n, k);  // every bit of quants and scales
      const ConstTensorView view = matrix.view();
      const LinearSource source{view, {}};
      for (const auto compute : {LinearCompute::kFast, LinearCompute::kFloat32}) {
        const auto weight = LinearWeight::pack(*device, {&source, 1}, compute);
        ASSERT_TRUE(weight.ok());
        std::vector<float> row(static_cast<size_t>(k)), expected(row.size());
        for (int64_t r = 0; r < n; ++r) {
          weight->read_row(r, row.data());
          dequantise_row(view, r, expected.data());
          ASSERT_EQ(row, expected) << dtype_name(dtype) << " row " << r;
        }
        const auto later = LinearWeight::defer(*device, {&source, 1}, compute, nullptr);
        later->read_row(n - 1, row.data());
        ASSERT_EQ(row, expected) << dtype_name(dtype);
      }
    }
  }
}

// Packed by an uploader's threads, the first matrix in reverse order. (The null device's memory is
// the host's.)
TEST(LinearWeight, AGpuGetsTheCpusBytes) {
  Rng rng(4);
  const auto cpu = create_cpu_device(2);
  const auto gpu = create_null_device({});
  for (const DType dtype : {DType::kQ4_K, DType::kQ8_0}) {
    constexpr int64_t kColumns = 512;
    const RandomMatrix first(rng, dtype, 37, kColumns), second(rng, DType::kQ6_K, 20, kColumns);
    std::vector<int32_t> order;
    for (int32_t r = 37; r-- > 0;) order.push_back(r);
    const LinearSource sources[] = {{first.view(), order}, {second.view(), {}}};
    const auto expected = LinearWeight::pack(*cpu, sources, LinearCompute::kFast);
    Uploader uploader(*gpu, 2);
    const auto weight = LinearWeight::start_pack(*gpu, uploader, sources, LinearCompute::kFloat16);
    ASSERT_TRUE(weight.ok() && uploader.finish().ok());
    EXPECT_FALSE(weight->is_matrix());
    ASSERT_EQ(weight->packed_bytes(), expected->packed_bytes());
    EXPECT_EQ(std::memcmp(weight->packed().data(), expected->packed().data(),
                          static_cast<size_t>(weight->packed_bytes())),
              0);
    LinearSource unpacked{first.view(), {}};
    unpacked.unpack = true;
    const auto matrix =
        LinearWeight::start_pack(*gpu, uploader, {&unpacked, 1}, LinearCompute::kFloat16);
    EXPECT_TRUE(matrix->is_matrix_of(DType::kF16));
    EXPECT_TRUE(uploader.finish().ok());
  }
}

// What a rank has of a matrix whose columns are shared out: rows that lie apart.
TEST(LinearWeight, ColumnsOfAMatrixAreTheirOwnWeight) {
  constexpr int64_t kRows = 21, kColumns = 512, kFirst = 256, kCount = 256;
  Rng rng(6);
  const auto cpu = create_cpu_device(2);
  const auto gpu = create_null_device({});
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_K, DType::kQ8_0}) {
    SCOPED_TRACE(dtype_name(dtype));
    const RandomMatrix whole(rng, dtype, kRows, kColumns);
    const ConstTensorView view = whole.view();
    const LinearSource all{view, {}};
    LinearSource columns{
        {view.data + *row_bytes(dtype, kFirst), dtype, Shape{kRows, kCount}, view.row_stride}, {}};
    const auto packed = LinearWeight::pack(*cpu, {&columns, 1}, LinearCompute::kFast);
    const auto packed_whole = LinearWeight::pack(*cpu, {&all, 1}, LinearCompute::kFast);
    ASSERT_TRUE(packed.ok() && packed_whole.ok());
    Uploader uploader(*gpu, 1);
    columns.unpack = true;
    const auto matrix =
        LinearWeight::start_pack(*gpu, uploader, {&columns, 1}, LinearCompute::kFloat32);
    ASSERT_TRUE(matrix.ok() && uploader.finish().ok());
    ASSERT_TRUE(matrix->is_matrix());
    std::vector<float> own(kCount), of_whole(kColumns);
    for (int64_t row = 0; row < kRows; ++row) {
      packed->read_row(row, own.data());
      packed_whole->read_row(row, of_whole.data());
      for (size_t c = 0; c < static_cast<size_t>(kCount); ++c) {
        ASSERT_EQ(own[c], of_whole[static_cast<size_t>(kFirst) + c]) << row << " " << c;
        ASSERT_EQ(f32_row(matrix->matrix(), row)[c], own[c]) << row << " " << c;
      }
    }
  }
}

TEST(LinearWeight, EveryCpuPacksTheSameBytes) {
  Rng rng(3);
  const auto here = create_cpu_device(1);
  const auto baseline = create_cpu_device(1, CpuFeatures{});
  for (const DType dtype : kWeightTypes) {
    if (!is_quantised(dtype)) continue;
    const int64_t k = 3 * dtype_info(dtype).block_elements;
    std::vector<std::byte> bytes = random_matrix(rng, dtype, 37, k);
    for (std::byte& b : bytes) b = static_cast<std::byte>(rng.next());
    const LinearSource source{{bytes.data(), dtype, Shape{37, k}}, {}};
    const auto a = LinearWeight::pack(*here, {&source, 1}, LinearCompute::kFast);
    const auto b = LinearWeight::pack(*baseline, {&source, 1}, LinearCompute::kFast);
    const auto &first = a->segments()[0], &second = b->segments()[0];
    ASSERT_EQ(first.group_count * first.group_bytes, second.group_count * second.group_bytes);
    EXPECT_EQ(std::memcmp(first.data, second.data,
                          static_cast<size_t>(first.group_count * first.group_bytes)),
              0)
        << dtype_name(dtype);
  }
}

TEST(LinearWeight, GivesEveryRowOfALargeMatrixBackOnce) {
  const auto device = create_cpu_device(2);
  const std::vector<float> values(static_cast<size_t>(8200 * 160));
  std::vector<std::atomic<int>> done(8200);
  LinearSource source{
      {reinterpret_cast<const std::byte*>(values.data()), DType::kF32, Shape{8200, 160}}, {}};
  source.done = [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) ++done[static_cast<size_t>(r)];
  };
  ASSERT_TRUE(LinearWeight::pack(*device, {&source, 1}, LinearCompute::kFast).ok());
  for (const auto& count : done) EXPECT_EQ(count, 1);
}

TEST(LinearWeight, PartsReadTheirRowsOfTheStack) {
  Rng rng(4);
  const auto device = create_cpu_device(1);
  // The second and the third share a segment; 20 rows fill no groups but end one.
  const std::vector<std::byte> a = random_matrix(rng, DType::kQ4_0, 20, 64);
  const std::vector<std::byte> b = random_matrix(rng, DType::kQ8_0, 32, 64);
  const std::vector<std::byte> c = random_matrix(rng, DType::kQ8_0, 5, 64);
  const LinearSource sources[] = {{{a.data(), DType::kQ4_0, Shape{20, 64}}, {}},
                                  {{b.data(), DType::kQ8_0, Shape{32, 64}}, {}},
                                  {{c.data(), DType::kQ8_0, Shape{5, 64}}, {}}};
  const auto weight = LinearWeight::pack(*device, sources, LinearCompute::kFast);
  const std::vector<LinearWeight> parts = weight->parts();
  ASSERT_EQ(parts.size(), 3u);
  std::vector<float> row(64), expected(64);
  int64_t first = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    ASSERT_EQ(parts[i].n(), sources[i].weight.rows());
    for (int64_t r = 0; r < parts[i].n(); ++r) {
      parts[i].read_row(r, row.data());
      weight->read_row(first + r, expected.data());
      EXPECT_EQ(row, expected) << i << " " << r;
    }
    first += parts[i].n();
  }
  const LinearSource torn[] = {sources[2], sources[1]};  // the second starts inside a group
  EXPECT_TRUE(LinearWeight::pack(*device, torn, LinearCompute::kFast)->parts().empty());
}

TEST(LinearWeight, QuantisesFloatRowsAsTheFormatSays) {
  Rng rng(5);
  const auto device = create_cpu_device(2);
  constexpr int64_t kRows = 33, kColumns = 512;
  std::vector<float> values(static_cast<size_t>(kRows * kColumns));
  for (float& value : values) value = static_cast<float>(uniform01(rng.next())) - 0.5f;
  const ConstTensorView view(reinterpret_cast<const std::byte*>(values.data()), DType::kF32,
                             Shape{kRows, kColumns});
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ4_K}) {
    LinearSource source{view, {}};
    source.quantise_to = dtype;
    const auto weight = LinearWeight::pack(*device, {&source, 1}, LinearCompute::kFast);
    ASSERT_TRUE(weight.ok());
    EXPECT_EQ(weight->main_dtype(), dtype);
    std::vector<std::byte> blocks(static_cast<size_t>(*row_bytes(dtype, kColumns)));
    std::vector<float> row(kColumns), expected(kColumns);
    for (int64_t r = 0; r < kRows; ++r) {
      quantise_row(dtype, {f32_row(view, r), kColumns}, blocks);
      dequantise_row(dtype, blocks, expected);
      weight->read_row(r, row.data());
      ASSERT_EQ(row, expected) << dtype_name(dtype) << " row " << r;
    }
  }
  LinearSource source{{view.data, DType::kF32, Shape{4, 48}}, {}};
  source.quantise_to = DType::kQ8_0;
  EXPECT_FALSE(LinearWeight::pack(*device, {&source, 1}, LinearCompute::kFast).ok());
  source.quantise_to = DType::kF8;  // which a CPU's kernels do not take
  EXPECT_EQ(LinearWeight::pack(*device, {&source, 1}, LinearCompute::kFast).status().code(),
            StatusCode::kUnsupported);
}

// As a file of BF16 would have them; an odd number of columns ends in half a pair.
TEST(LinearWeight, RoundsFloatRowsToBf16) {
  Rng rng(6);
  const auto device = create_cpu_device(2);
  for (const int64_t columns : {48, 33}) {
    constexpr int64_t kRows = 19;
    std::vector<float> values(static_cast<size_t>(kRows * columns));
    std::vector<uint16_t> rounded;
    for (float& value : values) {
      value = static_cast<float>(uniform01(rng.next())) - 0.5f;
      rounded.push_back(float_to_bfloat16(value));
    }
    LinearSource source{
        {reinterpret_cast<const std::byte*>(values.data()), DType::kF32, Shape{kRows, columns}},
        {}};
    source.quantise_to = DType::kBF16;
    const LinearSource in_file{
        {reinterpret_cast<const std::byte*>(rounded.data()), DType::kBF16, Shape{kRows, columns}},
        {}};
    const auto weight = LinearWeight::pack(*device, {&source, 1}, LinearCompute::kFast).value();
    const auto expected = LinearWeight::pack(*device, {&in_file, 1}, LinearCompute::kFast).value();
    EXPECT_EQ(weight.main_dtype(), DType::kBF16);
    ASSERT_EQ(weight.packed_bytes(), expected.packed_bytes());
    std::vector<float> row(static_cast<size_t>(columns)), same(row);
    for (int64_t r = 0; r < kRows; ++r) {
      weight.read_row(r, row.data());
      expected.read_row(r, same.data());
      ASSERT_EQ(row, same) << "row " << r;
    }
  }
}

// Less where a file has padding, or what can be computed.
TEST(LinearWeight, TakesTheFilesBytesAndNoMore) {
  Rng rng(2);
  const auto device = create_cpu_device(1);
  for (const DType dtype : kWeightTypes) {
    if (dtype == DType::kQ3_K || dtype == DType::kIQ4_XS) continue;  // scales of 6 bits in a byte
    const std::vector<std::byte> bytes = random_matrix(rng, dtype, 160, 1024);
    const LinearSource source{{bytes.data(), dtype, Shape{160, 1024}}, {}};
    const auto weight = LinearWeight::pack(*device, {&source, 1}, LinearCompute::kFast);
    ASSERT_TRUE(weight.ok());
    EXPECT_LE(weight->packed_bytes(), static_cast<int64_t>(bytes.size())) << dtype_name(dtype);
  }
}

TEST(LinearWeight, ReadsStridedSources) {
  const auto device = create_cpu_device(1);
  const std::vector<float> wide = {1, 2, -1, 3, 4, -1};
  const LinearSource source{
      {reinterpret_cast<const std::byte*>(wide.data()), DType::kF32, Shape{2, 2}, 12}, {}};
  const auto weight = LinearWeight::pack(*device, {&source, 1}, LinearCompute::kFast);
  float row[2];
  weight->read_row(1, row);
  EXPECT_EQ(row[0], 3);
  EXPECT_EQ(row[1], 4);
}

TEST(LinearWeight, SaysWhatItCannotPack) {
  const auto device = create_cpu_device(1);
  const std::vector<std::byte> bytes(4096);
  const auto status = [&](std::initializer_list<LinearSource> sources) {
    const std::vector<LinearSource> list(sources);
    return LinearWeight::pack(*device, list, LinearCompute::kFast).status();
  };
  const ConstTensorView f32(bytes.data(), DType::kF32, Shape{4, 8});
  const ConstTensorView wider(bytes.data(), DType::kF32, Shape{4, 9});
  const ConstTensorView ints(bytes.data(), DType::kI32, Shape{4, 8});
  const ConstTensorView ragged(bytes.data(), DType::kQ8_0, Shape{4, 33}, 68);
  EXPECT_EQ(status({}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status({{f32, {}}, {wider, {}}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status({{ragged, {}}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status({{ints, {}}}).code(), StatusCode::kUnsupported);
  EXPECT_NE(status({{ints, {}}}).message().find("I32"), std::string::npos);
}

}  // namespace
}  // namespace headrace::packed_weight_test
