#include "ops/packed_weight.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "ops/pack_blocks.h"
#include "tensor/quantised_row.h"

namespace headrace {
namespace {

constexpr int64_t kLanes = kLinearGroupRows;
constexpr int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

int64_t group_bytes(DType dtype, int64_t k) {
  if (is_quantised(dtype)) return packed_group_bytes(packed_format_of(dtype), k);
  return round_up(k * kLanes * dtype_info(dtype).block_bytes, 64);
}

bool packable(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         is_quantised(dtype);
}

// One row of the stack where the source keeps it.
struct SourceRow {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
};

// Columns [0, k) of a source row as f32.
void dequantise(SourceRow row, int64_t k, float* out) {
  const auto bytes = static_cast<size_t>(*row_bytes(row.dtype, k));
  dequantise_row(row.dtype, {row.data, bytes}, {out, static_cast<size_t>(k)});
}

void pack_f32_group(const SourceRow* rows, int64_t k, std::byte* group) {
  const std::byte* at[kLanes];
  for (int64_t lane = 0; lane < kLanes; ++lane) at[lane] = rows[lane].data;
  interleave_dwords(at, k, group);
}

void pack_16_bit_group(const SourceRow* rows, int64_t k, std::byte* group) {
  constexpr int64_t kChunk = 64;  // columns at a time: 16 rows of it stay in L1
  for (int64_t first = 0; first < k; first += kChunk) {
    const int64_t last = std::min(first + kChunk, k);
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      for (int64_t c = first; c < last; ++c) {
        std::memcpy(group + (c * kLanes + lane) * 2, rows[lane].data + c * 2, 2);
      }
    }
  }
}

void pack_dequantised_group(const SourceRow* rows, int64_t k, std::byte* group,
                            std::vector<float>& scratch) {
  scratch.resize(static_cast<size_t>(kLanes * k));
  SourceRow plain[kLanes];
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    float* row = scratch.data() + lane * k;
    dequantise(rows[lane], k, row);
    plain[lane].data = reinterpret_cast<const std::byte*>(row);
  }
  pack_f32_group(plain, k, group);
}

// `rows`: the group's 16 source rows. `scratch` is kept between calls of one thread.
void pack_group(const SourceRow* rows, DType dtype, int64_t k, std::byte* group,
                std::vector<float>& scratch) {
  if (is_quantised(dtype)) {
    const std::byte* at[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) at[lane] = rows[lane].data;
    return pack_block_rows(dtype, at, k, group);
  }
  if (rows[0].dtype != dtype) return pack_dequantised_group(rows, k, group, scratch);
  if (dtype == DType::kF32) return pack_f32_group(rows, k, group);
  pack_16_bit_group(rows, k, group);
}

Status check_sources(std::span<const LinearSource> sources) {
  if (sources.empty()) return invalid_argument("linear weight: no matrix given");
  for (const LinearSource& source : sources) {
    const ConstTensorView& w = source.weight;
    if (w.shape.rank() != 2 || w.shape[0] < 1 || w.shape[1] < 1) {
      return invalid_argument(
          fmt::format("linear weight: shape {} is no matrix", w.shape.to_string()));
    }
    if (!packable(w.dtype)) {
      return unsupported(fmt::format("linear weight: type {}", dtype_name(w.dtype)));
    }
    if (!row_bytes(w.dtype, w.columns())) {
      return invalid_argument(fmt::format("linear weight: {} columns are no whole blocks of {}",
                                          w.columns(), dtype_name(w.dtype)));
    }
    if (w.columns() != sources[0].weight.columns()) {
      return invalid_argument(fmt::format("stacked linear weights: {} and {} columns",
                                          sources[0].weight.columns(), w.columns()));
    }
  }
  return ok_status();
}

std::vector<SourceRow> list_rows(std::span<const LinearSource> sources) {
  std::vector<SourceRow> rows;
  for (const LinearSource& source : sources) {
    const ConstTensorView& w = source.weight;
    const int64_t count =
        source.row_order.empty() ? w.rows() : static_cast<int64_t>(source.row_order.size());
    for (int64_t r = 0; r < count; ++r) {
      const int64_t from = source.row_order.empty() ? r : source.row_order[static_cast<size_t>(r)];
      CHECK(from >= 0 && from < w.rows());
      rows.push_back({w.row(from), w.dtype});
    }
  }
  return rows;
}

