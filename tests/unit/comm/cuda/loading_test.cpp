// When the CUDA library is loaded decides whether LibTorch ever finds CUDA in a process. Every case is a
// process of its own: a death test of the "threadsafe" style starts this program again, with the environment
// that is set here.
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "comm/cuda/plugin.hpp"
#include "lockstep/comm/cuda.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/train/accelerator.hpp"

namespace lockstep::comm {
namespace {

class CudaLoading : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    // No driver is used, also where there is one.
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    unsetenv("LOCKSTEP_CUDA");
  }
};

[[noreturn]] void end(const std::string& words) {
  std::cerr << words << std::flush;
  _exit(0);
}

std::string hooks() {
  return at::detail::getCUDAHooks().hasCUDART() ? "hooks of CUDA" : "hooks without CUDA";
}

[[noreturn]] void seed_and_look() {
  at::manual_seed(1);
  end(hooks() + (loaded_cuda_plugin() == nullptr ? ", not loaded" : ", loaded"));
}

[[noreturn]] void ask_for_a_device(bool seed_first) {
  if (seed_first) at::manual_seed(1);
  try {
    cuda_plugin();
  } catch (const UsageError& error) {
    end(error.what());
  }
  end(hooks());
}

TEST_F(CudaLoading, BeforeTheFirstSeedKeepsCuda) {
  setenv("LOCKSTEP_CUDA", "on", 1);
  EXPECT_EXIT(seed_and_look(), ::testing::ExitedWithCode(0), "hooks of CUDA, loaded");
}

TEST_F(CudaLoading, CostsNothingWhereNoDeviceShows) {
  EXPECT_EXIT(seed_and_look(), ::testing::ExitedWithCode(0), "hooks without CUDA, not loaded");
}

TEST_F(CudaLoading, WhenADeviceIsAskedForFirstIsInTime) {
  EXPECT_EXIT(ask_for_a_device(false), ::testing::ExitedWithCode(0), "hooks of CUDA");
}

TEST_F(CudaLoading, AfterTheFirstSeedIsAnError) {
  EXPECT_EXIT(ask_for_a_device(true), ::testing::ExitedWithCode(0), "too late.*LOCKSTEP_CUDA=on");
}

TEST_F(CudaLoading, CanBeForbidden) {
  setenv("LOCKSTEP_CUDA", "off", 1);
  EXPECT_EXIT(ask_for_a_device(false), ::testing::ExitedWithCode(0), "LOCKSTEP_CUDA is off");
}

TEST_F(CudaLoading, SaysWhyThereIsNoDevice) {
  setenv("LOCKSTEP_CUDA", "on", 1);
  EXPECT_EXIT(end(std::to_string(cuda_device_count()) + " devices: " + cuda_obstacle()),
              ::testing::ExitedWithCode(0), "0 devices: .+");
}

TEST_F(CudaLoading, MakesAutoTheCpuAloudWhereNoDeviceCanBeUsed) {
  setenv("LOCKSTEP_CUDA", "on", 1);
  EXPECT_EXIT(end("auto is " + choose_device("auto", 0).str()), ::testing::ExitedWithCode(0),
              "warning: device 'auto' selects the CPU, because no CUDA device can be used: .+auto is cpu");
}

TEST_F(CudaLoading, SaysWhyADeviceThatIsNamedCannotBeHad) {
  setenv("LOCKSTEP_CUDA", "on", 1);
  const auto ask = [] {
    try {
      choose_device("cuda", 0);
    } catch (const UsageError& error) {
      end(error.what());
    }
  };
  EXPECT_EXIT(ask(), ::testing::ExitedWithCode(0), "0 CUDA devices: .*[Nn][Oo] .*To use the CPU");
}

}  // namespace
}  // namespace lockstep::comm
