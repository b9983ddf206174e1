#include "ops/packing/packed_weight.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/round_up.h"
#include "ops/packing/pack_blocks.h"
#include "tensor/half.h"
#include "tensor/quantised_row.h"
#include "tensor/uploader.h"

namespace headrace {
namespace {

constexpr int64_t kLanes = kLinearGroupRows;
constexpr int64_t kBf16Columns = 32;  // of an AMX tile: groups of BF16 are padded to it with zeros

int64_t group_bytes(DType dtype, int64_t k) {
  if (is_quantised(dtype)) return packed_group_bytes(packed_format_of(dtype), k);
  if (dtype == DType::kBF16) return round_up(k, kBf16Columns) * kLanes * 2;
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

// Pairs of columns; what is beyond column k is zero.
void pack_bf16_group(const SourceRow* rows, int64_t k, std::byte* group) {
  const std::byte* at[kLanes];
  for (int64_t lane = 0; lane < kLanes; ++lane) at[lane] = rows[lane].data;
  interleave_dwords(at, k / 2, group);
  std::byte* tail = group + k / 2 * kLanes * 4;
  std::memset(tail, 0, static_cast<size_t>(group + group_bytes(DType::kBF16, k) - tail));
  if (k % 2 == 0) return;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    std::memcpy(tail + lane * 4, at[lane] + (k - 1) * 2, 2);
  }
}

void pack_f16_group(const SourceRow* rows, int64_t k, std::byte* group) {
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

// Rows of other floats, rounded to BF16.
void pack_rounded_group(const SourceRow* rows, int64_t k, std::byte* group,
                        std::vector<float>& scratch) {
  scratch.resize(static_cast<size_t>(k + kLanes * ((k + 1) / 2)));
  auto* const rounded = reinterpret_cast<uint16_t*>(scratch.data() + k);
  SourceRow plain[kLanes];
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    dequantise(rows[lane], k, scratch.data());
    uint16_t* const row = rounded + lane * k;
    for (int64_t c = 0; c < k; ++c) row[c] = float_to_bfloat16(scratch[static_cast<size_t>(c)]);
    plain[lane] = {reinterpret_cast<const std::byte*>(row), DType::kBF16};
  }
  pack_bf16_group(plain, k, group);
}

// Rows of floats into blocks of `dtype`, and these into the group.
void pack_quantised_group(const CpuFeatures& cpu, const SourceRow* rows, DType dtype, int64_t k,
                          std::byte* group, std::vector<float>& scratch) {
  const int64_t bytes = *row_bytes(dtype, k);
  scratch.resize(static_cast<size_t>(k + (kLanes * bytes + 3) / 4));
  auto* const blocks = reinterpret_cast<std::byte*>(scratch.data() + k);
  const std::byte* at[kLanes];
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    dequantise(rows[lane], k, scratch.data());
    quantise_row(dtype, {scratch.data(), static_cast<size_t>(k)},
                 {blocks + lane * bytes, static_cast<size_t>(bytes)});
    at[lane] = blocks + lane * bytes;
  }
  pack_block_rows(cpu, dtype, at, k, group);
}

// `rows`: the group's 16 source rows. `scratch` is kept between calls of one thread.
void pack_group(const CpuFeatures& cpu, const SourceRow* rows, DType dtype, int64_t k,
                std::byte* group, std::vector<float>& scratch) {
  if (is_quantised(dtype) && rows[0].dtype != dtype) {
    return pack_quantised_group(cpu, rows, dtype, k, group, scratch);
  }
  if (is_quantised(dtype)) {
    const std::byte* at[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) at[lane] = rows[lane].data;
    return pack_block_rows(cpu, dtype, at, k, group);
  }
  if (rows[0].dtype != dtype && dtype == DType::kBF16) {
    return pack_rounded_group(rows, k, group, scratch);
  }
  if (rows[0].dtype != dtype) return pack_dequantised_group(rows, k, group, scratch);
  if (dtype == DType::kF32) return pack_f32_group(rows, k, group);
  if (dtype == DType::kBF16) return pack_bf16_group(rows, k, group);
  pack_f16_group(rows, k, group);
}

Status check_sources(const Device& device, std::span<const LinearSource> sources,
                     LinearCompute compute) {
  if (device.kind() == DeviceKind::kCpu && compute == LinearCompute::kFloat16) {
    return unsupported("linear weights in half precision: only on CUDA");
  }
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
    if (source.quantise_to == DType::kF8 && device.kind() == DeviceKind::kCpu) {
      return unsupported("linear weights in FP8: only on CUDA");
    }
    if (source.quantise_to && !row_bytes(*source.quantise_to, w.columns())) {
      return invalid_argument(fmt::format("linear weight: {} columns are no whole blocks of {}",
                                          w.columns(), dtype_name(*source.quantise_to)));
    }
    if (w.columns() != sources[0].weight.columns()) {
      return invalid_argument(fmt::format("stacked linear weights: {} and {} columns",
                                          sources[0].weight.columns(), w.columns()));
    }
  }
  return ok_status();
}

