#include "kernels/scaled_copies.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "unit/kernels/emulated_kernels.hpp"
#include "unit/kernels/float64.hpp"

namespace lockstep::kernels {
namespace {

/// As ParameterGroup::start_reduce_scatter() does it without the kernel.
TEST(ScaledCopies, HaveTheBitsOfCastsAndProducts) {
  torch::manual_seed(4);
  for (const auto from_dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto to_dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      SCOPED_TRACE(std::string(c10::toString(from_dtype)) + " to " + c10::toString(to_dtype));
      Tensors from, to, expected;
      const at::Tensor all = at::full({30000}, 7, to_dtype);
      std::int64_t begin = 0;
      // More than a launch of tensors; more than a block, odd places, none.
      for (int i = 0; i < 250; ++i) {
        const std::int64_t size = i == 3 ? 17000 : i == 5 ? 0 : i % 7 + 1;
        from.push_back(drawn({size}, from_dtype).detach());
        to.push_back(all.narrow(0, begin, size));
        begin += size + i % 3;
        at::Tensor factor = at::scalar_tensor(1.0 / 3, at::kDouble);
        factor.unsafeGetTensorImpl()->set_wrapped_number(true);
        at::Tensor place = at::empty({size}, to_dtype);
        at::mul_out(place, from.back().to(to_dtype), factor);
        expected.push_back(place);
      }
      const at::Tensor untouched = all.narrow(0, begin, all.size(0) - begin).clone();
      testing::EmulatedKernels device;
      ASSERT_TRUE(takes_scaled_copies(from, to));
      write_scaled_copies(from, to, 1.0 / 3);
      for (std::size_t i = 0; i < to.size(); ++i) EXPECT_TRUE(at::equal(to[i], expected[i])) << i;
      EXPECT_TRUE(at::equal(all.narrow(0, begin, all.size(0) - begin), untouched));
      EXPECT_EQ(device.launches().begin()->second, 2);
    }
  }
}

TEST(ScaledCopies, OfOtherTensorsAreLibTorchs) {
  const at::Tensor values = at::ones({4, 4});
  EXPECT_FALSE(takes_scaled_copies({values}, {values}));
  testing::EmulatedKernels device;
  device.require_proof();
  EXPECT_TRUE(takes_scaled_copies({values}, {values.view({16})}));
  EXPECT_FALSE(takes_scaled_copies({values.t()}, {values}));
  EXPECT_FALSE(takes_scaled_copies({values.to(at::kDouble)}, {values}));
  EXPECT_FALSE(takes_scaled_copies({values, values.to(at::kHalf)}, {values, values}));
  EXPECT_FALSE(takes_scaled_copies({}, {}));
}

}  // namespace
}  // namespace lockstep::kernels
