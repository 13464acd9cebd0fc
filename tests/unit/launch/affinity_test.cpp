#include "process/affinity.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "config/devices.hpp"
#include "host_tree.hpp"
#include "launcher_process.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

using Texts = std::vector<std::string>;

Texts texts(const std::vector<CpuSet>& sets) {
  Texts result;
  for (const auto& set : sets) result.push_back(cpu_list_text(set));
  return result;
}

/// Each host is written once: it has hundreds of files.
const Topology& topology_of(const MadeUpHost& host) {
  static std::map<std::vector<int>, Topology> known;
  const std::vector<int> key{host.packages, host.nodes_per_package, host.caches_per_node,
                             host.cores_per_cache, host.threads_per_core};
  if (const auto found = known.find(key); found != known.end()) return found->second;
  const ScratchFolder folder;
  host.write(folder.path());
  return known[key] = read_topology(folder.file("sys"));
}

Texts blocks(const MadeUpHost& host, int ranks, const std::string& allowed = "") {
  return texts(
      cpu_blocks(topology_of(host), allowed.empty() ? host.all_cpus() : parse_cpu_list(allowed), ranks));
}

/// Two sockets of two nodes, each with two caches of two cores of two threads: 16 cores, 32 CPUs.
const MadeUpHost kLarge{2, 2, 2, 2, 2};

CpuSet cpus_of(const Topology& topology, int node) {
  CpuSet cpus;
  for (const auto& [number, cpu] : topology.cpus) {
    if (cpu.node == node) cpus.insert(number);
  }
  return cpus;
}

TEST(Topology, IsReadFromTheKernelsFiles) {
  const Topology topology = topology_of(kLarge);
  ASSERT_EQ(topology.cpus.size(), 32u);
  const Cpu& cpu = topology.cpus.at(16 + 11);
  EXPECT_EQ(cpu.core, 11);
  EXPECT_EQ(cpu.cache, 10);
  EXPECT_EQ(cpu.node, 2);
  EXPECT_EQ(cpu.package, 1);
  EXPECT_EQ(cpu_list_text(cpus_of(topology, 3)), "12-15,28-31");
}

TEST(Topology, IsSimpleWhereTheKernelTellsNothing) {
  const ScratchFolder folder;
  EXPECT_TRUE(read_topology(folder.path()).cpus.empty());
  EXPECT_EQ(texts(cpu_blocks(read_topology(folder.path()), {4, 5, 6, 7}, 2)), (Texts{"4-5", "6-7"}));
  std::filesystem::create_directories(folder.file("devices/system/cpu/cpu3"));
  std::filesystem::create_directories(folder.file("devices/system/cpu/cpufreq"));
  EXPECT_EQ(cpus_of(read_topology(folder.path()), 0), CpuSet{3});
}

TEST(CpuBlocks, KeepCoresWholeAndFollowNodes) {
  EXPECT_EQ(blocks(kLarge, 4), (Texts{"0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31"}));
  EXPECT_EQ(blocks(kLarge, 2), (Texts{"0-7,16-23", "8-15,24-31"})) << "whole nodes";
  EXPECT_EQ(blocks(kLarge, 16)[5], "5,21");
  EXPECT_EQ(blocks(kLarge, 8)[3], "6-7,22-23");
  EXPECT_EQ(blocks(kLarge, 1), Texts{"0-31"});
}

TEST(CpuBlocks, DifferByAtMostACoreWithinANode) {
  EXPECT_EQ(blocks({1, 1, 1, 8, 1}, 3), (Texts{"0-2", "3-5", "6-7"}));
  EXPECT_EQ(blocks({1, 2, 1, 4, 1}, 3), (Texts{"0-1", "2-3", "4-7"})) << "no block lies on two nodes";
  EXPECT_EQ(blocks({1, 3, 1, 2, 1}, 2), (Texts{"0-3", "4-5"}));
}

TEST(CpuBlocks, SplitCoresOnlyWhereRanksOutnumberThem) {
  EXPECT_EQ(blocks({1, 1, 1, 2, 2}, 3), (Texts{"0,2", "1", "3"})) << "siblings 0,2 and 1,3";
  EXPECT_EQ(blocks({1, 1, 1, 1, 2}, 2), (Texts{"0", "1"}));
  EXPECT_EQ(blocks({1, 1, 1, 2, 2}, 5), Texts{});
}

TEST(CpuBlocks, StayInsideWhatIsAllowed) {
  EXPECT_EQ(blocks(kLarge, 2, "2-5"), (Texts{"2-3", "4-5"}));
  EXPECT_EQ(blocks(kLarge, 3, "1,17,4,12"), (Texts{"1,17", "4", "12"}));
  EXPECT_EQ(blocks(kLarge, 3, "1,17"), Texts{});
}