// The rows of stacked sources, by their place in the stack.
class StackedRows {
 public:
  explicit StackedRows(std::span<const LinearSource> sources) : sources_(sources) {
    for (const LinearSource& source : sources) {
      for (const int32_t from : source.row_order) CHECK(from >= 0 && from < source.weight.rows());
      starts_.push_back(count_);
      count_ += source.row_order.empty() ? source.weight.rows()
                                         : static_cast<int64_t>(source.row_order.size());
    }
    starts_.push_back(count_);
  }

  int64_t count() const { return count_; }
  std::span<const LinearSource> sources() const { return sources_; }
  // Of source i in the stack.
  int64_t first_row(size_t i) const { return starts_[i]; }
  int64_t end_row(size_t i) const { return starts_[i + 1]; }

  // Rows of the stack, at most 16, of one type. What a reader makes lies in `made`.
  void find(std::span<const int64_t> rows, SourceRow* found, std::vector<std::byte>& made) const {
    const ConstTensorView& first = sources_[place(rows[0]).source].weight;
    const int64_t bytes = *row_bytes(first.dtype, first.columns());
    for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
      const LinearSource& source = sources_[place(rows[begin]).source];
      int64_t own[kLanes];
      for (; end < rows.size() && place(rows[end]).source == place(rows[begin]).source; ++end) {
        own[end - begin] = place(rows[end]).row;
      }
      const std::span<const int64_t> run(own, end - begin);
      if (source.reader != nullptr) {
        made.resize(static_cast<size_t>(kLanes * bytes));
        source.read(run, made.data() + static_cast<int64_t>(begin) * bytes);
      }
      for (size_t i = begin; i < end; ++i) {
        const std::byte* const data = source.reader != nullptr
                                          ? made.data() + static_cast<int64_t>(i) * bytes
                                          : source.weight.row(run[i - begin]);
        found[i] = {data, source.weight.dtype};
      }
    }
  }

  // Rows [first, last) of the stack are packed.
  void done(int64_t first, int64_t last) const {
    for (size_t i = 0; i < sources_.size(); ++i) {
      const LinearSource& source = sources_[i];
      const bool large =
          source.weight.rows() * *row_bytes(source.weight.dtype, source.weight.columns()) >=
          kDoneBytesMin;
      if (!source.done || !source.row_order.empty() || !large) continue;
      const int64_t from = std::max(first, starts_[i]), to = std::min(last, starts_[i + 1]);
      if (from < to) source.done(from - starts_[i], to - starts_[i]);
    }
  }

 private:
  struct Place {
    size_t source;
    int64_t row;  // in the source
  };
  Place place(int64_t row) const {
    size_t i = 0;
    while (row >= starts_[i + 1]) ++i;
    const std::span<const int32_t> order = sources_[i].row_order;
    const int64_t r = row - starts_[i];
    return {i, order.empty() ? r : order[static_cast<size_t>(r)]};
  }

  // Of a source that is given back part by part; a smaller one is worth no call of its own.
  static constexpr int64_t kDoneBytesMin = 4 << 20;

  std::span<const LinearSource> sources_;
  std::vector<int64_t> starts_;  // and the end
  int64_t count_ = 0;
};

