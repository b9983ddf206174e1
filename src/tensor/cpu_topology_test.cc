#include "tensor/cpu_topology.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace headrace::cpu_topology_test {
namespace {

namespace fs = std::filesystem;

// A machine as /sys and /proc would show it.
class FakeMachine {
 public:
  FakeMachine() : root_(fs::path(testing::TempDir()) / "cpu_topology_test") {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~FakeMachine() { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    const fs::path at = root_ / path;
    fs::create_directories(at.parent_path());
    std::ofstream(at) << text << '\n';
  }
  void add_cpu(int cpu, const std::string& siblings, int capacity = 1024) const {
    const std::string folder = "sys/devices/system/cpu/cpu" + std::to_string(cpu);
    write(folder + "/topology/thread_siblings_list", siblings);
    write(folder + "/cpu_capacity", std::to_string(capacity));
  }
  void add_nodes(const std::vector<std::string>& cpu_lists) const {
    write("sys/devices/system/node/online", "0-" + std::to_string(cpu_lists.size() - 1));
    for (size_t i = 0; i < cpu_lists.size(); ++i) {
      write("sys/devices/system/node/node" + std::to_string(i) + "/cpulist", cpu_lists[i]);
    }
  }
  CpuTopology read(std::vector<int32_t> affinity) const {
    return CpuTopology::read(root_.string(), std::move(affinity));
  }

 private:
  fs::path root_;
};

// Two nodes of two cores of two threads: CPUs c and c + 4 share core c, node 0 has cores 0 and 1.
FakeMachine two_nodes() {
  FakeMachine machine;
  for (int cpu = 0; cpu < 8; ++cpu) {
    const int core = cpu % 4;
    machine.add_cpu(cpu, std::to_string(core) + "," + std::to_string(core + 4));
  }
  machine.add_nodes({"0-1,4-5", "2-3,6-7"});
  return machine;
}

TEST(CpuTopology, ThisMachineHasACpu) {
  const CpuTopology topology = CpuTopology::read();
  ASSERT_FALSE(topology.cpus.empty());
  EXPECT_GT(topology.quota_cpus, 0);
  EXPECT_GE(place_threads(topology, 0, CpuBinding::kAuto).thread_count, 1);
}

TEST(CpuTopology, NothingKnownIsOneNodeOfCores) {
  const CpuTopology topology = FakeMachine().read({3, 5});
  ASSERT_EQ(topology.cpus.size(), 2u);
  EXPECT_EQ(topology.cpus[1].core, 5);
  const ThreadPlacement placement = place_threads(topology, 0, CpuBinding::kAuto);
  EXPECT_EQ(placement.thread_count, 2);
  EXPECT_EQ(placement.cpus, (std::vector<std::vector<int32_t>>{{3}, {5}}));
  EXPECT_FALSE(placement.several_nodes);
  EXPECT_TRUE(place_threads(topology, 1, CpuBinding::kAuto).cpus.empty());
}

TEST(CpuTopology, OneThreadACoreSharesOfANodeTogether) {
  const CpuTopology topology = two_nodes().read({0, 1, 2, 3, 4, 5, 6, 7});
  const ThreadPlacement cores = place_threads(topology, 0, CpuBinding::kCore);
  EXPECT_EQ(cores.thread_count, 4);
  EXPECT_EQ(cores.cpus, (std::vector<std::vector<int32_t>>{{0}, {1}, {2}, {3}}));
  EXPECT_TRUE(cores.several_nodes);
  const ThreadPlacement nodes = place_threads(topology, 3, CpuBinding::kNode);
  EXPECT_EQ(nodes.cpus,
            (std::vector<std::vector<int32_t>>{{0, 1, 4, 5}, {0, 1, 4, 5}, {2, 3, 6, 7}}));
  // Hardware threads that share a core come last, but beside their node's others.
  const ThreadPlacement six = place_threads(topology, 6, CpuBinding::kCore);
  EXPECT_EQ(six.cpus, (std::vector<std::vector<int32_t>>{{0}, {1}, {4}, {5}, {2}, {3}}));
  EXPECT_TRUE(place_threads(topology, 9, CpuBinding::kCore).cpus.empty());
  EXPECT_TRUE(place_threads(topology, 4, CpuBinding::kNone).cpus.empty());
}

TEST(CpuTopology, RanksHaveTheThreadsOfTheirNode) {
  const FakeMachine machine = two_nodes();
  const CpuTopology topology = machine.read({0, 1, 2, 3, 4, 5, 6, 7});
  const ThreadPlacement all = place_threads(topology, 4, CpuBinding::kCore);
  const ThreadPlacement first = placement_of_rank(all, 0, 2);
  const ThreadPlacement second = placement_of_rank(all, 1, 2);
  EXPECT_EQ(first.thread_count, 2);
  EXPECT_EQ(first.cpus, (std::vector<std::vector<int32_t>>{{0}, {1}}));
  EXPECT_EQ(second.cpus, (std::vector<std::vector<int32_t>>{{2}, {3}}));
  // Three of four threads' ranks: all threads are somebody's.
  int32_t threads = 0;
  for (const int32_t rank : {0, 1, 2}) threads += placement_of_rank(all, rank, 3).thread_count;
  EXPECT_EQ(threads, 4);
  // More ranks than threads: each has one, bound to nothing.
  const ThreadPlacement few = placement_of_rank(all, 6, 7);
  EXPECT_EQ(few.thread_count, 1);
  EXPECT_TRUE(few.cpus.empty());
}

TEST(CpuTopology, AMaskedSiblingLeavesItsCore) {
  const CpuTopology topology = two_nodes().read({5, 6, 7});
  EXPECT_EQ(place_threads(topology, 0, CpuBinding::kNone).thread_count, 3);
}

TEST(CpuTopology, SlowCoresAreLeftOut) {
  FakeMachine machine;
  for (int cpu = 0; cpu < 4; ++cpu) machine.add_cpu(cpu, cpu < 2 ? "0-1" : "2-3");
  for (int cpu = 4; cpu < 8; ++cpu) machine.add_cpu(cpu, std::to_string(cpu), 600);
  const CpuTopology topology = machine.read({0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(place_threads(topology, 0, CpuBinding::kNone).thread_count, 2);
  const ThreadPlacement four = place_threads(topology, 4, CpuBinding::kCore);
  EXPECT_EQ(four.cpus, (std::vector<std::vector<int32_t>>{{0}, {2}, {4}, {5}}));
}

TEST(CpuTopology, SmallCoresByTheirListWhereThereIsNoCapacity) {
  FakeMachine machine;
  machine.write("sys/devices/cpu_atom/cpus", "2-3");
  EXPECT_EQ(place_threads(machine.read({0, 1, 2, 3}), 0, CpuBinding::kNone).thread_count, 2);
}

TEST(CpuTopology, QuotaOfAnyGroupAbove) {
  FakeMachine machine;
  machine.write("proc/self/cgroup", "0::/a/b");
  machine.write("sys/fs/cgroup/a/b/cpu.max", "max 100000");
  machine.write("sys/fs/cgroup/a/cpu.max", "150000 100000");
  const CpuTopology topology = machine.read({0, 1, 2, 3});
  EXPECT_DOUBLE_EQ(topology.quota_cpus, 1.5);
  EXPECT_EQ(place_threads(topology, 0, CpuBinding::kNone).thread_count, 2);
}

TEST(CpuTopology, QuotaOfTheFirstVersionOfGroups) {
  FakeMachine machine;
  machine.write("proc/self/cgroup", "9:memory:/x\n4:cpu,cpuacct:/docker/1");
  machine.write("sys/fs/cgroup/cpu/docker/1/cpu.cfs_quota_us", "300000");
  machine.write("sys/fs/cgroup/cpu/docker/1/cpu.cfs_period_us", "100000");
  EXPECT_DOUBLE_EQ(machine.read({0, 1, 2, 3}).quota_cpus, 3);
  machine.write("sys/fs/cgroup/cpu/docker/1/cpu.cfs_quota_us", "-1");
  EXPECT_GT(machine.read({0, 1, 2, 3}).quota_cpus, 1e6);
}

TEST(CpuTopology, AQuotaBindsNobodyByDefault) {
  const FakeMachine machine = two_nodes();
  machine.write("proc/self/cgroup", "0::/");
  machine.write("sys/fs/cgroup/cpu.max", "400000 100000");
  const CpuTopology topology = machine.read({0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_TRUE(place_threads(topology, 0, CpuBinding::kAuto).cpus.empty());
}

}  // namespace
}  // namespace headrace::cpu_topology_test