/// Whatever the host, the share and the number of ranks: blocks do not overlap, none is empty, nothing is
/// left out.
TEST(CpuBlocks, ShareOutAllCpusOnce) {
  for (const MadeUpHost& host :
       {kLarge, MadeUpHost{1, 3, 1, 5, 1}, MadeUpHost{2, 1, 3, 2, 2}, MadeUpHost{1, 1, 1, 7, 4}}) {
    const Topology topology = topology_of(host);
    CpuSet allowed = host.all_cpus();
    for (int cpu = 0; cpu < host.cpus(); cpu += 5) allowed.erase(cpu);
    for (int ranks = 1; ranks <= static_cast<int>(allowed.size()); ++ranks) {
      const auto sets = cpu_blocks(topology, allowed, ranks);
      ASSERT_EQ(sets.size(), static_cast<std::size_t>(ranks));
      CpuSet all;
      std::size_t total = 0;
      for (const auto& set : sets) {
        EXPECT_FALSE(set.empty()) << ranks;
        all.insert(set.begin(), set.end());
        total += set.size();
      }
      EXPECT_EQ(all, allowed) << ranks;
      EXPECT_EQ(total, allowed.size()) << ranks;
    }
  }
}

Texts by_device(BindingMode mode, const std::vector<int>& nodes, const std::string& allowed = "0-31") {
  return texts(cpus_by_device(mode, topology_of(kLarge), parse_cpu_list(allowed), nodes));
}

TEST(CpusByDevice, AreThoseOfTorchrunsModes) {
  EXPECT_EQ(by_device(BindingMode::node, {1, 3}), (Texts{"4-7,20-23", "12-15,28-31"}));
  EXPECT_EQ(by_device(BindingMode::socket, {1, 3}), (Texts{"0-7,16-23", "8-15,24-31"}));
  EXPECT_EQ(by_device(BindingMode::exclusive, {0, 0, 0, 2}),
            (Texts{"0-1,16-17", "2,18", "3,19", "8-11,24-27"}));
  EXPECT_EQ(by_device(BindingMode::core_complex, {0, 0, 0}), (Texts{"0-1,16-17", "2-3,18-19", "0-1,16-17"}));
  EXPECT_EQ(by_device(BindingMode::core_complex, {0}, "1-3,17-19"), Texts{"2-3,18-19"})
      << "the larger share first";
}

TEST(CpusByDevice, SayWhatIsMissing) {
  EXPECT_THROW(by_device(BindingMode::node, {1}, "0-3"), UsageError);
  EXPECT_THROW(by_device(BindingMode::exclusive, {0, 0, 0}, "0-1,16-17"), UsageError);
}

TEST(NodesInTurn, AreThoseThatMayBeUsed) {
  EXPECT_EQ(nodes_in_turn(topology_of(kLarge), parse_cpu_list("0-3,9"), 3), (std::vector<int>{0, 2, 0}));
}

class Gpus : public ::testing::Test {
 protected:
  Gpus() { MadeUpHost{2, 1, 1, 1, 1, {0, 1, -1, 1}}.write(folder_.path()); }

  std::vector<int> nodes(const Environment& environment = {}) const {
    return gpu_nodes(environment, folder_.file("sys"), folder_.file("proc"));
  }
  std::string refusal(const Environment& environment = {}) const {
    try {
      nodes(environment);
    } catch (const UsageError& error) {
      return error.what();
    }
    ADD_FAILURE() << "nothing was refused";
    return "";
  }

  ScratchFolder folder_;
};

