// What needs NVRTC, which is beside LibTorch where that is for CUDA, but no GPU.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "kernels/cubin_cache.hpp"
#include "kernels/cuda_source.hpp"
#include "kernels/nvrtc.hpp"
#include "kernels/packaged_cubins.hpp"
#include "lockstep/core/error.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "unit/kernels/emulated_kernels.hpp"

namespace lockstep::kernels {
namespace {

class KernelCompiler : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      nvrtc_version();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

std::vector<int> numbers_before(const std::string& log, const std::string& words) {
  std::vector<int> numbers;
  const std::regex pattern("(\\d+) " + words);
  for (std::sregex_iterator match(log.begin(), log.end(), pattern), end; match != end; ++match)
    numbers.push_back(std::stoi((*match)[1]));
  return numbers;
}

/// With 64 registers a thread, 1,024 threads are on a multiprocessor at a time. The norms of wide rows, whose
/// threads keep up to 16 values of each tensor, need more.
int most_registers(const std::string& name) {
  return name.starts_with("add_norm_backward") || name.starts_with("rms_norm_backward") ? 128 : 64;
}

/// Instances that are compiled for one GPU only: those of float16 differ from those of bfloat16 in
/// conversions alone, and norms of 2 and 3 packs lie between those of 1 and 4.
bool is_between(const std::string& name) {
  const bool is_norm = name.starts_with("add_norm") || name.starts_with("rms_norm");
  return name.find("fp16") != std::string::npos ||
         (is_norm && (name.find(", 2") != std::string::npos || name.find(", 3") != std::string::npos));
}

TEST_F(KernelCompiler, EveryKernelFitsTheRegistersOfEveryGpu) {
  for (const auto& [source, name] : testing::kernel_instances()) {
    for (const char* architecture : {"sm_80", "sm_90a", "sm_100a"}) {
      if (is_between(name) && architecture != std::string("sm_90a")) continue;
      SCOPED_TRACE(name + " for " + architecture);
      std::string log;
      const Cubin cubin = compile_cuda(cuda_text(source), name, architecture, {"--ptxas-options=-v"}, &log);
      EXPECT_FALSE(cubin.symbol.empty());
      EXPECT_TRUE(
          cubin.bytes.starts_with("\x7f"
                                  "ELF"));
      EXPECT_EQ(log.find("warning"), std::string::npos) << log;
      for (const char* words : {"bytes stack frame", "bytes spill stores", "bytes spill loads"})
        EXPECT_EQ(numbers_before(log, words), std::vector<int>{0}) << words << ": " << log;
      const std::regex used("Used (\\d+) registers");
      std::smatch match;
      ASSERT_TRUE(std::regex_search(log, match, used)) << log;
      EXPECT_LE(std::stoi(match[1]), most_registers(name)) << log;
    }
  }
}

TEST_F(KernelCompiler, SaysInOneLineWhatIsWrong) {
  EXPECT_THROWS(compile_cuda("__global__ void broken() { nothing; }", "broken", "sm_80"), Error, "broken",
                "sm_80", "\"nothing\" is undefined");
  EXPECT_THROWS(compile_cuda("__global__ void f() {}", "f", "sm_1"), Error, "sm_1");
}

TEST(KernelSources, BeginWithArgumentsAndPrelude) {
  EXPECT_TRUE(cuda_text("cross_entropy").starts_with("// The structs that kernels get as arguments"));
  EXPECT_NE(cuda_text("cross_entropy").find("// What every kernel may use."), std::string::npos);
  EXPECT_THROWS(cuda_text("nothing"), UsageError, "nothing");
}

TEST(KernelCache, CompilesOnceForAllProcesses) {
  const testing::TemporaryFolder folder;
  const std::string bytes(
      "\x7f"
      "ELF\0\n\xff",
      7);
  int made = 0;
  const auto make = [&] {
    ++made;
    return Cubin{.symbol = "kernel", .bytes = bytes};
  };
  for (int process = 0; process < 3; ++process) {
    const Cubin cubin = CubinCache(folder.path() / "kernels").get("key", make);
    EXPECT_EQ(cubin.symbol, "kernel");
    EXPECT_EQ(cubin.bytes, bytes);
  }
  EXPECT_EQ(made, 1);
  CubinCache(folder.path() / "kernels").get("another key", make);
  EXPECT_EQ(made, 2);
  // Damaged files.
  for (const auto& each : std::filesystem::directory_iterator(folder.path() / "kernels"))
    std::filesystem::resize_file(each.path(), std::filesystem::file_size(each.path()) - 1);
  EXPECT_EQ(CubinCache(folder.path() / "kernels").get("key", make).bytes, bytes);
  EXPECT_EQ(made, 3);
  // No folder.
  EXPECT_EQ(CubinCache("").get("key", make).bytes, bytes);
  EXPECT_EQ(CubinCache("/proc/none").get("key", make).bytes, bytes);
  EXPECT_EQ(made, 5);
}

/// The kernels that packages have compiled.
TEST(PackagedKernels, AreAllInstances) {
  std::ifstream file(LOCKSTEP_KERNEL_INSTANCES);
  std::vector<std::string> listed, all;
  for (std::string line; std::getline(file, line);) listed.push_back(line);
  for (const auto& [source, name] : testing::kernel_instances()) all.push_back(source + ": " + name);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(listed, all) << "write these lines to " << LOCKSTEP_KERNEL_INSTANCES;
}

/// As scripts/make_kernels.py packs them.
class PackagedKernel : public KernelCompiler {
 protected:
  void pack(const std::string& architectures) const {
    const std::string command = std::string(LOCKSTEP_TEST_PYTHON) + " " + LOCKSTEP_MAKE_KERNELS + " " +
                                packages().string() + " --only column_totals --for " + architectures;
    ASSERT_EQ(std::system((command + " >/dev/null").c_str()), 0) << command;
  }
  std::filesystem::path packages() const { return folder_.path() / "packaged"; }
  std::filesystem::path cache() const { return folder_.path() / "cache"; }