// What a source's rows are packed as.
DType packed_dtype(const LinearSource& source, LinearCompute compute) {
  const DType dtype = source.weight.dtype;
  if (compute == LinearCompute::kFloat32) return DType::kF32;
  return source.quantise_to && !is_quantised(dtype) ? *source.quantise_to : dtype;
}

// Whether a stack is FP8 on CUDA: rows that kernels take in whole accesses.
bool all_float8(std::span<const LinearSource> sources, LinearCompute compute) {
  constexpr int64_t kWhole = 16;
  const bool of_type = std::ranges::all_of(sources, [&](const LinearSource& source) {
    return !source.unpack && packed_dtype(source, compute) == DType::kF8;
  });
  return of_type && sources[0].weight.columns() % kWhole == 0 &&
         StackedRows(sources).count() % kWhole == 0;
}

// Whether a stack is of block types that stay what they are on CUDA.
bool all_blocks(std::span<const LinearSource> sources, LinearCompute compute) {
  return std::all_of(sources.begin(), sources.end(), [&](const LinearSource& source) {
    return !source.unpack && is_quantised(packed_dtype(source, compute));
  });
}

// Neighbours of one source type share a segment.
std::vector<LinearWeight::Segment> plan_segments(const StackedRows& rows, LinearCompute compute,
                                                 int64_t k) {
  std::vector<LinearWeight::Segment> segments;
  for (size_t i = 0; i < rows.sources().size(); ++i) {
    const DType source = rows.sources()[i].weight.dtype;
    const DType dtype = packed_dtype(rows.sources()[i], compute);
    if (i == 0 || source != rows.sources()[i - 1].weight.dtype || dtype != segments.back().dtype) {
      segments.push_back(
          {.dtype = dtype, .first_row = rows.first_row(i), .group_bytes = group_bytes(dtype, k)});
    }
    segments.back().row_count = rows.end_row(i) - segments.back().first_row;
    segments.back().group_count = (segments.back().row_count + kLanes - 1) / kLanes;
  }
  return segments;
}

// Packs groups [first, last) of a segment to `out`. A group that the rows do not fill repeats the
// last: those results are dropped.
void pack_group_range(const CpuFeatures& cpu, const LinearWeight::Segment& segment,
                      const StackedRows& rows, int64_t k, int64_t first, int64_t last,
                      std::byte* out) {
  const int64_t end = segment.first_row + segment.row_count;
  std::vector<float> scratch;
  std::vector<std::byte> made;
  for (int64_t g = first; g < last; ++g, out += segment.group_bytes) {
    int64_t places[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      places[lane] = std::min(segment.first_row + g * kLanes + lane, end - 1);
    }
    SourceRow group[kLanes];
    rows.find(places, group, made);
    pack_group(cpu, group, segment.dtype, k, out, scratch);
  }
}

// Groups [first, last) of a segment have been read.
void report_done(const LinearWeight::Segment& segment, const StackedRows& rows, int64_t first,
                 int64_t last) {
  rows.done(segment.first_row + first * kLanes,
            segment.first_row + std::min(last * kLanes, segment.row_count));
}