TEST_F(Gpus, AreFoundByTheDriversList) {
  EXPECT_EQ(nodes(), (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(nodes({{"CUDA_VISIBLE_DEVICES", "3,0"}}), (std::vector<int>{1, 0}));
  EXPECT_EQ(nodes({{"CUDA_VISIBLE_DEVICES", "GPU-01,GPU-00-made-up"}}), (std::vector<int>{1, 0}));
  EXPECT_EQ(nodes({{"CUDA_VISIBLE_DEVICES", "1,7,0"}}), std::vector<int>{1});
}

TEST_F(Gpus, AreFoundOnTheBusWithoutIt) {
  std::filesystem::remove_all(folder_.file("proc"));
  EXPECT_NE(refusal().find("neither"), std::string::npos);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string device = folder_.file("sys/bus/pci/devices/" + gpu_address(i));
    std::ofstream(device + "/vendor") << "0x10de\n";
    std::ofstream(device + "/class") << (i == 0 ? "0x030200\n" : "0x040300\n");
  }
  EXPECT_EQ(nodes(), std::vector<int>{0}) << "the other one is a sound device";
}

TEST_F(Gpus, WhosePlaceIsHiddenAreNamed) {
  std::filesystem::remove(folder_.file("sys/bus/pci/devices/" + gpu_address(1) + "/numa_node"));
  EXPECT_NE(refusal().find(gpu_address(1)), std::string::npos);
  EXPECT_NE(refusal({{"CUDA_VISIBLE_DEVICES", "MIG-1"}}).find("MIG-1"), std::string::npos);
}

/// With the CPUs of this host, as the plan asks the system what may be used.
class BindingPlan : public ::testing::Test {
 protected:
  std::vector<CpuBinding> plan(const RunOptions& options, int ranks,
                               const std::vector<int>& gpus = {}) const {
    const MadeUpHost host{1, 1, 1, *allowed_cpus().rbegin() + 1, 1, gpus};
    const ScratchFolder folder;
    host.write(folder.path());
    return cpu_bindings(options, ranks, {}, folder.file("sys"), folder.file("proc"), folder.file("dev"));
  }
  static RunOptions asked(const std::string& cpu_binding,
                          const std::optional<std::string>& numa_binding = {}) {
    RunOptions options;
    options.cpu_binding = cpu_binding;
    options.numa_binding = numa_binding;
    return options;
  }
  static int cpus() { return static_cast<int>(allowed_cpus().size()); }
};

TEST_F(BindingPlan, BindsRanksOfItsOwnAccordOnlyWhereItHelps) {
  EXPECT_EQ(plan({}, 1).size(), 0u) << "one rank";
  EXPECT_EQ(plan({}, cpus() + 1).size(), 0u) << "more ranks than CPUs";
  if (cpus() > 1) {
    EXPECT_EQ(plan({}, 2).size(), 2u);
    EXPECT_EQ(plan({}, 2, {0, 0}).size(), 0u) << "GPUs";
    EXPECT_EQ(plan(asked("block"), 2, {0, 0}).size(), 2u) << "asked for";
  }
  EXPECT_EQ(plan(asked("none"), 2).size(), 0u);
}

TEST_F(BindingPlan, RefusesWhatCannotBe) {
  EXPECT_THROW(plan(asked("block"), cpus() + 1), UsageError);
  EXPECT_THROW(plan(asked("none", "node"), 1), UsageError);
  EXPECT_THROW(plan(asked("auto", "node"), 2, {0}), UsageError) << "a rank without a GPU";
}

TEST_F(BindingPlan, NumaModesServeRanksWithAndWithoutGpus) {
  EXPECT_EQ(plan(asked("auto", "node"), 1, {0}).front().cpus, allowed_cpus());
  EXPECT_EQ(plan(asked("auto", "socket"), 3).size(), 3u);
  EXPECT_EQ(plan(asked("auto", "exclusive"), cpus()).back().cpus.size(), 1u);
}

TEST(ScopedBinding, HoldsForAWhile) {
  const CpuSet before = allowed_cpus();
  const CpuSet one{*before.begin()};
  {
    const ScopedBinding bound({one, std::nullopt});
    EXPECT_EQ(allowed_cpus(), one);
  }
  EXPECT_EQ(allowed_cpus(), before);
  EXPECT_THROW(ScopedBinding({{60'000}, std::nullopt}), Error);
  EXPECT_EQ(allowed_cpus(), before);
}

/// The lines that ranks wrote about themselves, in the order of ranks.
Texts allowed_lists(const Finished& job, int ranks) {
  Texts result;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string mark = "rank " + std::to_string(rank) + " Cpus_allowed_list:\t";
    const auto at = job.out.find(mark);
    if (at == std::string::npos) return {};
    result.push_back(job.out.substr(at + mark.size(), job.out.find('\n', at) - at - mark.size()));
  }
  return result;
}

Texts ranks_run_on(std::vector<std::string> flags, int ranks) {
  flags.insert(flags.begin(), {"run", "--nproc-per-node", std::to_string(ranks)});
  flags.insert(flags.end(), {"sh", "-c", "echo \"rank $RANK $(grep Cpus_allowed_list /proc/self/status)\""});
  return allowed_lists(launch(flags), ranks);
}

TEST(CpuBinding, IsInForceInTheRanks) {
  const CpuSet allowed = allowed_cpus();
  const int cpus = static_cast<int>(allowed.size());
  if (cpus < 2) GTEST_SKIP() << "this host gives one CPU only: there is nothing to share out";
  EXPECT_EQ(ranks_run_on({}, 2), texts(cpu_blocks(read_topology(), allowed, 2)));
  const Texts all(2, cpu_list_text(allowed));
  EXPECT_EQ(ranks_run_on({"--cpu-binding", "none"}, 2), all);
  EXPECT_EQ(ranks_run_on({"--cpu-binding=block"}, 1), Texts{all.front()});
  EXPECT_EQ(ranks_run_on({}, cpus + 1), Texts(static_cast<std::size_t>(cpus) + 1, all.front()));
}

TEST(CpuBinding, IsShownByADryRun) {
  const Finished job = launch({"run", "--dry-run", "--cpu-binding=block", "true"});
  EXPECT_NE(job.out.find("  on CPU"), std::string::npos) << job.out;
}

}  // namespace
}  // namespace lockstep::launch
