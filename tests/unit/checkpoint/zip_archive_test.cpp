#include "checkpoint/zip_archive.hpp"

#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "support/zip.hpp"

namespace lockstep {
namespace {

using testing::TemporaryFolder;
using testing::write_bytes;
using testing::zip_archive;
using testing::zip_directory;

std::vector<std::string> names_in(const std::string& content) {
  const TemporaryFolder folder;
  write_bytes(folder / "a.zip", content);
  return ZipArchive(folder / "a.zip").names();
}

TEST(ZipArchive, NamesAreThoseOfTheDirectory) {
  const std::vector<std::string> names = {"net/data.pkl", "net/code/a.py", ""};
  EXPECT_EQ(names_in(zip_directory(names)), names);
  EXPECT_EQ(names_in(zip_directory(names, 1000)), names);
  EXPECT_EQ(names_in(zip_directory(names) + std::string(300, 'c')), names) << "a comment may follow";
}

TEST(ZipArchive, OfADamagedArchiveThereAreNoNames) {
  const std::string whole = zip_directory({"net/data.pkl", "net/version"}, 40);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const auto names = names_in(whole.substr(0, length));
    EXPECT_TRUE(names.empty()) << length;
  }
  for (std::size_t place = 0; place < whole.size(); ++place) {
    std::string damaged = whole;
    damaged[place] = '\xff';
    names_in(damaged);  // Whatever it says, it ends and reads no byte outside.
  }
}

TEST(ZipArchive, FindsTheBytesOfARecord) {
  const TemporaryFolder folder;
  write_bytes(folder / "a.zip",
              zip_archive({{"a/data.pkl", "12345"}, {"a/data/0", ""}, {"b", "678"}, {"b", "9"}}));
  const ZipArchive archive(folder / "a.zip");
  const auto read = [&](const std::string& name) {
    const ZipRecord* record = archive.find(name);
    std::string bytes(record->bytes, '\0');
    archive.file().read_at(archive.find_data(*record), bytes.data(), bytes.size());
    return bytes;
  };
  EXPECT_EQ(read("a/data.pkl"), "12345");
  EXPECT_EQ(read("a/data/0"), "");
  EXPECT_EQ(read("b"), "9") << "the last of several, as in Python";
  EXPECT_EQ(archive.find("c"), nullptr);
}

TEST(ZipArchive, ARecordOutsideOfTheFileIsAnError) {
  const TemporaryFolder folder;
  std::string content = zip_archive({{"a", "12345"}});
  const auto sizes = content.find("PK\x01\x02") + 20;
  content[sizes + 1] = content[sizes + 5] = '\x7f';
  write_bytes(folder / "a.zip", content);
  const ZipArchive archive(folder / "a.zip");
  EXPECT_THROWS(archive.find_data(*archive.find("a")), DataError, "a.zip", "record 'a' of 32517 bytes",
                "damaged");
}

}  // namespace
}  // namespace lockstep