// Packs one segment.
void pack_segment(Device& device, const LinearWeight::Segment& segment, const StackedRows& rows,
                  int64_t k, std::byte* out) {
  ThreadPool& pool = device.pool();
  const CpuFeatures& cpu = device.traits().cpu;
  // Small enough that threads end together and little of the source is in memory at a time.
  constexpr int64_t kGrainBytes = 1 << 20;
  const int64_t grain = std::max<int64_t>(
      1,
      std::min(segment.group_count / (4 * pool.thread_count()), kGrainBytes / segment.group_bytes));
  const auto pack_groups = [&](int64_t first, int64_t last) {
    pack_group_range(cpu, segment, rows, k, first, last, out + first * segment.group_bytes);
    report_done(segment, rows, first, last);
  };
  if (!pool.several_nodes()) return pool.parallel_for(segment.group_count, grain, pack_groups);
  // Each thread packs the share that it will read at decode: its pages are on its node.
  pool.run([&](int thread) {
    const int64_t share_end = segment.group_count * (thread + 1) / pool.thread_count();
    for (int64_t first = segment.group_count * thread / pool.thread_count(); first < share_end;
         first += grain) {
      pack_groups(first, std::min(first + grain, share_end));
    }
  });
}

}  // namespace

void LinearSource::read(std::span<const int64_t> rows, std::byte* out) const {
  const int64_t bytes = *row_bytes(weight.dtype, weight.columns());
  if (reader == nullptr) {
    for (const int64_t row : rows) {
      std::memcpy(out, weight.row(row), static_cast<size_t>(bytes));
      out += bytes;
    }
    return;
  }
  std::vector<int64_t> of_reader(rows.begin(), rows.end());
  for (int64_t& row : of_reader) row += first_row;
  reader->read(of_reader, first_column, weight.columns(), out);
}

Result<LinearWeight> LinearWeight::pack(Device& device, std::span<const LinearSource> sources,
                                        LinearCompute compute) {
  HR_RETURN_IF_ERROR(check_sources(device, sources, compute));
  if (device.kind() == DeviceKind::kCuda) return pack_on_cuda(device, sources, compute);
  return pack_groups(device, sources, compute);
}

Result<LinearWeight> LinearWeight::start_pack(Device& device, Uploader& uploader,
                                              std::span<const LinearSource> sources,
                                              LinearCompute compute) {
  HR_RETURN_IF_ERROR(check_sources(device, sources, compute));
  if (device.kind() == DeviceKind::kCpu) return pack_groups(device, sources, compute);
  if (all_float8(sources, compute)) return start_float8(device, uploader, sources, compute);
  return all_blocks(sources, compute) ? start_groups(device, uploader, sources, compute)
                                      : start_matrix(device, uploader, sources, compute);
}

Result<LinearWeight> LinearWeight::pack_on_cuda(Device& device,
                                                std::span<const LinearSource> sources,
                                                LinearCompute compute) {
  HR_RETURN_IF_ERROR(device.gemm_library().status());  // what will multiply it
  Uploader uploader(device, 1);
  HR_ASSIGN_OR_RETURN(LinearWeight weight, start_pack(device, uploader, sources, compute));
  HR_RETURN_IF_ERROR(uploader.finish());
  return weight;
}

Result<std::pair<LinearWeight, int64_t>> LinearWeight::plan_groups(
    std::span<const LinearSource> sources, LinearCompute compute) {
  LinearWeight weight;
  weight.compute_ = compute;
  weight.k_ = sources[0].weight.columns();
  const StackedRows rows(sources);
  weight.n_ = rows.count();
  weight.segments_ = plan_segments(rows, compute, weight.k_);
  for (size_t i = 0; i < sources.size(); ++i) {
    weight.part_rows_.push_back(rows.end_row(i) - rows.first_row(i));
  }
  int64_t bytes = 0;
  for (const Segment& segment : weight.segments_)
    bytes += segment.group_count * segment.group_bytes;
  return std::pair(std::move(weight), bytes);
}

Result<std::optional<LinearWeight>> LinearWeight::restore(Device& device,
                                                          std::span<const LinearSource> sources,
                                                          LinearCompute compute,
                                                          std::span<const std::byte> packed) {
  CHECK(device.kind() == DeviceKind::kCpu);
  HR_RETURN_IF_ERROR(check_sources(device, sources, compute));
  HR_ASSIGN_OR_RETURN(auto planned, plan_groups(sources, compute));
  auto& [weight, bytes] = planned;
  if (static_cast<int64_t>(packed.size()) != bytes) return std::optional<LinearWeight>();
  weight.buffer_ = Buffer(&device, nullptr, bytes);
  const std::byte* at = packed.data();
  for (Segment& segment : weight.segments_) {
    segment.data = at;
    at += segment.group_count * segment.group_bytes;
  }
  return std::optional(std::move(weight));
}

