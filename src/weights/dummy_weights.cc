#include "weights/dummy_weights.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "base/rng.h"
#include "tensor/quantised_row.h"

namespace headrace {
namespace {

constexpr float kSigma = 0.02f;
constexpr int64_t kRangeElements = 1 << 15;  // of one task: 0.5 ms of work

// FNV-1a: names become the counter's second word.
uint64_t name_hash(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

struct NormalPair {
  float first, second;
};

// Box and Muller (1958): two independent normals from the two halves of a hash. The largest is
// 6.8 sigma (u = 2^-33).
NormalPair normal_pair(uint64_t bits) {
  const float u = (static_cast<float>(bits >> 32) + 0.5f) * 0x1p-32f;
  const float angle =
      static_cast<float>(bits & 0xffffffff) * (0x1p-32f * 2.0f * std::numbers::pi_v<float>);
  const float radius = kSigma * std::sqrt(-2.0f * std::log(std::min(u, 1.0f)));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

NormalPair dummy_pair(uint64_t seed, uint64_t name, int64_t pair) {
  return normal_pair(
      counter_hash(seed, name, static_cast<uint64_t>(pair), RngPurpose::kDummyWeight));
}

// Elements [first, first + out.size()) of a tensor.
void generate(uint64_t seed, uint64_t name, int64_t first, std::span<float> out) {
  int64_t i = first;
  const int64_t last = first + static_cast<int64_t>(out.size());
  if (i < last && i % 2 == 1) out[0] = dummy_pair(seed, name, i++ / 2).second;
  for (; i + 1 < last; i += 2) {
    const NormalPair pair = dummy_pair(seed, name, i / 2);
    out[static_cast<size_t>(i - first)] = pair.first;
    out[static_cast<size_t>(i - first + 1)] = pair.second;
  }
  if (i < last) out[static_cast<size_t>(i - first)] = dummy_pair(seed, name, i / 2).first;
}

}  // namespace

float dummy_weight(uint64_t seed, std::string_view name, int64_t i) {
  float value = 0;
  generate(seed, name_hash(name), i, {&value, 1});
  return value;
}

void fill_dummy_tensor(ThreadPool& pool, uint64_t seed, const DummyTensor& tensor, float offset,
                       DType dtype, std::byte* out) {
  fill_dummy_elements(pool, seed, tensor, offset, dtype, 0, *tensor.shape.elements(), out);
}

void fill_dummy_elements(ThreadPool& pool, uint64_t seed, const DummyTensor& tensor, float offset,
                         DType dtype, int64_t from, int64_t count, std::byte* out) {
  const DTypeInfo& info = dtype_info(dtype);
  const uint64_t name = name_hash(tensor.name);
  const float mean = tensor.shape.rank() == 1 ? 1.0f : 0.0f;
  pool.parallel_for(count, kRangeElements, [&](int64_t first, int64_t last) {
    std::vector<float> values(static_cast<size_t>(std::min(last - first, kRangeElements)));
    for (; first < last; first += kRangeElements) {
      const std::span<float> part(values.data(),
                                  static_cast<size_t>(std::min(last - first, kRangeElements)));
      generate(seed, name, from + first, part);
      for (float& value : part) value = tensor.scale * (value + mean) - offset;
      const auto offset_bytes = static_cast<size_t>(first / info.block_elements * info.block_bytes);
      const auto bytes = static_cast<size_t>(*row_bytes(dtype, static_cast<int64_t>(part.size())));
      quantise_row(dtype, part, {out + offset_bytes, bytes});
    }
  });
}

Result<std::unique_ptr<DummyWeightSource>> DummyWeightSource::create(
    std::vector<DummyTensor> tensors, const DummyOptions& options) {
  std::vector<Entry> entries;
  entries.reserve(tensors.size());
  for (DummyTensor& tensor : tensors) {
    const bool exact = tensor.exact || tensor.shape.rank() == 1;
    const DType dtype = exact ? DType::kF32 : options.dtype;
    const auto bytes = tensor_bytes(dtype, tensor.shape);
    if (!bytes) {
      return invalid_argument(
          fmt::format("dummy weights: tensor {}: rows of shape {} are no whole blocks of {}",
                      tensor.name, tensor.shape.to_string(), dtype_name(dtype)),
          "dtype");
    }
    entries.push_back({std::move(tensor.name), tensor.shape, tensor.scale, tensor.below, dtype,
                       static_cast<size_t>(*bytes)});
  }
  return std::unique_ptr<DummyWeightSource>(new DummyWeightSource(std::move(entries), options));
}

DummyWeightSource::DummyWeightSource(std::vector<Entry> entries, const DummyOptions& options)
    : seed_(options.seed), entries_(std::move(entries)), pool_(options.threads) {
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
}

DummyWeightSource::Entry* DummyWeightSource::find(std::string_view name) const {
  const auto at =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const Entry& entry, std::string_view text) { return entry.name < text; });
  return at != entries_.end() && at->name == name ? &*at : nullptr;
}

bool DummyWeightSource::has(std::string_view name) const { return find(name) != nullptr; }

std::vector<std::string_view> DummyWeightSource::names() const {
  std::vector<std::string_view> names;
  names.reserve(entries_.size());
  for (const Entry& entry : entries_) names.push_back(entry.name);
  return names;
}

std::optional<WeightInfo> DummyWeightSource::info(std::string_view name) const {
  const Entry* entry = find(name);
  if (entry == nullptr) return std::nullopt;
  return WeightInfo{.name_in_file = entry->name,
                    .type = dtype_name(entry->dtype),
                    .dtype = entry->dtype,
                    .shape = entry->shape,
                    .bytes = static_cast<int64_t>(entry->bytes)};
}

Result<ConstTensorView> DummyWeightSource::get(std::string_view name) const {
  Entry* entry = find(name);
  if (entry == nullptr) {
    return not_found(fmt::format("dummy weights: tensor {}: not declared by the model", name),
                     std::string(name));
  }
  const std::lock_guard lock(mutex_);
  if (entry->memory == nullptr) {  // new std::byte[] is 16-byte aligned
    entry->memory = std::make_unique_for_overwrite<std::byte[]>(entry->bytes);
    fill_dummy_tensor(pool_, seed_, {entry->name, entry->shape, entry->scale}, /*offset=*/0,
                      entry->dtype, entry->memory.get());
    auto* const numbers = reinterpret_cast<float*>(entry->memory.get());
    for (int64_t i = 0; entry->below > 0 && i < *entry->shape.elements(); ++i) {
      numbers[i] = static_cast<float>(i % entry->below);
    }
  }
  return ConstTensorView(entry->memory.get(), entry->dtype, entry->shape);
}

Result<ConstTensorView> DummyWeightSource::get_matrix(std::string_view name, int64_t index) const {
  Entry* entry = find(name);
  if (entry == nullptr) return get(name);
  CHECK(entry->shape.rank() == 3 && index >= 0 && index < entry->shape[0]);
  const Shape matrix{entry->shape[1], entry->shape[2]};
  const std::lock_guard lock(mutex_);
  std::unique_ptr<std::byte[]>& memory = entry->matrices[index];
  if (memory == nullptr) {
    const int64_t elements = *matrix.elements();
    memory = std::make_unique_for_overwrite<std::byte[]>(
        static_cast<size_t>(*tensor_bytes(entry->dtype, matrix)));
    fill_dummy_elements(pool_, seed_, {entry->name, entry->shape, entry->scale}, /*offset=*/0,
                        entry->dtype, index * elements, elements, memory.get());
  }
  return ConstTensorView(memory.get(), entry->dtype, matrix);
}

void DummyWeightSource::release(const ConstTensorView& view) const {
  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_) {
    if (entry.memory != nullptr && entry.memory.get() == view.data) entry.memory.reset();
    std::erase_if(entry.matrices,
                  [&](const auto& matrix) { return matrix.second.get() == view.data; });
  }
}

}  // namespace headrace
