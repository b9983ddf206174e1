#include "stack/tier_planning.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include <fmt/format.h>

namespace headrace {
namespace {

// What a disk is taken to read: an NVMe drive's order. Not measured: the file is in memory at
// first.
constexpr double kDiskBytesPerSecond = 1e9;

}  // namespace

int64_t tier_bytes(const TierOptions& options) {
  if (options.mode == PreemptionMode::kRecompute) return 0;
  return static_cast<int64_t>(std::max(0.0, options.host_gib) * (1 << 30));
}

Result<std::shared_ptr<KvTiers>> create_tiers(const StackOptions& options, const KvPlan& kv,
                                              Device& device) {
  const TierOptions& tiers = options.tiers;
  if (tiers.disk_gib > 0 && tiers.host_gib <= 0) {
    return invalid_argument("--kv-disk-size lies below --kv-offloading-size: give both",
                            "kv_disk_size");
  }
  if (tiers.host_gib <= 0 || tiers.mode == PreemptionMode::kRecompute) {
    return std::shared_ptr<KvTiers>();
  }
  if (!options.engine.scheduler.enable_prefix_caching ||
      options.runner.kv_memory == KvMemoryKind::kContiguous) {
    return invalid_argument(
        "--kv-offloading-size keeps pages that the prefix cache finds again: not with "
        "--no-enable-prefix-caching or --kv-memory contiguous",
        "kv_offloading_size");
  }
  const auto pages = [&](double gib) {
    const double count = gib * (1 << 30) / static_cast<double>(kv.page_bytes);
    return static_cast<int32_t>(std::min(count, double{1 << 29}));
  };
  const std::filesystem::path folder = tiers.disk_path.empty()
                                           ? std::filesystem::temp_directory_path()
                                           : std::filesystem::path(tiers.disk_path);
  const std::string file = folder / fmt::format("headrace-kv-{}", ::getpid());
  return KvTiers::create(device, kv.page_bytes,
                         {.host_pages = std::max(1, pages(tiers.host_gib)),
                          .disk_pages = pages(tiers.disk_gib),
                          .disk_path = file});
}

Result<std::vector<TierSpec>> tier_specs(const KvTiers* tiers, PreemptionMode mode,
                                         Device& device) {
  std::vector<TierSpec> specs;
  if (tiers == nullptr) return specs;
  const bool by_cost = mode == PreemptionMode::kAuto;
  double host = 0;
  if (by_cost) {
    HR_ASSIGN_OR_RETURN(host, measure_page_load(device, tiers->page_bytes()));
  }
  const double disk = host + static_cast<double>(tiers->page_bytes()) / kDiskBytesPerSecond;
  specs.push_back({.pages = tiers->host_pages(), .seconds_per_page = host});
  if (tiers->disk_pages() == 0) return specs;
  specs.push_back({.pages = tiers->disk_pages(), .seconds_per_page = by_cost ? disk : 0});
  return specs;
}

}  // namespace headrace
