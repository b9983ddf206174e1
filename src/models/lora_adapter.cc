#include "models/lora_adapter.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/rng.h"
#include "tensor/half.h"
#include "tensor/quantised_row.h"

namespace headrace {
namespace {

constexpr int64_t kFactorAlign = 64;
constexpr float kHalfMax = 65504.0f;

int64_t padded_stride(DType dtype, int64_t columns) {
  const int64_t whole = (columns + kLoraPad - 1) / kLoraPad * kLoraPad;
  return whole * dtype_info(dtype).block_bytes;
}
// Of A [rank, columns], and as much of B [columns, rank].
int64_t padded_bytes(DType dtype, int64_t rank, int64_t columns) {
  return (rank * padded_stride(dtype, columns) + kFactorAlign - 1) / kFactorAlign * kFactorAlign;
}

// Names of the matrices that `rows` are part of.
std::string tensor_of(const MatrixStack::Rows& rows) { return rows.name + ".weight"; }

}  // namespace

class LoraLoader {
 public:
  LoraLoader(const LoraFile& file, std::span<const MatrixStack> sites, Device& device,
             const LoraLoadOptions& options)
      : file_(file), sites_(sites), device_(device), options_(options) {}

  Result<std::shared_ptr<const LoraAdapter>> load() {
    HR_RETURN_IF_ERROR(check());
    HR_RETURN_IF_ERROR(options_.slots == nullptr ? load_on_cpu() : load_slot());
    adapter_->key_ = key();
    return std::shared_ptr<const LoraAdapter>(std::move(adapter_));
  }

 private:
  Status load_on_cpu() {
    adapter_->bytes_ = bytes();
    HR_ASSIGN_OR_RETURN(adapter_->memory_, device_.allocate(adapter_->bytes_));
    std::memset(adapter_->memory_.data(), 0, static_cast<size_t>(adapter_->memory_.size()));
    at_ = adapter_->memory_.data();
    for (const MatrixStack& site : sites_) HR_RETURN_IF_ERROR(load_site(site));
    return ok_status();
  }

  // --- in a slot ---

  // On a stream of its own, beside steps; a factor at a time.
  Status load_slot() {
    LoraSlots& slots = *options_.slots;
    CHECK(adapter_->rank_ <= slots.sizes().rank_max && options_.dtype == slots.view().dtype);
    HR_ASSIGN_OR_RETURN(adapter_->slot_, slots.take());
    adapter_->slots_ = options_.slots;
    device_.make_current();
    upload_ = device_.create_stream();
    std::vector<LoraScale> scales(static_cast<size_t>(slots.view().factor_count));
    for (size_t i = 0; i < sites_.size(); ++i) {
      const std::span<const LoraPlace> places = slots.places(static_cast<int32_t>(i));
      for (size_t f = 0; f < places.size(); ++f) {
        const MatrixStack::Rows& rows = sites_[i].rows[f];
        const LoraPair* const pair = file_.find(tensor_of(rows));
        if (pair == nullptr) continue;
        HR_RETURN_IF_ERROR(upload_a(*pair, sites_[i], places[f]));
        HR_RETURN_IF_ERROR(upload_b(*pair, rows, places[f]));
        scales[static_cast<size_t>(places[f].index)] = {scale_of(*pair),
                                                        lora_rank_tiles(pair->a.rows())};
      }
    }
    return upload(slots.scales(adapter_->slot_), std::as_bytes(std::span(scales)));
  }

  Status upload_a(const LoraPair& pair, const MatrixStack& site, const LoraPlace& place) {
    std::vector<std::byte> packed(
        static_cast<size_t>(lora_a_bytes(options_.dtype, pair.a.rows(), site.columns)));
    HR_RETURN_IF_ERROR(each_row_of_a(pair, site, [&](int64_t r, std::span<const float> row) {
      pack_lora_a(options_.dtype, packed.data(), r, row);
    }));
    return upload(options_.slots->memory(adapter_->slot_) + place.a, packed);
  }

  Status upload_b(const LoraPair& pair, const MatrixStack::Rows& rows, const LoraPlace& place) {
    std::vector<std::byte> packed(
        static_cast<size_t>(lora_b_bytes(options_.dtype, pair.a.rows(), rows.count)));
    HR_RETURN_IF_ERROR(each_row_of_b(pair, rows, [&](int64_t n, std::span<const float> row) {
      pack_lora_b(options_.dtype, packed.data(), n, row);
    }));
    return upload(options_.slots->memory(adapter_->slot_) + place.b, packed);
  }