// Packs one segment. A group that the rows do not fill repeats the last: those results are dropped.
// Each thread packs the share it will read at decode, so that the pages are near its core.
void pack_segment(ThreadPool& pool, const LinearWeight::Segment& segment, const SourceRow* rows,
                  int64_t k, std::byte* out) {
  pool.run([&](int thread) {
    const int64_t first = segment.group_count * thread / pool.thread_count();
    const int64_t last = segment.group_count * (thread + 1) / pool.thread_count();
    std::vector<float> scratch;
    for (int64_t g = first; g < last; ++g) {
      SourceRow group[kLanes];
      const int64_t count = std::min(kLanes, segment.row_count - g * kLanes);
      std::copy_n(rows + g * kLanes, count, group);
      std::fill(group + count, group + kLanes, group[count - 1]);
      pack_group(group, segment.dtype, k, out + g * segment.group_bytes, scratch);
    }
  });
}

}  // namespace

Result<LinearWeight> LinearWeight::pack(Device& device, std::span<const LinearSource> sources,
                                        LinearCompute compute) {
  HR_RETURN_IF_ERROR(check_sources(sources));
  if (device.kind() == DeviceKind::kCuda) return pack_matrix(device, sources, compute);
  if (compute == LinearCompute::kFloat16) {
    return unsupported("linear weights in half precision: only on CUDA");
  }
  LinearWeight weight;
  weight.k_ = sources[0].weight.columns();
  const std::vector<SourceRow> rows = list_rows(sources);
  weight.n_ = static_cast<int64_t>(rows.size());
  for (int64_t r = 0; r < weight.n_; ++r) {  // neighbours of one source type share a segment
    const DType source = rows[static_cast<size_t>(r)].dtype;
    if (r == 0 || source != rows[static_cast<size_t>(r - 1)].dtype) {
      const DType dtype = compute == LinearCompute::kFloat32 ? DType::kF32 : source;
      weight.segments_.push_back(
          {.dtype = dtype, .first_row = r, .group_bytes = headrace::group_bytes(dtype, weight.k_)});
    }
    ++weight.segments_.back().row_count;
  }
  int64_t bytes = 0;
  for (Segment& segment : weight.segments_) {
    segment.group_count = (segment.row_count + kLanes - 1) / kLanes;
    bytes += segment.group_count * segment.group_bytes;
  }
  HR_ASSIGN_OR_RETURN(weight.buffer_, device.allocate(bytes));
  std::byte* at = weight.buffer_.data();
  for (Segment& segment : weight.segments_) {
    segment.data = at;
    pack_segment(device.pool(), segment, rows.data() + segment.first_row, weight.k_, at);
    at += segment.group_count * segment.group_bytes;
  }
  return weight;
}

namespace {

void read_quantised_row(const LinearWeight::Segment& segment, const std::byte* group, int64_t lane,
                        int64_t k, float* out) {
  const PackedFormat& format = packed_format_of(segment.dtype);
  BlockQuants block;
  for (int64_t b = 0; b < k / format.columns; ++b) {
    read_packed_block(format, group, k, lane, b, block);
    dequantise_block(block, out + b * format.columns);
  }
}

}  // namespace

void LinearWeight::read_row(int64_t row, float* out) const {
  CHECK(row >= 0 && row < n_);
  const Segment* segment = segments_.data();
  while (row >= segment->first_row + segment->row_count) ++segment;
  const int64_t in_segment = row - segment->first_row;
  const int64_t lane = in_segment % kLanes;
  const std::byte* group = segment->data + in_segment / kLanes * segment->group_bytes;
  if (is_quantised(segment->dtype)) return read_quantised_row(*segment, group, lane, k_, out);
  const int64_t size = dtype_info(segment->dtype).block_bytes;
  for (int64_t c = 0; c < k_; ++c) {
    dequantise({group + (c * kLanes + lane) * size, segment->dtype}, 1, out + c);
  }
}

}  // namespace headrace
