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

Result<std::vector<std::shared_ptr<KvTiers>>> create_tiers(const StackOptions& options,
                                                           const KvPlan& kv,
                                                           std::span<const ModelRank> ranks) {
  const TierOptions& tiers = options.tiers;
  std::vector<std::shared_ptr<KvTiers>> created;
  if (tiers.disk_gib > 0 && tiers.host_gib <= 0) {
    return invalid_argument("--kv-disk-size lies below --kv-offloading-size: give both",
                            "kv_disk_size");
  }
  if (tiers.host_gib <= 0 || tiers.mode == PreemptionMode::kRecompute) return created;
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
  for (const ModelRank& rank : ranks) {
    const bool one = ranks.size() == 1;
    HR_ASSIGN_OR_RETURN(const KvPlan own,
                        plan_of_rank(kv, rank, ranks.size(), options.runner.kv_memory));
    const std::string name = one ? fmt::format("headrace-kv-{}", ::getpid())
                                 : fmt::format("headrace-kv-{}-{}", ::getpid(), created.size());
    HR_ASSIGN_OR_RETURN(auto of_rank,
                        KvTiers::create(*rank.device, own.page_bytes,
                                        {.host_pages = std::max(1, pages(tiers.host_gib)),
                                         .disk_pages = pages(tiers.disk_gib),
                                         .disk_path = folder / name}));
    created.push_back(std::move(of_rank));
  }
  return created;
}

Result<std::vector<TierSpec>> tier_specs(std::span<const std::shared_ptr<KvTiers>> tiers,
                                         PreemptionMode mode, Device& device) {
  std::vector<TierSpec> specs;
  if (tiers.empty()) return specs;
  // A page is one of every rank; a rank that found no disk leaves none to the others.
  int64_t page_bytes = 0;
  int32_t host_pages = tiers.front()->host_pages(), disk_pages = tiers.front()->disk_pages();
  for (const auto& of_rank : tiers) {
    page_bytes += of_rank->page_bytes();
    host_pages = std::min(host_pages, of_rank->host_pages());
    disk_pages = std::min(disk_pages, of_rank->disk_pages());
  }
  const bool by_cost = mode == PreemptionMode::kAuto;
  double host = 0;
  if (by_cost) {
    HR_ASSIGN_OR_RETURN(host, measure_page_load(device, page_bytes));
  }
  const double disk = host + static_cast<double>(page_bytes) / kDiskBytesPerSecond;
  specs.push_back({.pages = host_pages, .seconds_per_page = host});
  if (disk_pages == 0) return specs;
  specs.push_back({.pages = disk_pages, .seconds_per_page = by_cost ? disk : 0});
  return specs;
}

}  // namespace headrace
