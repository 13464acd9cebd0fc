#include "lockstep/data/idx.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using namespace std::string_literals;
using testing::TemporaryFolder;

/// What reading these bytes as a file says, or "" when it is read.
std::string complaint(const std::string& bytes) {
  const TemporaryFolder folder;
  testing::write_bytes(folder / "x.idx", bytes);
  try {
    read_idx(folder / "x.idx");
    return "";
  } catch (const DataError& error) {
    return error.what();
  }
}

/// A file of two int16 rows of three.
const std::string kSmall = "\0\0\x0B\x02\0\0\0\x02\0\0\0\x03\0\1\0\2\0\3\xFF\xFF\x01\0\x7F\xFF"s;

TEST(Idx, ReadsBigEndianElements) {
  const TemporaryFolder folder;
  testing::write_bytes(folder / "x.idx", kSmall);
  const auto expected = at::tensor({1, 2, 3, -1, 256, 32767}, at::kShort).reshape({2, 3});
  EXPECT_TRUE(at::equal(read_idx(folder / "x.idx"), expected));
}

TEST(Idx, WritesWhatItReads) {
  const TemporaryFolder folder;
  for (const auto type : {at::kByte, at::kChar, at::kShort, at::kInt, at::kFloat, at::kDouble}) {
    const auto tensor = (at::arange(24).reshape({4, 6}) * 5).to(type).t();
    write_idx(tensor, folder / "x.idx");
    const auto read = read_idx(folder / "x.idx");
    EXPECT_EQ(read.scalar_type(), type);
    EXPECT_TRUE(at::equal(read, tensor)) << type;
  }
  write_idx(at::tensor({1, 2, 3, -1, 256, 32767}, at::kShort).reshape({2, 3}), folder / "x.idx");
  EXPECT_EQ(testing::read_bytes(folder / "x.idx"), kSmall);
  EXPECT_EQ(folder.files(), std::vector<std::string>{"x.idx"});
}

TEST(Idx, KeepsEmptyDimensions) {
  const TemporaryFolder folder;
  write_idx(at::empty({0, 28, 28}, at::kByte), folder / "x.idx");
  EXPECT_EQ(read_idx(folder / "x.idx").sizes(), (std::vector<std::int64_t>{0, 28, 28}));
}

TEST(Idx, RefusesTruncationAtEveryByteAndBytesAfterTheEnd) {
  for (std::size_t length = 0; length < kSmall.size(); ++length) {
    EXPECT_NE(complaint(kSmall.substr(0, length)), "") << length;
  }
  EXPECT_EQ(complaint(kSmall), "");
  EXPECT_TRUE(
      testing::contains_all(complaint(kSmall.substr(0, 20)), {"x.idx", "12 data bytes", "byte 12", "has 8"}));
  EXPECT_TRUE(
      testing::contains_all(complaint(kSmall + "x"), {"12 data bytes", "has 13", "more bytes after"}));
}

/// kSmall as `gzip` writes it.
const std::string kCompressed =
    "\037\213\010\000\000\000\000\000\002\003\143\140\340\146\142\140\140\000\141\146\006\106\040\315\374\377\077\043\103\375\177\000\136\320\341\143\030\000\000\000"s;

TEST(Idx, UnpacksGzip) {
  const TemporaryFolder folder;
  testing::write_bytes(folder / "x.idx.gz", kCompressed);
  const auto expected = at::tensor({1, 2, 3, -1, 256, 32767}, at::kShort).reshape({2, 3});
  EXPECT_TRUE(at::equal(read_idx(folder / "x.idx.gz"), expected));
  for (std::size_t length = 4; length < kCompressed.size(); ++length) {
    const auto text = complaint(kCompressed.substr(0, length));
    EXPECT_TRUE(testing::contains_all(text, {"x.idx", "gzip"})) << length << ": " << text;
  }
  auto wrong_checksum = kCompressed;
  wrong_checksum[kCompressed.size() - 5] ^= 1;
  EXPECT_TRUE(testing::contains_all(complaint(wrong_checksum), {"x.idx", "gzip", "broken"}));
}

