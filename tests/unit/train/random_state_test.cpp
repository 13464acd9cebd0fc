#include "train/state/random_state.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/error.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep::train {
namespace {

at::Tensor bytes(std::int64_t count) { return at::zeros({count}, at::kByte); }

class RandomStateFile : public ::testing::Test {
 protected:
  /// A state of the CPU's generator, with the tensors of `more` added or replaced.
  void write(const TensorMap& more) const {
    write_random_state(path, random_state(at::kCPU));
    TensorMap tensors = load_file(path).tensors;
    for (const auto& [name, tensor] : more) tensors.insert_or_assign(name, tensor);
    save_file(tensors, path);
  }

  testing::TemporaryFolder folder;
  std::filesystem::path path = folder.path() / "random_state.safetensors";
};

TEST_F(RandomStateFile, HoldsStatesOfTheRightSizes) {
  write({{"cuda", bytes(16)}});
  const RandomState read = read_random_state(path);
  EXPECT_EQ(read.cpu, random_state(at::kCPU).cpu);
  EXPECT_EQ(read.cuda.size(), 16U);
}

TEST_F(RandomStateFile, IsRefusedWithAStateThatNoGeneratorHas) {
  write({{"cuda", bytes(5)}});
  EXPECT_THROWS(read_random_state(path), DataError, "'cuda'", "16 bytes", "one with 5");
  write({{"cpu", bytes(7)}});
  EXPECT_THROWS(read_random_state(path), DataError, "'cpu'", "one with 7");
}

}  // namespace
}  // namespace lockstep::train