  static KernelOfGpu kernel_of(const std::string& architecture, const std::string& source = "column_totals",
                               const std::string& instance = "column_totals") {
    return {.source = source, .instance = instance, .architecture = architecture};
  }
  std::optional<Cubin> find(const std::string& architecture) const {
    return PackagedCubins(packages()).find(kernel_of(architecture));
  }

  /// The code that a driver would get.
  std::string loaded_for(const std::string& architecture) const {
    std::string bytes;
    load_or_compile(kernel_of(architecture), PackagedCubins(packages()), CubinCache(cache()),
                    [&](const Cubin& cubin) -> void* {
                      bytes = cubin.bytes;
                      return nullptr;
                    });
    return bytes;
  }

  testing::TemporaryFolder folder_;
};

TEST_F(PackagedKernel, IsFoundByArchitectureAndText) {
  pack("sm_80 sm_90");
  const auto of_80 = find("sm_80"), of_90 = find("sm_90");
  ASSERT_TRUE(of_80 && of_90);
  const std::string text = cuda_text("column_totals");
  EXPECT_EQ(of_80->bytes, compile_cuda(text, "column_totals", "sm_80").bytes);
  EXPECT_EQ(of_90->bytes, compile_cuda(text, "column_totals", "sm_90").bytes);
  EXPECT_EQ(of_90->symbol, compile_cuda(text, "column_totals", "sm_90").symbol);
  // Of one generation, never of another or of a later one.
  EXPECT_EQ(find("sm_86")->bytes, of_80->bytes);
  for (const char* other : {"sm_75", "sm_100", "sm_120", "gfx90a", "sm_x"})
    EXPECT_FALSE(find(other)) << other;
  // Another kernel, and the same name in another text.
  EXPECT_FALSE(PackagedCubins(packages()).find(kernel_of("sm_90", "column_sums", "column_sums<bf16>")));
  EXPECT_FALSE(PackagedCubins(packages()).find(kernel_of("sm_90", "column_sums")));
}

TEST_F(PackagedKernel, ComesBeforeTheCacheAndTheCompiler) {
  pack("sm_90");
  EXPECT_EQ(loaded_for("sm_90"), find("sm_90")->bytes);
  EXPECT_FALSE(std::filesystem::exists(cache()));
  // Not packaged: compiled, and kept.
  EXPECT_EQ(loaded_for("sm_80"), compile_cuda(cuda_text("column_totals"), "column_totals", "sm_80").bytes);
  EXPECT_TRUE(std::filesystem::exists(cache()));
  // A damaged file is passed over.
  for (const auto& each : std::filesystem::directory_iterator(packages()))
    std::filesystem::resize_file(each.path(), std::filesystem::file_size(each.path()) - 1);
  EXPECT_FALSE(find("sm_90"));
  EXPECT_TRUE(loaded_for("sm_90").starts_with("\x7f"));
}

/// A driver that is older than the compiler of the package refuses its code.
TEST_F(PackagedKernel, IsCompiledIfTheDriverRefusesIt) {
  pack("sm_90");
  const std::string packaged = find("sm_90")->bytes;
  int place = 0;
  std::vector<bool> from_package;
  const auto load = [&](int most) {
    from_package.clear();
    return load_or_compile(kernel_of("sm_90"), PackagedCubins(packages()), CubinCache(cache()),
                           [&](const Cubin& cubin) -> void* {
                             EXPECT_EQ(cubin.bytes, packaged);
                             from_package.push_back(!std::filesystem::exists(cache()));
                             if (std::ssize(from_package) <= most) throw Error("too new");
                             return &place;
                           });
  };
  EXPECT_EQ(load(1), &place);
  EXPECT_EQ(from_package, (std::vector<bool>{true, false}));
  EXPECT_THROWS(load(2), Error, "too new", "came with the package");
}

}  // namespace
}  // namespace lockstep::kernels
