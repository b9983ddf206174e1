#include "models/dummy_lora.h"

#include <algorithm>
#include <numbers>
#include <set>

#include <fmt/format.h>

#include "base/rng.h"

namespace headrace {
namespace {

// Each is the sum of four uniform numbers of 16 bits, which is normal enough: an adapter of an 8B
// model has 40 million, and 32 of them are to be there in seconds.
std::vector<float> normal_floats(Rng& rng, int64_t count, float deviation) {
  std::vector<float> values(static_cast<size_t>(count));
  const float unit = deviation * std::numbers::sqrt3_v<float> / 65536.0f;
  for (float& value : values) {
    const uint64_t bits = rng.next();
    const auto sum = static_cast<int32_t>((bits & 0xffff) + (bits >> 16 & 0xffff) +
                                          (bits >> 32 & 0xffff) + (bits >> 48));
    value = unit * static_cast<float>(sum - 2 * 65536);
  }
  return values;
}

}  // namespace

LoraFile dummy_lora(std::span<const MatrixStack> sites, const DummyLoraOptions& options) {
  Rng rng(mix64(options.seed + 1));
  auto memory = std::make_shared<std::vector<std::vector<float>>>();
  const auto random = [&](int64_t rows, int64_t columns) {
    memory->push_back(normal_floats(rng, rows * columns, options.deviation));
    const auto* const data = reinterpret_cast<const std::byte*>(memory->back().data());
    return ConstTensorView(data, DType::kF32, Shape{rows, columns});
  };
  LoraFile file;
  file.path = fmt::format("random adapter {}", options.seed);
  file.rows_as_gguf = true;
  std::set<std::string> made;
  for (const MatrixStack& site : sites) {
    for (const MatrixStack::Rows& rows : site.rows) {
      if (!made.insert(rows.name).second) continue;
      LoraPair& pair = file.pairs.emplace_back();
      pair.tensor = rows.name + ".weight";
      pair.module_name = rows.name;
      pair.a = random(options.rank, site.columns_in_file());
      pair.b = random(rows.in_file(), options.rank);
      pair.scale = options.scale;
    }
  }
  std::ranges::sort(file.pairs, {}, &LoraPair::tensor);
  file.memory = std::move(memory);
  return file;
}

}  // namespace headrace
