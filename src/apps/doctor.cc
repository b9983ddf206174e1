#include "apps/doctor.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "bench/machine_ceilings.h"
#include "stack/default_model.h"
#include "stack/hub_cache.h"
#include "tensor/cpu_topology.h"
#include "tensor/device.h"
#include "tensor/free_memory.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr double kGigabytes = 1e9;
constexpr int64_t kSmallestMemory = 1'000'000'000;  // holds a model of half a gigabyte
constexpr int64_t kSmallDisk = 5'000'000'000;       // a model of eight billion weights at 4 bits
constexpr int64_t kReadBytes = int64_t{256} << 20;  // more than caches hold
constexpr int kReadRepetitions = 3;
constexpr double kFewCpus = 2;

Finding finding(std::string_view about, Verdict verdict, std::string found,
                std::string remedy = {}) {
  Finding result;
  result.about = about;
  result.verdict = verdict;
  result.found = std::move(found);
  result.remedy = std::move(remedy);
  return result;
}

std::string file_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

fs::path nearest_folder(fs::path folder) {
  std::error_code error;
  while (!fs::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  return folder;
}

std::string numa_text(const CpuTopology& topology) {
  std::set<int32_t> nodes;
  for (const CpuPlace& cpu : topology.cpus) nodes.insert(cpu.node);
  return nodes.size() == 1 ? "1 NUMA node" : fmt::format("{} NUMA nodes", nodes.size());
}

}  // namespace

Finding cpu_finding(const CpuFeatures& features) {
  const std::string found = features.to_string();
  if (!features.avx2) {
    return finding("cpu", Verdict::kNote, found.empty() ? "no AVX2" : found,
                   "without AVX2 every product takes several times as long; if this is a virtual "
                   "machine, give it the host's CPU type");
  }
  return finding("cpu", Verdict::kGood, found);
}

Finding threads_finding(const std::string& root) {
  const CpuTopology topology = CpuTopology::read(root);
  std::set<int32_t> cores;
  for (const CpuPlace& cpu : topology.cpus) cores.insert(cpu.core);
  const ThreadPlacement placement = place_threads(topology, 0, CpuBinding::kAuto);
  std::string found = fmt::format("{} CPUs, {} cores, {}; {} threads compute", topology.cpus.size(),
                                  cores.size(), numa_text(topology), placement.thread_count);
  const auto cpus = static_cast<double>(cores.size());
  if (topology.quota_cpus < cpus) {
    return finding("threads", Verdict::kNote,
                   found + fmt::format("; a quota of {:.1f} CPUs", topology.quota_cpus),
                   "the control group holds the program back: raise its cpu.max (docker: --cpus) "
                   "to use all cores");
  }
  if (cpus < kFewCpus) {
    return finding("threads", Verdict::kNote, std::move(found), "more cores read memory faster");
  }
  return finding("threads", Verdict::kGood, std::move(found));
}

Finding memory_finding(const std::string& root) {
  const auto free = free_memory_bytes(root);
  if (!free) return finding("memory", Verdict::kNote, "the kernel does not say how much is free");
  std::string found = fmt::format("{:.1f} GB free", static_cast<double>(*free) / kGigabytes);
  if (*free < kSmallestMemory) {
    return finding("memory", Verdict::kTrouble, std::move(found),
                   "a model needs its file's size and about a tenth more: end other programs, or "
                   "raise the control group's memory.max (docker: --memory)");
  }
  return finding("memory", Verdict::kGood, std::move(found));
}

Finding huge_pages_finding(const std::string& root) {
  const std::string text = file_text(root + "/sys/kernel/mm/transparent_hugepage/enabled");
  if (text.find("[always]") != text.npos || text.find("[madvise]") != text.npos) {
    return finding("huge pages", Verdict::kGood, "transparent huge pages on request");
  }
  return finding("huge pages", Verdict::kNote, "no transparent huge pages",
                 "loading and prompts are slower; as root: echo madvise > "
                 "/sys/kernel/mm/transparent_hugepage/enabled");
}

