#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <sstream>

#include "checkpoint/tensor_source.hpp"
#include "interop/python.hpp"
#include "lockstep/train/model_files.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace {

using testing::run_python;
using testing::TemporaryFolder;

bool have_same_bits(const at::Tensor& left, const at::Tensor& right) {
  return left.scalar_type() == right.scalar_type() && left.sizes() == right.sizes() && left.is_contiguous() &&
         (left.numel() == 0 ||
          std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0);
}

TEST(TorchFileInterop, ReadsWhatTorchSaveWrites) {
  const TemporaryFolder folder;
  std::istringstream names(run_python("torch_file_peer.py", {folder.path()}));
  int cases = 0;
  for (std::string name; std::getline(names, name); ++cases) {
    SCOPED_TRACE(name);
    const TensorMap expected = load_file(folder / (name + ".safetensors")).tensors;
    const TensorSource source = open_tensors(folder / (name + ".bin"));
    ASSERT_EQ(source.forms.size(), expected.size());
    for (const auto& [key, tensor] : expected) {
      ASSERT_EQ(source.forms.count(key), 1U) << key;
      EXPECT_EQ(source.forms.at(key).sizes(), tensor.sizes()) << key;
      EXPECT_TRUE(have_same_bits(source.get_tensor(key), tensor)) << key;
    }
  }
  EXPECT_EQ(cases, 34);
}

TEST(TorchFileInterop, AFolderMayHaveOneFileOrSeveral) {
  const TemporaryFolder folder;
  run_python("torch_file_peer.py", {folder.path()});
  const auto expected = load_file(folder / "module.safetensors").tensors;
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : expected) tensors.push_back({name, at::zeros_like(tensor)});
  const auto expect_read = [&](const std::filesystem::path& path) {
    for (auto& entry : tensors) entry.tensor.zero_();
    read_model(path, tensors);
    for (const auto& entry : tensors)
      EXPECT_TRUE(have_same_bits(entry.tensor, expected.at(entry.name))) << entry.name;
  };
  const auto one = folder / "one", several = folder / "several";
  std::filesystem::create_directory(one);
  std::filesystem::create_directory(several);
  std::filesystem::copy_file(folder / "module.bin", one / "pytorch_model.bin");
  expect_read(one);
  expect_read(one / "pytorch_model.bin");
  std::filesystem::copy_file(folder / "shard1.bin", several / "pytorch_model-00001-of-00002.bin");
  std::filesystem::copy_file(folder / "shard2.bin", several / "pytorch_model-00002-of-00002.bin");
  std::filesystem::copy_file(folder / "shards.json", several / "pytorch_model.bin.index.json");
  expect_read(several);
}

}  // namespace
}  // namespace lockstep
