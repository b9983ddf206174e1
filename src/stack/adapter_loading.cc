#include "stack/adapter_loading.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/log.h"
#include "models/dummy_lora.h"
#include "models/lora_adapter.h"
#include "ops/linear/lora_linear.h"
#include "weights/lora_file.h"

namespace headrace {
namespace {

double in_mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

Result<AdapterBank::Adapters> load_adapter(const AdaptedModel& model, const AdapterSpec& spec,
                                           LoraLoadOptions options) {
  HR_ASSIGN_OR_RETURN(const LoraFile file, read_lora_file(spec.path, model.names));
  if (file.rows_as_gguf && !model.in_gguf) {
    return unsupported(fmt::format(
        "{}: an adapter in a .gguf file goes with a model in one: use its PEFT folder", spec.path));
  }
  options.scale = spec.scale;
  HR_ASSIGN_OR_RETURN(auto adapter,
                      load_lora_adapter(file, model.model.adapter_sites(), model.device, options));
  log_info("adapter {}: {}, rank {}, {} matrices, {:.1f} MiB", spec.name, spec.path,
           adapter->rank(), file.pairs.size(), in_mib(adapter->bytes()));
  return AdapterBank::Adapters(std::move(adapter));
}

LoraLoadOptions load_options(const AdapterOptions& options, const AdaptedModel& model) {
  return {.rank_max = options.rank_max,
          .dtype = options.dtype.value_or(model.dtype),
          .rows_interleaved = model.rows_interleaved,
          .slots = model.slots};
}

// On a GPU all of what a slot holds is taken, whatever the adapter has.
std::string slots_line(const LoraSlots& slots, size_t loaded) {
  const LoraSlots::Sizes sizes = slots.sizes();
  return fmt::format(
      "adapters: {} loaded; {} slots (--max-cpu-loras) of rank {} (--max-lora-rank) in the GPU's "
      "memory, {:.1f} MiB each, {:.1f} MiB in all",
      loaded, sizes.count, sizes.rank_max, in_mib(slots.bytes() / sizes.count),
      in_mib(slots.bytes()));
}

// The largest rank of the adapters of the start.
Result<int32_t> rank_at_start(const AdapterOptions& options, const AdaptedModel& model) {
  int64_t rank = options.dummies > 0 ? options.dummy_rank : 1;
  std::vector<AdapterSpec> specs = options.at_start;
  if (options.of_all) specs.push_back(*options.of_all);
  for (const AdapterSpec& spec : specs) {
    HR_ASSIGN_OR_RETURN(const LoraFile file, read_lora_file(spec.path, model.names));
    for (const LoraPair& pair : file.pairs) rank = std::max(rank, pair.a.rows());
  }
  // One that is over it is refused by name when it is loaded.
  return static_cast<int32_t>(std::min<int64_t>(rank, options.rank_max));
}

}  // namespace

int32_t adapters_max(const AdapterOptions& options) {
  if (options.enabled) return options.count_max;
  const auto at_start = static_cast<int32_t>(options.at_start.size());
  return at_start + options.dummies + (options.of_all ? 1 : 0);
}

Result<std::shared_ptr<LoraSlots>> make_adapter_slots(const AdapterOptions& options,
                                                      const AdaptedModel& model) {
  const DType activations = model.model.activation_dtype();
  if (options.dtype.value_or(activations) != activations) {
    return unsupported(fmt::format("--lora-dtype: on a GPU adapters are kept in {}, as the model "
                                   "computes: leave the flag out",
                                   dtype_name(activations)),
                       "lora-dtype");
  }
  for (const MatrixStack& site : model.model.adapter_sites()) {
    if (site.rows.size() <= kLoraPlacesMax) continue;
    return unsupported(fmt::format("--enable-lora: on a GPU the {} pieces of {} take no adapters: "
                                   "use --device cpu",
                                   site.rows.size(), site.rows.front().name),
                       "enable-lora");
  }
  LoraSlots::Sizes sizes{.count = adapters_max(options), .rank_max = options.rank_max};
  if (!options.enabled) {
    HR_ASSIGN_OR_RETURN(sizes.rank_max, rank_at_start(options, model));
  }
  const auto sites = model.model.adapter_sites();
  auto slots = LoraSlots::create(model.device, sites, sizes, activations);
  if (slots.ok()) return slots;
  return exhausted(fmt::format("{}: {} adapters of rank {} take {:.1f} MiB of it: lower "
                               "--max-cpu-loras or --max-lora-rank",
                               slots.status().message(), sizes.count, sizes.rank_max,
                               in_mib(LoraSlots::bytes(sites, sizes, activations))),
                   "max-cpu-loras");
}

Status check_adapters(const AdapterOptions& options, int32_t ranks) {
  if (!options.wanted()) return ok_status();
  if (ranks > 1) {
    return unsupported(
        "--enable-lora: adapters are not split over ranks: use "
        "--tensor-parallel-size 1",
        "enable-lora");
  }
  return ok_status();
}

Result<std::unique_ptr<AdapterBank>> make_adapter_bank(const AdapterOptions& options,
                                                       const AdaptedModel& model) {
  const auto sites = model.model.adapter_sites();
  if (sites.empty()) {
    return unsupported("--enable-lora: no matrix of this model takes adapters", "enable-lora");
  }
  const LoraLoadOptions load = load_options(options, model);
  auto bank = std::make_unique<AdapterBank>(
      options.count_max,
      [model, load](const AdapterSpec& spec) { return load_adapter(model, spec, load); });
  for (int32_t i = 0; i < options.dummies; ++i) {
    const LoraFile file =
        dummy_lora(sites, {.rank = options.dummy_rank, .seed = static_cast<uint64_t>(i)});
    HR_ASSIGN_OR_RETURN(auto adapter, load_lora_adapter(file, sites, model.device, load));
    HR_RETURN_IF_ERROR(bank->add({.name = file.path}, std::move(adapter)));
  }
  for (const AdapterSpec& spec : options.at_start) HR_RETURN_IF_ERROR(bank->load(spec));
  if (options.of_all) HR_RETURN_IF_ERROR(bank->load(*options.of_all));
  return bank;
}

std::string adapter_plan_line(const AdapterOptions& options, const AdaptedModel& model,
                              const AdapterBank& bank) {
  int64_t bytes = 0;
  const auto loaded = bank.list();
  if (model.slots != nullptr) return slots_line(*model.slots, loaded.size());
  for (const auto& entry : loaded) bytes += entry.adapter->bytes();
  const int64_t most = lora_bytes_max(model.model.adapter_sites(), options.rank_max,
                                      load_options(options, model).dtype);
  return fmt::format(
      "adapters: {} loaded, {:.1f} MiB; at most {} (--max-cpu-loras) of rank {} (--max-lora-rank), "
      "up to {:.1f} MiB each, beside the memory for keys and values",
      loaded.size(), in_mib(bytes), options.count_max, options.rank_max, in_mib(most));
}

}  // namespace headrace
