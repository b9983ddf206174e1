#include <cstring>

#include "ops/embedding.h"
#include "tensor/half.h"

namespace headrace {
namespace {

uint16_t load_u16(const std::byte* from) {
  uint16_t value;
  std::memcpy(&value, from, sizeof value);  // GGUF rows are not aligned to their scales
  return value;
}

void dequantise_f16(const std::byte* row, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = half_to_float(load_u16(row + 2 * i));
}

void dequantise_bf16(const std::byte* row, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = bfloat16_to_float(load_u16(row + 2 * i));
}

// Block: f16 d, 32 x int8.
void dequantise_q8_0(const std::byte* row, int64_t count, float* out) {
  for (int64_t block = 0; block < count / 32; ++block, row += 34, out += 32) {
    const float d = half_to_float(load_u16(row));
    const auto* q = reinterpret_cast<const int8_t*>(row + 2);
    for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(q[i]);
  }
}

// Block: f16 d, 16 bytes; byte i holds element i (low four bits) and element i + 16.
void dequantise_q4_0(const std::byte* row, int64_t count, float* out) {
  for (int64_t block = 0; block < count / 32; ++block, row += 18, out += 32) {
    const float d = half_to_float(load_u16(row));
    const auto* q = reinterpret_cast<const uint8_t*>(row + 2);
    for (int i = 0; i < 16; ++i) {
      out[i] = d * static_cast<float>((q[i] & 15) - 8);
      out[i + 16] = d * static_cast<float>((q[i] >> 4) - 8);
    }
  }
}

// Block: f16 d, f16 m, 16 bytes as in Q4_0.
void dequantise_q4_1(const std::byte* row, int64_t count, float* out) {
  for (int64_t block = 0; block < count / 32; ++block, row += 20, out += 32) {
    const float d = half_to_float(load_u16(row));
    const float m = half_to_float(load_u16(row + 2));
    const auto* q = reinterpret_cast<const uint8_t*>(row + 4);
    for (int i = 0; i < 16; ++i) {
      out[i] = d * static_cast<float>(q[i] & 15) + m;
      out[i + 16] = d * static_cast<float>(q[i] >> 4) + m;
    }
  }
}

}  // namespace

void dequantise_row(DType dtype, const std::byte* row, int64_t count, float* out) {
  CHECK(count % dtype_info(dtype).block_elements == 0);
  switch (dtype) {
    case DType::kF32:
      std::memcpy(out, row, static_cast<size_t>(count) * 4);
      return;
    case DType::kF16:
      return dequantise_f16(row, count, out);
    case DType::kBF16:
      return dequantise_bf16(row, count, out);
    case DType::kQ8_0:
      return dequantise_q8_0(row, count, out);
    case DType::kQ4_0:
      return dequantise_q4_0(row, count, out);
    case DType::kQ4_1:
      return dequantise_q4_1(row, count, out);
    default:
      CHECK_MSG(false, "an embedding table of this type is not supported");
  }
}

void embedding_reference(OpContext& context, const EmbeddingArgs& args) {
  // Below 16 rows (some 10 us) a fork-join costs more than it saves.
  context.device.pool().parallel_for(args.out.rows(), 16, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      const TokenId token = args.tokens[static_cast<size_t>(t)];
      CHECK(token >= 0 && token < args.table.rows());
      dequantise_row(args.table.dtype, args.table.row(token), args.table.columns(),
                     f32_row(args.out, t));
    }
  });
}

}  // namespace headrace