TEST(Idx, NamesTheWrongByte) {
  EXPECT_TRUE(testing::contains_all(complaint("PK\x08\x01\0\0\0\0"s), {"0x50 0x4B", "two zeros"}));
  EXPECT_TRUE(testing::contains_all(complaint("\0\0\x0A\x01\0\0\0\0"s), {"byte 2", "0x0A"}));
  EXPECT_TRUE(testing::contains_all(complaint("\0\0\x08\0"s), {"byte 3", "is 0"}));
  EXPECT_TRUE(testing::contains_all(complaint("\0\0\x08\xFF"s + std::string(2000, '\0')), {"byte 3", "255"}));
  EXPECT_TRUE(
      testing::contains_all(complaint("\0\0\x08\x03\0\0\0\x01"s), {"3 dimensions", "16 bytes", "has 8"}));
}

TEST(Idx, RefusesDimensionsThatOverflowOrLieWithoutAllocating) {
  const auto claiming = [](int dimensions) {
    std::string bytes = "\0\0\x0E"s + static_cast<char>(dimensions);
    for (int i = 0; i < dimensions; ++i) bytes += "\xFF\xFF\xFF\xFF"s;
    return complaint(bytes);
  };
  EXPECT_TRUE(testing::contains_all(claiming(1), {"34359738360 data bytes", "has 0"}));
  EXPECT_TRUE(testing::contains_all(claiming(2), {"more than 2^63 - 1"}));
  EXPECT_TRUE(testing::contains_all(claiming(64), {"more than 2^63 - 1"}));
  EXPECT_TRUE(testing::contains_all(complaint("\0\0\x0E\x03\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\0\0\0\0"s),
                                    {"more than 2^63 - 1"}));
}

TEST(Idx, RefusesWhatItCannotWrite) {
  const TemporaryFolder folder;
  EXPECT_THROWS(write_idx(at::scalar_tensor(1), folder / "x"), UsageError, "dimensions", "0");
  EXPECT_THROWS(write_idx(at::Tensor(), folder / "x"), UsageError, "undefined");
  EXPECT_THROWS(write_idx(at::ones({2}, at::kLong), folder / "x"), UsageError, "long");
  EXPECT_THROWS(write_idx(at::empty({0, 1LL << 32}, at::kByte), folder / "x"), UsageError, "4294967296");
  EXPECT_TRUE(folder.files().empty());
}

TEST(Idx, SaysWhyAFileCannotBeRead) {
  const TemporaryFolder folder;
  EXPECT_THROWS(read_idx(folder / "absent"), DataError, "absent", "No such file");
  EXPECT_THROWS(read_idx(folder.path()), DataError, "not a regular file");
}

// The numbers are NumPy's over sklearn.datasets.load_digits().
TEST(Digits, AreScikitLearns) {
  const std::filesystem::path folder = LOCKSTEP_DATA_DIR "/digits";
  const auto images = read_idx(folder / "digits-images-idx3-ubyte");
  const auto labels = read_idx(folder / "digits-labels-idx1-ubyte");
  ASSERT_EQ(images.sizes(), (std::vector<std::int64_t>{1797, 8, 8}));
  ASSERT_EQ(labels.sizes(), (std::vector<std::int64_t>{1797}));
  const auto rows = at::arange(1, 1798, at::kLong);
  const auto wide = images.to(at::kLong).reshape({1797, 64});
  EXPECT_EQ(wide.sum().item<std::int64_t>(), 561718);
  EXPECT_EQ((wide * at::arange(1, 65, at::kLong)).sum().item<std::int64_t>(), 18222371);
  EXPECT_EQ((wide.sum(1) * rows).sum().item<std::int64_t>(), 503904265);
  EXPECT_EQ((labels.to(at::kLong) * rows).sum().item<std::int64_t>(), 7272861);
  EXPECT_EQ(images.max().item<int>(), 16);
  const auto counts = at::tensor({178, 182, 177, 183, 181, 182, 181, 179, 174, 180}, at::kLong);
  EXPECT_TRUE(at::equal(at::bincount(labels), counts));
}

}  // namespace
}  // namespace lockstep