namespace {

// Sources with the orders of their rows.
struct OwnedSources {
  explicit OwnedSources(std::span<const LinearSource> from) : sources(from.begin(), from.end()) {
    row_orders.reserve(sources.size());
    for (LinearSource& source : sources) {
      source.row_order = row_orders.emplace_back(source.row_order.begin(), source.row_order.end());
    }
  }
  OwnedSources(OwnedSources&&) = default;  // not copied: `sources` points into `row_orders`

  std::vector<LinearSource> sources;
  std::vector<std::vector<int32_t>> row_orders;
};

}  // namespace

struct LinearWeight::Unpacked {
  Unpacked(std::span<const LinearSource> sources, const CpuFeatures& features,
           std::function<void(const LinearWeight&)> packed)
      : owned(sources), cpu(features), when_packed(std::move(packed)) {}

  OwnedSources owned;
  CpuFeatures cpu;
  std::function<void(const LinearWeight&)> when_packed;
};

Result<LinearWeight> LinearWeight::defer(Device& device, std::span<const LinearSource> sources,
                                         LinearCompute compute,
                                         std::function<void(const LinearWeight&)> when_packed) {
  CHECK(device.kind() == DeviceKind::kCpu);
  for (const LinearSource& source : sources) CHECK(!source.quantise_to);
  HR_RETURN_IF_ERROR(check_sources(device, sources, compute));
  HR_ASSIGN_OR_RETURN(auto planned, plan_groups(sources, compute));
  LinearWeight& weight = planned.first;
  auto unpacked = std::make_shared<Unpacked>(sources, device.traits().cpu, std::move(when_packed));
  weight.buffer_ = Buffer(&device, nullptr, planned.second);
  for (Segment& segment : weight.segments_) segment.data = nullptr;
  weight.unpacked_ = std::move(unpacked);
  return std::move(weight);
}

Status LinearWeight::reserve() {
  CHECK(!is_packed());
  HR_ASSIGN_OR_RETURN(buffer_, device().allocate(packed_bytes()));
  return ok_status();
}

void LinearWeight::pack_now() {
  CHECK(!is_packed() && buffer_.data() != nullptr);
  fill(unpacked_->owned.sources);
  const auto from = std::exchange(unpacked_, nullptr);
  if (from->when_packed) from->when_packed(*this);
}

void LinearWeight::pack_groups_to(const Segment& segment, int64_t first, int64_t last,
                                  std::byte* out) const {
  CHECK(!is_packed());
  const StackedRows rows(unpacked_->owned.sources);
  pack_group_range(unpacked_->cpu, segment, rows, k_, first, last, out);
  report_done(segment, rows, first, last);
}

Result<LinearWeight> LinearWeight::pack_groups(Device& device,
                                               std::span<const LinearSource> sources,
                                               LinearCompute compute) {
  HR_ASSIGN_OR_RETURN(auto planned, plan_groups(sources, compute));
  LinearWeight& weight = planned.first;
  HR_ASSIGN_OR_RETURN(weight.buffer_, device.allocate(planned.second));
  weight.fill(sources);
  return std::move(weight);
}

