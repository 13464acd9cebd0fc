#include "core/checksum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "core/checksum_tables.hpp"
#include "lockstep/core/error.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::TemporaryFolder;
using testing::write_bytes;

std::string checksum_of(const std::string& bytes) {
  return checksum_text(crc32c(bytes.data(), bytes.size()));
}

/// RFC 3720, appendix B.4, and the check value of the catalogue of CRC algorithms.
TEST(Crc32c, GivesThePublishedValues) {
  std::string counting(32, '\0');
  std::iota(counting.begin(), counting.end(), '\0');
  EXPECT_EQ(checksum_of("123456789"), "e3069283");
  EXPECT_EQ(checksum_of(std::string(32, '\0')), "8a9136aa");
  EXPECT_EQ(checksum_of(std::string(32, '\xff')), "62a8ab43");
  EXPECT_EQ(checksum_of(counting), "46dd794e");
  std::reverse(counting.begin(), counting.end());
  EXPECT_EQ(checksum_of(counting), "113fdb5c");
  EXPECT_EQ(checksum_of(""), "00000000");
}

std::vector<unsigned char> random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<unsigned char> bytes(count);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

TEST(Crc32c, TheInstructionAndTheTableAgreeAtEveryLengthAndAlignment) {
  const auto bytes = random_bytes(300, 1);
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t length = 0; begin + length <= bytes.size(); ++length) {
      const std::uint32_t by_table = ~checksum::update_by_table(~0U, bytes.data() + begin, length);
      ASSERT_EQ(crc32c(bytes.data() + begin, length), by_table) << begin << " " << length;
    }
  }
}

TEST(Crc32c, ChecksumsOfPartsAreJoined) {
  const auto bytes = random_bytes(5000, 3);
  const std::uint32_t whole = crc32c(bytes.data(), bytes.size());
  for (const std::size_t cut :
       {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{4096}, bytes.size()}) {
    const std::uint32_t first = crc32c(bytes.data(), cut),
                        second = crc32c(bytes.data() + cut, bytes.size() - cut);
    EXPECT_EQ(join_crc32c(first, second, bytes.size() - cut), whole) << cut;
  }
  // More zeros than an int counts: two halves twice as often.
  std::uint32_t zeros = crc32c(std::string(1 << 20, '\0').data(), 1 << 20);
  const std::uint32_t before = zeros;
  for (std::uint64_t size = 1 << 20; size < std::uint64_t{1} << 36; size *= 2)
    zeros = join_crc32c(zeros, zeros, size);
  std::uint32_t one_by_one = before;
  for (int i = 1; i < 1 << 16; ++i) one_by_one = join_crc32c(one_by_one, before, 1 << 20);
  EXPECT_EQ(zeros, one_by_one);
}

TEST(Crc32c, PiecesGiveTheChecksumOfTheWhole) {
  const auto bytes = random_bytes(1000, 2);
  for (std::size_t cut = 0; cut <= bytes.size(); cut += 7) {
    Crc32c checksum;
    checksum.update(bytes.data(), cut);
    checksum.update(bytes.data() + cut, bytes.size() - cut);
    ASSERT_EQ(checksum.value(), crc32c(bytes.data(), bytes.size()));
  }
}

TEST(Crc32c, SeesEveryFlippedBit) {
  auto bytes = random_bytes(256, 3);
  const auto before = crc32c(bytes.data(), bytes.size());
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<unsigned char>(1U << (bit % 8));
    ASSERT_NE(crc32c(bytes.data(), bytes.size()), before);
    bytes[bit / 8] ^= static_cast<unsigned char>(1U << (bit % 8));
  }
}

TEST(FileDigest, IsThatOfTheWholeFile) {
  const TemporaryFolder folder;
  const auto bytes = random_bytes((3U << 20U) + 5, 4);
  write_bytes(folder / "x", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  write_bytes(folder / "empty", "");
  EXPECT_EQ(digest_of(folder / "x").bytes, bytes.size());
  EXPECT_EQ(digest_of(folder / "x").crc32c, crc32c(bytes.data(), bytes.size()));
  EXPECT_EQ(digest_of(folder / "empty").bytes, 0U);
  EXPECT_THROWS(digest_of(folder / "none"), DataError, "/none'", "No such file");
}

}  // namespace
}  // namespace lockstep
