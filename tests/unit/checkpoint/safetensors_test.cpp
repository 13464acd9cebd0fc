#include "lockstep/checkpoint/safetensors.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>

#include "lockstep/core/error.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

/// Equal bit for bit, whatever the dtype can compare. (An empty tensor has no address to give to memcmp.)
bool same(const at::Tensor& left, const at::Tensor& right) {
  if (left.scalar_type() != right.scalar_type() || left.sizes() != right.sizes()) return false;
  return left.numel() == 0 ||
         std::memcmp(left.contiguous().data_ptr(), right.contiguous().data_ptr(), left.nbytes()) == 0;
}

void expect_round_trip(const TensorMap& tensors) {
  const TemporaryFolder folder;
  save_file(tensors, folder / "m.safetensors");
  const auto loaded = load_file(folder / "m.safetensors");
  ASSERT_EQ(loaded.tensors.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const auto plain = tensor.detach().resolve_conj().resolve_neg().contiguous();
    EXPECT_TRUE(same(loaded.tensors.at(name), plain)) << name;
  }
}

TEST(Safetensors, KeepsEveryDtype) {
  TensorMap tensors;
  const auto bytes = at::arange(48, at::kByte).remainder(2);
  for (const auto type :
       {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort, at::kChar,
        at::kByte, at::kUInt16, at::kUInt32, at::kUInt64, at::kBool, at::kComplexFloat, at::kFloat8_e5m2,
        at::kFloat8_e5m2fnuz, at::kFloat8_e4m3fn, at::kFloat8_e4m3fnuz, at::kFloat8_e8m0fnu}) {
    tensors[std::string("type ") + c10::toString(type)] = bytes.view(type);
  }
  EXPECT_EQ(tensors.size(), 19U);
  expect_round_trip(tensors);
}

TEST(Safetensors, KeepsShapes) {
  expect_round_trip({{"scalar", at::scalar_tensor(2.5)},
                     {"empty", at::empty({0})},
                     {"emptier", at::empty({3, 0, 2}, at::kHalf)},
                     {"one", at::ones({1, 1, 1})}});
  expect_round_trip({});
}

TEST(Safetensors, WritesTheElementsOfAnyView) {
  const auto base = at::arange(24, at::kFloat).reshape({4, 6});
  expect_round_trip({{"transposed", base.t()},
                     {"strided", base.slice(1, 0, 6, 2)},
                     {"expanded", base.select(0, 0).expand({3, 6})},
                     {"offset", base.select(0, 2)},
                     {"gradient", base.clone().requires_grad_()},
                     {"conjugate", at::complex(base, base).conj()},
                     {"negative", at::imag(at::complex(base, base).conj())},
                     {"channels last", at::rand({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast)}});
}

TEST(Safetensors, WritesSharedStorageForEachName) {
  const TemporaryFolder folder;
  const auto shared = at::arange(6, at::kInt);
  save_file({{"a", shared}, {"b", shared}}, folder / "m");
  const auto loaded = load_file(folder / "m");
  EXPECT_TRUE(same(loaded.tensors.at("a"), shared));
  EXPECT_TRUE(same(loaded.tensors.at("b"), shared));
  EXPECT_FALSE(loaded.tensors.at("a").is_alias_of(loaded.tensors.at("b")));
}

TEST(Safetensors, KeepsMetadataAndUnicode) {
  const TemporaryFolder folder;
  const TensorMetadata metadata{{"format", "pt"}, {"é\"\\\n", "漢😀\x01"}};
  save_file({{"gewicht.ü/漢😀", at::ones({2})}}, folder / "m", metadata);
  const auto loaded = load_file(folder / "m");
  EXPECT_EQ(loaded.metadata, metadata);
  EXPECT_TRUE(loaded.tensors.contains("gewicht.ü/漢😀"));
}

TEST(Safetensors, RefusesWhatTheFormatCannotHoldBeforeWriting) {
  const TemporaryFolder folder;
  const auto save = [&folder](const at::Tensor& tensor) {
    save_file({{"the.weight", tensor}}, folder / "m");
  };
  write_bytes(folder / "m", "old");
  EXPECT_THROWS(save(at::Tensor()), UsageError, "the.weight", "undefined");
  EXPECT_THROWS(save(at::ones({2}, at::kComplexDouble)), UsageError, "the.weight", "complex<double>");
  EXPECT_THROWS(save(at::ones({2}, at::kMeta)), UsageError, "the.weight", "meta");
  EXPECT_THROWS(save(at::ones({2, 2}).to_sparse()), UsageError, "the.weight", "to_dense");
  EXPECT_THROWS(save(at::quantize_per_tensor(at::ones({2}), 1.0, 0, at::kQInt8)), UsageError, "the.weight",
                "dtype");
  EXPECT_THROWS(save_file({{"__metadata__", at::ones({1})}}, folder / "m"), UsageError, "__metadata__");
  EXPECT_THROWS(save_file({{"\xFF", at::ones({1})}}, folder / "m"), UsageError, "UTF-8");
  EXPECT_EQ(read_bytes(folder / "m"), "old");
  EXPECT_EQ(folder.files(), std::vector<std::string>{"m"});
}

TEST(Safetensors, RefusesTruncationAtEveryByteAndBytesAfterTheEnd) {
  const TemporaryFolder folder;
  save_file({{"w", at::arange(3, at::kFloat)}, {"b", at::ones({2}, at::kByte)}}, folder / "m", {{"k", "v"}});
  const auto whole = read_bytes(folder / "m");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write_bytes(folder / "m", whole.substr(0, length));
    EXPECT_THROWS(load_file(folder / "m"), DataError, "/m'");
  }
  write_bytes(folder / "m", whole + "x");
  EXPECT_THROWS(load_file(folder / "m"), DataError, "15 data bytes");
  write_bytes(folder / "m", whole);
  EXPECT_EQ(load_file(folder / "m").tensors.size(), 2U);
}

TEST(Safetensors, NoFlippedByteCrashes) {
  const TemporaryFolder folder;
  save_file({{"w", at::arange(3, at::kFloat)}, {"b", at::ones({2}, at::kByte)}}, folder / "m", {{"k", "v"}});
  const auto whole = read_bytes(folder / "m");
  int refused = 0;
  for (std::size_t place = 0; place < whole.size(); ++place) {
    for (const int flip : {0x01, 0x80, 0xFF}) {
      auto bytes = whole;
      bytes[place] = static_cast<char>(bytes[place] ^ flip);
      write_bytes(folder / "m", bytes);
      try {
        load_file(folder / "m");
      } catch (const DataError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 300);
}

TEST(Safetensors, HugeClaimsAllocateNothing) {
  const TemporaryFolder folder;
  std::string json =
      R"({"a":{"dtype":"U8","shape":[4611686018427387904],"data_offsets":[0,4611686018427387904]}})";
  json.resize(104, ' ');
  write_bytes(folder / "m", std::string("\x68\0\0\0\0\0\0\0", 8) + json);
  EXPECT_THROWS(load_file(folder / "m"), DataError, "'a'", "4611686018427387904", "0 data bytes");
}

TEST(Safetensors, SaysWhyAFileCannotBeReadOrWritten) {
  const TemporaryFolder folder;
  EXPECT_THROWS(load_file(folder / "absent"), DataError, "absent", "No such file");
  EXPECT_THROWS(load_file(folder.path()), DataError, "not a regular file");
  EXPECT_THROWS(save_file({{"a", at::ones({1})}}, folder / "absent/m"), Error, "absent/m", "No such file");
}

}  // namespace
}  // namespace lockstep