  Status upload(std::byte* to, std::span<const std::byte> from) {
    adapter_->bytes_ += std::ssize(from);
    upload_->copy_in(to, from.data(), std::ssize(from));
    return upload_->synchronize();
  }

  // --- of both ---

  float scale_of(const LoraPair& pair) const {
    return static_cast<float>(pair.scale * options_.scale);
  }

  // take(r, the row's columns that the site has).
  Status each_row_of_a(const LoraPair& pair, const MatrixStack& site,
                       const std::function<void(int64_t, std::span<const float>)>& take) {
    std::vector<float> row(static_cast<size_t>(pair.a.columns()));
    for (int64_t r = 0; r < pair.a.rows(); ++r) {
      dequantise_row(pair.a, r, row.data());
      const std::span<const float> own = std::span(row).subspan(
          static_cast<size_t>(site.first_column), static_cast<size_t>(site.columns));
      HR_RETURN_IF_ERROR(check_values(pair, own));
      take(r, own);
    }
    return ok_status();
  }

  // take(n, row n of the product's): row order[n] of the file's matrix.
  Status each_row_of_b(const LoraPair& pair, const MatrixStack::Rows& rows,
                       const std::function<void(int64_t, std::span<const float>)>& take) {
    // An adapter's rows are in the order of Hugging Face's files, which is that of the product
    // where a GGUF file's rows are turned round.
    const bool in_order = rows.order.empty() || (options_.rows_interleaved && !file_.rows_as_gguf);
    std::vector<float> row(static_cast<size_t>(pair.a.rows()));
    for (int64_t n = 0; n < rows.count; ++n) {
      const int64_t from = in_order ? n : rows.order[static_cast<size_t>(n)];
      dequantise_row(pair.b, rows.first + from, row.data());
      HR_RETURN_IF_ERROR(check_values(pair, row));
      take(n, row);
    }
    return ok_status();
  }

  // Each is a number that the type has.
  Status check_values(const LoraPair& pair, std::span<const float> values) const {
    for (const float value : values) {
      if (!std::isfinite(value)) return wrong(pair, "it holds a NaN or infinity");
      if (options_.dtype == DType::kF16 && std::abs(value) > kHalfMax) {
        return wrong(pair, fmt::format("{} is beyond float16: use {}", value,
                                       options_.slots == nullptr ? "--lora-dtype float32"
                                                                 : "--dtype bfloat16"));
      }
    }
    return ok_status();
  }

  Status wrong(const LoraPair& pair, std::string_view what) const {
    return invalid_argument(fmt::format("{}: {}: {}", file_.path, pair.module_name, what), "lora");
  }

  // Every pair has a place, and fits it.
  Status check() {
    std::set<std::string, std::less<>> known;
    for (const MatrixStack& site : sites_) {
      for (const MatrixStack::Rows& rows : site.rows) {
        known.insert(tensor_of(rows));
        const LoraPair* const pair = file_.find(tensor_of(rows));
        if (pair != nullptr) HR_RETURN_IF_ERROR(check_pair(*pair, site, rows));
      }
    }
    for (const LoraPair& pair : file_.pairs) {
      if (!known.contains(pair.tensor)) {
        return wrong(pair, fmt::format("no adapter is supported on {} of this model: only on the "
                                       "projections of attention and of dense feed-forward layers",
                                       pair.tensor));
      }
    }
    return ok_status();
  }

  Status check_pair(const LoraPair& pair, const MatrixStack& site, const MatrixStack::Rows& rows) {
    const auto rank = static_cast<int32_t>(std::min<int64_t>(pair.a.rows(), 1 << 30));
    if (pair.a.columns() != site.columns_in_file() || pair.b.rows() != rows.in_file()) {
      return wrong(pair, fmt::format("lora_A has shape {} and lora_B {}, but the model's matrix "
                                     "has shape {}: the adapter is of another base model",
                                     pair.a.shape.to_string(), pair.b.shape.to_string(),
                                     site.shape_in_file(rows).to_string()));
    }
    if (rank > options_.rank_max) {
      return wrong(pair,
                   fmt::format("rank {} is over --max-lora-rank {}", rank, options_.rank_max));
    }
    adapter_->rank_ = std::max(adapter_->rank_, rank);
    return ok_status();
  }

  int64_t bytes() const {
    int64_t bytes = 0;
    for (const MatrixStack& site : sites_) {
      for (const MatrixStack::Rows& rows : site.rows) {
        const LoraPair* const pair = file_.find(tensor_of(rows));
        if (pair == nullptr) continue;
        bytes += padded_bytes(options_.dtype, pair->a.rows(), site.columns) +
                 padded_bytes(options_.dtype, pair->a.rows(), rows.count);
      }
    }
    return bytes;
  }

