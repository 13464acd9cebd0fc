#include <gtest/gtest.h>

#include <memory>

#include "interop/jobs.hpp"
#include "lockstep/core/error.hpp"
#include "process/affinity.hpp"
#include "unit/launch/host_tree.hpp"

namespace lockstep::launch {
namespace {

const std::vector<std::pair<std::string, BindingMode>> kModes{{"node", BindingMode::node},
                                                              {"socket", BindingMode::socket},
                                                              {"exclusive", BindingMode::exclusive},
                                                              {"core-complex", BindingMode::core_complex}};

/// The made-up hosts: packages, nodes, caches, cores, threads, GPUs.
std::vector<MadeUpHost> hosts() {
  return {{1, 1, 1, 4, 1, {-1, -1}},       {1, 1, 2, 4, 2, {0, 0, 0}},
          {2, 1, 2, 3, 2, {0, 0, 1, 1}},   {2, 2, 2, 2, 2, {3, 0, 3, 1, 2, 3}},
          {2, 1, 1, 5, 1, {1, 0, 1, 1}},   {1, 4, 1, 3, 2, {2, 2, 0, 0, 1, 3, 3, 3}},
          {4, 1, 4, 2, 1, {3, 2, 1, 0, 0}}};
}

/// All CPUs; without every third; the upper half of each node's first cores.
std::vector<CpuSet> shares(const MadeUpHost& host) {
  CpuSet thinned = host.all_cpus();
  CpuSet odd;
  for (const int cpu : host.all_cpus()) {
    if (cpu % 3 == 1) thinned.erase(cpu);
    if (cpu % 2 == 1) odd.insert(cpu);
  }
  return {host.all_cpus(), thinned, odd};
}

struct Case {
  std::string folder;
  std::pair<std::string, BindingMode> mode;
  std::size_t gpus;
  CpuSet allowed;

  std::string line() const {
    return folder + " " + mode.first + " " + std::to_string(gpus) + " " + cpu_list_text(allowed) + "\n";
  }
};

/// Like the peer's answer. Ours is for all ranks at once: one that is refused ends the job, as torchrun's
/// does.
std::string ours(const Case& tried) {
  const auto nodes = gpu_nodes({}, tried.folder + "/sys", tried.folder + "/proc");
  std::string text;
  try {
    for (const auto& cpus :
         cpus_by_device(tried.mode.second, read_topology(tried.folder + "/sys"), tried.allowed, nodes)) {
      text += (text.empty() ? "" : ";") + cpu_list_text(cpus);
    }
  } catch (const UsageError&) {
    return "error";
  }
  return text;
}

TEST(NumaBinding, IsThatOfTorch) {
  std::vector<std::unique_ptr<ScratchFolder>> folders;
  std::vector<Case> cases;
  std::string lines;
  for (const auto& host : hosts()) {
    folders.push_back(std::make_unique<ScratchFolder>());
    host.write(folders.back()->path());
    for (const auto& mode : kModes) {
      for (const auto& allowed : shares(host)) {
        cases.push_back({folders.back()->path(), mode, host.gpu_nodes.size(), allowed});
        lines += cases.back().line();
      }
    }
  }
  const std::string peer = std::string(LOCKSTEP_TESTS_DIR) + "/interop/numa_peer.py";
  const std::string list = folders.front()->write("cases", lines);
  std::istringstream answers(testing::run_program(LOCKSTEP_TEST_PYTHON, {"-B", peer, list}).out);
  int bound = 0;
  for (const auto& tried : cases) {
    std::string theirs;
    ASSERT_TRUE(std::getline(answers, theirs)) << tried.line();
    if (theirs.find("error") != std::string::npos) theirs = "error";
    bound += theirs == "error" ? 0 : 1;
    EXPECT_EQ(ours(tried), theirs) << tried.line();
  }
  EXPECT_GT(bound, 60) << "of " << cases.size();
}

}  // namespace
}  // namespace lockstep::launch