Result<LinearWeight> LinearWeight::start_groups(Device& device, Uploader& uploader,
                                                std::span<const LinearSource> sources,
                                                LinearCompute compute) {
  HR_ASSIGN_OR_RETURN(auto planned, plan_groups(sources, compute));
  LinearWeight& weight = planned.first;
  HR_ASSIGN_OR_RETURN(weight.buffer_, device.allocate(planned.second));
  struct Rows {  // of the stack, for as long as pieces of it are packed
    explicit Rows(std::span<const LinearSource> sources) : owned(sources), stacked(owned.sources) {}
    OwnedSources owned;
    StackedRows stacked;
  };
  const auto rows = std::make_shared<const Rows>(sources);
  std::byte* at = weight.buffer_.data();
  for (Segment& segment : weight.segments_) {
    segment.data = at;
    const auto pack = [rows, segment, k = weight.k_, cpu = device.traits().cpu](
                          int64_t first, int64_t last, std::byte* out) {
      pack_group_range(cpu, segment, rows->stacked, k, first, last, out);
    };
    uploader.start(at, segment.group_count, segment.group_bytes, pack);
    at += segment.group_count * segment.group_bytes;
  }
  return std::move(weight);
}

// Packs all segments.
void LinearWeight::fill(std::span<const LinearSource> sources) {
  const StackedRows rows(sources);
  std::byte* at = buffer_.data();
  for (Segment& segment : segments_) {
    segment.data = at;
    pack_segment(device(), segment, rows, k_, at);
    at += segment.group_count * segment.group_bytes;
  }
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

DType LinearWeight::main_dtype() const {
  if (segments_.empty()) return matrix_.dtype;
  return std::max_element(
             segments_.begin(), segments_.end(),
             [](const Segment& a, const Segment& b) { return a.row_count < b.row_count; })
      ->dtype;
}

std::vector<LinearWeight> LinearWeight::parts() const {
  CHECK(is_packed());
  std::vector<LinearWeight> parts;
  int64_t first = 0;
  for (const int64_t count : part_rows_) {
    const Segment* segment = segments_.data();
    while (first >= segment->first_row + segment->row_count) ++segment;
    const int64_t in_segment = first - segment->first_row;
    // A segment can hold several matrices, a matrix is in one segment.
    const int64_t groups = (count + kLanes - 1) / kLanes;
    const bool whole = in_segment % kLanes == 0 &&
                       (count % kLanes == 0 || in_segment + count == segment->row_count);
    if (!whole) return {};
    LinearWeight& part = parts.emplace_back();
    part.n_ = count;
    part.k_ = k_;
    part.segments_ = {{.dtype = segment->dtype,
                       .first_row = 0,
                       .row_count = count,
                       .group_count = groups,
                       .group_bytes = segment->group_bytes,
                       .data = segment->data + in_segment / kLanes * segment->group_bytes}};
    part.part_rows_ = {count};
    part.buffer_ = Buffer(buffer_.device(), nullptr, groups * segment->group_bytes);
    first += count;
  }
  return parts;
}

void LinearWeight::read_row(int64_t row, float* out) const {
  CHECK(row >= 0 && row < n_);
  const Segment* segment = segments_.data();
  while (row >= segment->first_row + segment->row_count) ++segment;
  const int64_t in_segment = row - segment->first_row;
  const int64_t lane = in_segment % kLanes;
  if (!is_packed()) {
    SourceRow found;
    std::vector<std::byte> made;
    StackedRows(unpacked_->owned.sources).find({&row, 1}, &found, made);
    return dequantise(found, k_, out);
  }
  const std::byte* group = segment->data + in_segment / kLanes * segment->group_bytes;
  if (is_quantised(segment->dtype)) return read_quantised_row(*segment, group, lane, k_, out);
  const int64_t size = dtype_info(segment->dtype).block_bytes;
  const int64_t run = segment->dtype == DType::kBF16 ? 2 : 1;  // columns side by side
  constexpr int64_t kChunk = 64;                               // columns
  std::byte chunk[kChunk * sizeof(float)];
  for (int64_t first = 0; first < k_; first += kChunk) {
    const int64_t count = std::min(kChunk, k_ - first);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t c = first + i;
      const int64_t element = (c / run * kLanes + lane) * run + c % run;
      std::memcpy(chunk + i * size, group + element * size, static_cast<size_t>(size));
    }
    dequantise({chunk, segment->dtype}, count, out + first);
  }
}

}  // namespace headrace