  Status load_site(const MatrixStack& site) {
    std::vector<LoraFactor>& factors = adapter_->factors_.emplace_back();
    int64_t first_column = 0;
    for (const MatrixStack::Rows& rows : site.rows) {
      const LoraPair* const pair = file_.find(tensor_of(rows));
      if (pair != nullptr) {
        LoraFactor factor{.scale = scale_of(*pair), .first_column = first_column};
        HR_ASSIGN_OR_RETURN(factor.a, load_a(*pair, site));
        HR_ASSIGN_OR_RETURN(factor.b, load_b(*pair, rows));
        factor.columns = rows.count;
        factors.push_back(factor);
      }
      first_column += rows.count;
    }
    return ok_status();
  }

  Result<ConstTensorView> load_a(const LoraPair& pair, const MatrixStack& site) {
    const TensorView a = take(pair.a.rows(), site.columns);  // [R, K]
    HR_RETURN_IF_ERROR(each_row_of_a(pair, site, [&](int64_t r, std::span<const float> row) {
      for (int64_t k = 0; k < site.columns; ++k) store(a, r, k, row[static_cast<size_t>(k)]);
    }));
    return ConstTensorView(a);
  }

  Result<ConstTensorView> load_b(const LoraPair& pair, const MatrixStack::Rows& rows) {
    const int64_t rank = pair.a.rows(), panels = (rows.count + kLoraPad - 1) / kLoraPad;
    const TensorView b = take(panels, rank * kLoraPad);  // LoraFactor::b
    HR_RETURN_IF_ERROR(each_row_of_b(pair, rows, [&](int64_t n, std::span<const float> row) {
      for (int64_t r = 0; r < rank; ++r) {
        store(b, n / kLoraPad, r * kLoraPad + n % kLoraPad, row[static_cast<size_t>(r)]);
      }
    }));
    return ConstTensorView(b);
  }

  TensorView take(int64_t rows, int64_t columns) {
    const TensorView view(at_, options_.dtype, Shape{rows, columns},
                          padded_stride(options_.dtype, columns));
    at_ += padded_bytes(options_.dtype, rows, columns);
    return view;
  }

  static void store(const TensorView& to, int64_t row, int64_t column, float value) {
    if (to.dtype == DType::kF32) {
      reinterpret_cast<float*>(to.row(row))[column] = value;
    } else {
      reinterpret_cast<uint16_t*>(to.row(row))[column] = float_to_half(value);
    }
  }

  // Also of what the file does not say.
  uint64_t key() const {
    uint64_t key = file_.checksum();
    key = mix64(key ^ static_cast<uint64_t>(options_.dtype == DType::kF32    ? 1
                                            : options_.dtype == DType::kBF16 ? 2
                                                                             : 0));
    if (options_.scale != 1.0) key = mix64(key ^ std::bit_cast<uint64_t>(options_.scale));
    return key == 0 ? 1 : key;
  }

  const LoraFile& file_;
  const std::span<const MatrixStack> sites_;
  Device& device_;
  const LoraLoadOptions& options_;
  std::shared_ptr<LoraAdapter> adapter_ = std::make_shared<LoraAdapter>();
  std::byte* at_ = nullptr;         // CPU: of the memory, what is not taken
  std::unique_ptr<Stream> upload_;  // of a slot
};

Result<std::shared_ptr<const LoraAdapter>> load_lora_adapter(const LoraFile& file,
                                                             std::span<const MatrixStack> sites,
                                                             Device& device,
                                                             const LoraLoadOptions& options) {
  CHECK((device.kind() == DeviceKind::kCpu) == (options.slots == nullptr));
  CHECK(options.slots != nullptr || options.dtype == DType::kF16 || options.dtype == DType::kF32);
  return LoraLoader(file, sites, device, options).load();
}

int64_t lora_workspace_bytes(std::span<const MatrixStack> sites, int64_t rows, int32_t rank_max) {
  size_t factors = 0;
  for (const MatrixStack& site : sites) factors = std::max(factors, site.rows.size());
  return lora_linear_workspace_bytes(rows, static_cast<int64_t>(factors) * rank_max);
}

int64_t lora_bytes_max(std::span<const MatrixStack> sites, int32_t rank, DType dtype) {
  int64_t bytes = 0;
  for (const MatrixStack& site : sites) {
    for (const MatrixStack::Rows& rows : site.rows) {
      bytes += padded_bytes(dtype, rank, site.columns) + padded_bytes(dtype, rank, rows.count);
    }
  }
  return bytes;
}

}  // namespace headrace
