#include "comm/cuda/cuda_loading.hpp"

#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

TEST(CudaAvailability, LoadsAtTheStartWhereADriverShows) {
  EXPECT_EQ(cuda_loading({}, true), CudaLoading::at_start);
  EXPECT_EQ(cuda_loading({}, false), CudaLoading::on_demand);
  EXPECT_EQ(cuda_loading({{"CUDA_VISIBLE_DEVICES", "1,0"}}, true), CudaLoading::at_start);
  EXPECT_EQ(cuda_loading({{"CUDA_VISIBLE_DEVICES", ""}}, true), CudaLoading::on_demand);
}

TEST(CudaAvailability, FollowsTheEnvironment) {
  EXPECT_EQ(cuda_loading({{"LOCKSTEP_CUDA", "auto"}}, true), CudaLoading::at_start);
  EXPECT_EQ(cuda_loading({{"LOCKSTEP_CUDA", "on"}, {"CUDA_VISIBLE_DEVICES", ""}}, false),
            CudaLoading::at_start);
  EXPECT_EQ(cuda_loading({{"LOCKSTEP_CUDA", "off"}}, true), CudaLoading::never);
  EXPECT_THROW(cuda_loading({{"LOCKSTEP_CUDA", "yes"}}, true), UsageError);
}

TEST(CudaAvailability, KnowsWhatHidesAllDevices) {
  for (const auto* value : {"", " ", "-1", "NoDevFiles", "-1,0"})
    EXPECT_TRUE(hides_cuda_devices({{"CUDA_VISIBLE_DEVICES", value}})) << value;
  for (const auto* value : {"0", " 3", "1,-1", "GPU-1c5e", "MIG-GPU-1c5e/1/0"})
    EXPECT_FALSE(hides_cuda_devices({{"CUDA_VISIBLE_DEVICES", value}})) << value;
  EXPECT_FALSE(hides_cuda_devices({}));
}

}  // namespace
}  // namespace lockstep::comm
