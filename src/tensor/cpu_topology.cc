#include "tensor/cpu_topology.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "tensor/cgroup.h"

namespace headrace {
namespace {

// Cores slower than this part of the fastest do not compute by default.
constexpr int32_t kFastCapacity = 1024 * 3 / 4;
constexpr int32_t kNodesMax = 1024;

std::optional<std::string> read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<int64_t> read_number(const std::string& path) {
  const auto line = read_line(path);
  if (!line) return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(line->data(), line->data() + line->size(), value);
  return error == std::errc() && end != line->data() ? std::optional(value) : std::nullopt;
}

// "0-3,8" -> 0 1 2 3 8
std::set<int32_t> parse_cpu_list(const std::string& text) {
  std::set<int32_t> cpus;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    int32_t first = 0;
    const char* const last_char = part.data() + part.size();
    const auto [dash, error] = std::from_chars(part.data(), last_char, first);
    if (error != std::errc() || first < 0) continue;
    int32_t last = first;
    if (dash != last_char && *dash == '-') std::from_chars(dash + 1, last_char, last);
    for (int32_t cpu = first; cpu <= std::min(last, first + CPU_SETSIZE); ++cpu) cpus.insert(cpu);
  }
  return cpus;
}

std::vector<int32_t> own_affinity() {
  std::vector<int32_t> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

std::map<int32_t, int32_t> nodes_of_cpus(const std::string& root) {
  std::map<int32_t, int32_t> nodes;
  const auto online = read_line(root + "/sys/devices/system/node/online");
  for (const int32_t node : parse_cpu_list(online.value_or("0"))) {
    if (node >= kNodesMax) break;
    const auto list =
        read_line(fmt::format("{}/sys/devices/system/node/node{}/cpulist", root, node));
    for (const int32_t cpu : parse_cpu_list(list.value_or(""))) nodes[cpu] = node;
  }
  return nodes;
}

CpuPlace read_place(const std::string& root, int32_t cpu) {
  CpuPlace place{.cpu = cpu, .core = cpu};
  const std::string folder = fmt::format("{}/sys/devices/system/cpu/cpu{}", root, cpu);
  const auto siblings = read_line(folder + "/topology/thread_siblings_list");
  if (siblings) {
    const std::set<int32_t> cpus = parse_cpu_list(*siblings);
    if (cpus.contains(cpu)) place.core = *cpus.begin();
  }
  if (const auto capacity = read_number(folder + "/cpu_capacity")) {
    place.capacity = static_cast<int32_t>(std::clamp<int64_t>(*capacity, 1, 1024));
  }
  return place;
}

// Kernels without cpu_capacity on x86 list a hybrid CPU's small cores here.
void mark_small_cores(const std::string& root, std::vector<CpuPlace>& cpus) {
  const auto list = read_line(root + "/sys/devices/cpu_atom/cpus");
  if (!list) return;
  const std::set<int32_t> small = parse_cpu_list(*list);
  for (CpuPlace& place : cpus) {
    if (small.contains(place.cpu)) place.capacity = std::min(place.capacity, kFastCapacity - 1);
  }
}

// ---- quotas: each group on the way from the process's own up to the mount's root may have one

double quota_v2(const std::string& folder) {
  const auto line = read_line(folder + "/cpu.max");
  if (!line) return 1e9;
  std::istringstream in(*line);
  double quota = 0, period = 0;
  return in >> quota >> period && quota > 0 && period > 0 ? quota / period : 1e9;
}

double quota_v1(const std::string& folder) {
  const auto quota = read_number(folder + "/cpu.cfs_quota_us");
  const auto period = read_number(folder + "/cpu.cfs_period_us");
  if (!quota || !period || *quota <= 0 || *period <= 0) return 1e9;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

double read_quota(const std::string& root) {
  double least = 1e9;
  for (const CgroupFolder& folder : cgroup_folders("cpu", root)) {
    least = std::min(least, folder.v2 ? quota_v2(folder.path) : quota_v1(folder.path));
  }
  return least;
}

// ---- placement

// One CPU a core, fast cores first, cores of a node together; then the cores' other threads.
std::vector<CpuPlace> in_order_of_use(const CpuTopology& topology) {
  std::vector<CpuPlace> order = topology.cpus;
  std::set<int32_t> cores;
  std::map<int32_t, bool> second;  // by CPU: another thread of its core stands before it
  for (const CpuPlace& place : order) second[place.cpu] = !cores.insert(place.core).second;
  std::stable_sort(order.begin(), order.end(), [&](const CpuPlace& a, const CpuPlace& b) {
    const auto rank = [&](const CpuPlace& p) {
      return std::tuple(second[p.cpu], p.capacity < kFastCapacity, p.node);
    };
    return rank(a) < rank(b);
  });
  return order;
}

// Physical cores, small ones left out unless there are no others.
int32_t core_count(const CpuTopology& topology) {
  std::set<int32_t> cores;
  for (const CpuPlace& place : topology.cpus) {
    if (place.capacity >= kFastCapacity) cores.insert(place.core);
  }
  return static_cast<int32_t>(cores.empty() ? topology.cpus.size() : cores.size());
}

int32_t default_threads(const CpuTopology& topology) {
  const double cores = core_count(topology);
  return std::max(1, static_cast<int32_t>(std::min(cores, std::ceil(topology.quota_cpus))));
}

std::vector<int32_t> cpus_of_node(const CpuTopology& topology, int32_t node) {
  std::vector<int32_t> cpus;
  for (const CpuPlace& place : topology.cpus) {
    if (place.node == node) cpus.push_back(place.cpu);
  }
  return cpus;
}

// Threads that take a part of the machine leave it to the kernel which: others on it may have bound
// themselves to the same CPUs.
CpuBinding binding_by_default(const CpuTopology& topology, int32_t thread_count) {
  const bool whole = thread_count >= core_count(topology) &&
                     topology.quota_cpus >= static_cast<double>(topology.cpus.size());
  return whole ? CpuBinding::kCore : CpuBinding::kNone;
}

}  // namespace

CpuTopology CpuTopology::read(const std::string& root, std::vector<int32_t> affinity) {
  CpuTopology topology;
  if (affinity.empty()) affinity = own_affinity();
  const std::map<int32_t, int32_t> nodes = nodes_of_cpus(root);
  for (const int32_t cpu : affinity) {
    CpuPlace place = read_place(root, cpu);
    if (const auto found = nodes.find(cpu); found != nodes.end()) place.node = found->second;
    topology.cpus.push_back(place);
  }
  mark_small_cores(root, topology.cpus);
  topology.quota_cpus = read_quota(root);
  return topology;
}

ThreadPlacement place_threads(const CpuTopology& topology, int32_t thread_count,
                              CpuBinding binding) {
  ThreadPlacement placement{.thread_count =
                                thread_count > 0 ? thread_count : default_threads(topology)};
  if (binding == CpuBinding::kAuto) {
    binding = binding_by_default(topology, placement.thread_count);
  }
  const std::vector<CpuPlace> order = in_order_of_use(topology);
  // More threads than CPUs: the kernel has to share them out.
  if (binding == CpuBinding::kNone || placement.thread_count > static_cast<int32_t>(order.size())) {
    return placement;
  }
  std::vector<CpuPlace> used(order.begin(), order.begin() + placement.thread_count);
  std::stable_sort(used.begin(), used.end(),
                   [](const CpuPlace& a, const CpuPlace& b) { return a.node < b.node; });
  for (const CpuPlace& place : used) {
    placement.cpus.push_back(binding == CpuBinding::kCore ? std::vector{place.cpu}
                                                          : cpus_of_node(topology, place.node));
  }
  placement.several_nodes = used.front().node != used.back().node;
  return placement;
}

ThreadPlacement placement_of_rank(const ThreadPlacement& all, int32_t rank, int32_t ranks) {
  const int32_t first = all.thread_count * rank / ranks;
  const int32_t last = all.thread_count * (rank + 1) / ranks;
  ThreadPlacement placement{.thread_count = std::max(last - first, 1)};
  // Fewer threads than ranks: the kernel has to share the CPUs out.
  if (all.cpus.empty() || all.thread_count < ranks) return placement;
  placement.cpus.assign(all.cpus.begin() + first, all.cpus.begin() + last);
  placement.several_nodes = all.several_nodes;
  return placement;
}

void bind_this_thread(const std::vector<int32_t>& cpus) {
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int32_t cpu : cpus) CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

BoundScope::BoundScope(const std::vector<int32_t>& cpus) {
  if (cpus.empty()) return;
  before_ = own_affinity();
  bind_this_thread(cpus);
}

}  // namespace headrace
