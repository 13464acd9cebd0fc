#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <sstream>

#include "interop/python.hpp"
#include "lockstep/checkpoint/safetensors.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace {

using testing::read_bytes;
using testing::run_python;
using testing::TemporaryFolder;

struct Case {
  TensorMap tensors;
  TensorMetadata metadata;
};
using Cases = std::map<std::string, Case>;

/// `elements` elements of any dtype, out of the bytes 0 1 0 1 ..., which every dtype can hold.
at::Tensor typed(at::ScalarType type, std::int64_t elements) {
  const auto bytes = elements * static_cast<std::int64_t>(c10::elementSize(type));
  return at::arange(bytes, at::kByte).remainder(2).view(type);
}

TensorMap every_dtype() {
  const std::map<std::string, at::ScalarType> types{{"float64", at::kDouble},
                                                    {"float32", at::kFloat},
                                                    {"float16", at::kHalf},
                                                    {"bfloat16", at::kBFloat16},
                                                    {"int64", at::kLong},
                                                    {"int32", at::kInt},
                                                    {"int16", at::kShort},
                                                    {"int8", at::kChar},
                                                    {"uint8", at::kByte},
                                                    {"bool", at::kBool},
                                                    {"uint16", at::kUInt16},
                                                    {"uint32", at::kUInt32},
                                                    {"uint64", at::kUInt64},
                                                    {"complex64", at::kComplexFloat},
                                                    {"float8_e5m2", at::kFloat8_e5m2},
                                                    {"float8_e5m2fnuz", at::kFloat8_e5m2fnuz},
                                                    {"float8_e4m3fn", at::kFloat8_e4m3fn},
                                                    {"float8_e4m3fnuz", at::kFloat8_e4m3fnuz},
                                                    {"float8_e8m0fnu", at::kFloat8_e8m0fnu}};
  TensorMap tensors;
  for (const auto& [name, type] : types) tensors[name] = typed(type, 6);
  return tensors;
}

TensorMap odd_names() {
  const std::vector<std::string> names{
      "b", "a", "ü", "漢",     "😀",      "a.b",       "a\"b\\c\n\t\r\b\f\x01\x1f\x7f/",
      "",  " ", "Z", "\u2028", "\uffff", "\U0010ffff"};
  TensorMap tensors;
  for (std::size_t i = 0; i < names.size(); ++i) tensors[names[i]] = at::full({2}, static_cast<double>(i));
  return tensors;
}

/// The cases of safetensors_peer.py, but with views where Python wants contiguous tensors.
Cases cases() {
  const auto base = at::arange(24, at::kFloat).reshape({4, 6});
  Cases all;
  all["dtypes"].tensors = every_dtype();
  all["shapes"].tensors = {{"scalar", at::scalar_tensor(2.5)},
                           {"empty", at::empty({0})},
                           {"empty3", at::empty({3, 0, 2}, at::kHalf)},
                           {"long", at::ones({1, 1, 1, 1, 1, 1, 1, 1})}};
  all["views"].tensors = {{"transposed", base.t()}, {"strided", base.slice(1, 0, 6, 2)}};
  all["names"].tensors = odd_names();
  all["metadata"] = {{{"w", at::ones({2})}}, {{"é\"\\\n\x1f", "漢😀\x7f\t"}}};
  all["format"] = {{{"w", at::ones({3}, at::kByte)}}, {{"format", "pt"}}};
  all["nothing"] = {};
  for (std::size_t length = 1; length < 10; ++length) {
    all["padding" + std::to_string(length)].tensors = {{std::string(length, 'n'), at::ones({1})}};
  }
  return all;
}

std::string file_name(const std::string& name) { return name + ".safetensors"; }

TEST(SafetensorsInterop, WritesTheBytesThatPythonWrites) {
  const TemporaryFolder python;
  const TemporaryFolder ours;
  run_python("safetensors_peer.py", {"write", python.path().string()});
  const auto all = cases();
  ASSERT_EQ(python.files().size(), all.size());
  for (const auto& [name, content] : all) {
    save_file(content.tensors, ours / file_name(name), content.metadata);
    EXPECT_EQ(read_bytes(ours / file_name(name)), read_bytes(python / file_name(name))) << name;
  }
}

TEST(SafetensorsInterop, ReadsWhatPythonWrites) {
  const TemporaryFolder folder;
  run_python("safetensors_peer.py", {"write", folder.path().string()});
  for (const auto& [name, content] : cases()) {
    const auto loaded = load_file(folder / file_name(name));
    EXPECT_EQ(loaded.metadata, content.metadata) << name;
    ASSERT_EQ(loaded.tensors.size(), content.tensors.size()) << name;
    for (const auto& [key, tensor] : content.tensors) {
      const auto& got = loaded.tensors.at(key);
      ASSERT_EQ(got.scalar_type(), tensor.scalar_type()) << name << " " << key;
      ASSERT_EQ(got.sizes(), tensor.sizes()) << name << " " << key;
      if (got.numel() == 0) continue;  // no address to give to memcmp
      EXPECT_EQ(std::memcmp(got.data_ptr(), tensor.contiguous().data_ptr(), got.nbytes()), 0)
          << name << " " << key;
    }
  }
}

TEST(SafetensorsInterop, PythonReadsWhatItWrites) {
  const TemporaryFolder folder;
  const auto all = cases();
  for (const auto& [name, content] : all)
    save_file(content.tensors, folder / file_name(name), content.metadata);
  std::istringstream checked(run_python("safetensors_peer.py", {"check", folder.path().string()}));
  std::size_t count = 0;
  for (std::string line; std::getline(checked, line); ++count) EXPECT_TRUE(all.contains(line)) << line;
  EXPECT_EQ(count, all.size());
}

}  // namespace
}  // namespace lockstep