Finding gpu_finding(const std::string& root) {
  std::error_code error;
  const bool node = fs::exists(root + "/dev/nvidia0", error);
  const bool driver = fs::exists(root + "/proc/driver/nvidia/version", error);
  if (!node && !driver) return finding("gpu", Verdict::kGood, "none of NVIDIA's: the CPU computes");
  if (!built_with_cuda()) {
    return finding("gpu", Verdict::kNote, "there is one, and this program was built without CUDA",
                   "install the CUDA package, or build with -DHEADRACE_CUDA=ON");
  }
  const auto device = create_cuda_device(0);
  if (device.ok()) {
    const DeviceTraits& traits = (*device)->traits();
    return finding("gpu", Verdict::kGood,
                   fmt::format("{}, {:.1f} GB of {:.1f} free", traits.name,
                               static_cast<double>((*device)->free_bytes()) / kGigabytes,
                               static_cast<double>(traits.memory_bytes) / kGigabytes));
  }
  return finding("gpu", Verdict::kTrouble, "there is one that cannot be used",
                 device.status().message());
}

Finding disk_finding(std::string_view about, const std::string& folder) {
  const fs::path there = nearest_folder(folder);
  if (::access(there.c_str(), W_OK | X_OK) != 0) {
    return finding(about, Verdict::kTrouble, fmt::format("{} cannot be written", there.string()),
                   "name another folder: HF_HOME for models, XDG_CACHE_HOME for what is kept of a "
                   "load");
  }
  struct statvfs disk;
  if (::statvfs(there.c_str(), &disk) != 0) {
    return finding(about, Verdict::kNote, fmt::format("{}: {}", folder, std::strerror(errno)));
  }
  const auto free = static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
  std::string found =
      fmt::format("{:.1f} GB free in {}", static_cast<double>(free) / kGigabytes, folder);
  if (free < kSmallDisk) {
    return finding(
        about, Verdict::kNote, std::move(found),
        "a model of 8 billion weights takes 5 GB: free some, or name a folder of another "
        "disk with HF_HOME");
  }
  return finding(about, Verdict::kGood, std::move(found));
}

Finding port_finding(uint16_t port) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int reuse = 1;
  ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int bound = ::bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  const int error = errno;
  ::close(descriptor);
  if (bound == 0) return finding("port", Verdict::kGood, fmt::format("{} is free", port));
  return finding("port", Verdict::kNote, fmt::format("{}: {}", port, std::strerror(error)),
                 "a server needs another: headrace serve --port N");
}

Finding read_rate_finding() {
  const auto device = create_cpu_device(0);
  const Result<double> rate = read_rate(*device, kReadBytes, kReadRepetitions);
  if (!rate.ok()) return finding("bandwidth", Verdict::kNote, rate.status().message());
  return finding("bandwidth", Verdict::kGood,
                 fmt::format("{:.1f} GB/s read from memory: a model of 1 GB answers with at most "
                             "{:.0f} tokens a second",
                             *rate / kGigabytes, *rate / kGigabytes));
}

std::vector<Finding> examine_machine(uint16_t port) {
  return {cpu_finding(CpuFeatures::detect()),
          threads_finding(),
          memory_finding(),
          read_rate_finding(),
          huge_pages_finding(),
          gpu_finding(),
          disk_finding("models", hub_cache_folder().string()),
          disk_finding("cache", program_cache_folder().string()),
          port_finding(port)};
}

std::string findings_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& each : findings) {
    text +=
        fmt::format("{:<8} {:<10}  {}\n", name_of(kVerdicts, each.verdict), each.about, each.found);
    if (!each.remedy.empty()) text += fmt::format("{:<8} {:<10}  {}\n", "", "", each.remedy);
  }
  return text;
}

Json findings_json(const std::vector<Finding>& findings) {
  Json list = Json::array();
  for (const Finding& each : findings) {
    Json row = Json::object()
                   .set("about", each.about)
                   .set("verdict", name_of(kVerdicts, each.verdict))
                   .set("found", each.found);
    if (!each.remedy.empty()) row.set("remedy", each.remedy);
    list.push(std::move(row));
  }
  return Json::object().set("findings", std::move(list)).set("trouble", has_trouble(findings));
}

bool has_trouble(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& each) { return each.verdict == Verdict::kTrouble; });
}

}  // namespace headrace
