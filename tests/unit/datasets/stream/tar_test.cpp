#include <gtest/gtest.h>

#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/datasets/iterable_dataset.hpp"
#include "support/tar.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::contains_all;
using testing::Member;
using testing::padded;
using testing::tar_of;

std::string record(const std::string& text) {
  // The length counts itself.
  auto length = text.size() + 2;
  while (std::to_string(length).size() + text.size() + 2 != length) ++length;
  return std::to_string(length) + " " + text + "\n";
}

class Tar : public ::testing::Test {
 protected:
  IterableDataset stream(const std::string& bytes, const StreamOptions& options = {}) const {
    testing::write_bytes(folder_ / "a.tar", bytes);
    return IterableDataset::load(folder_ / "a.tar", options);
  }

  std::vector<Value> rows(const std::string& bytes, const StreamOptions& options = {}) const {
    std::vector<Value> found;
    auto all = stream(bytes, options).open();
    while (auto row = all.next()) found.emplace_back(*std::move(row));
    return found;
  }

  std::string error(const std::string& bytes, const StreamOptions& options = {}) const {
    return testing::message_of<DataError>([&] { rows(bytes, options); });
  }

  testing::TemporaryFolder folder_;
};

TEST_F(Tar, NeighboursOfOneNameAreARow) {
  const auto found = rows(tar_of({{"d", "", '5'},
                                  {"d/1.JPG", "picture"},
                                  {"d/1.cls", "7"},
                                  {"link.jpg", "", '2'},
                                  {"d/2.seg.png", std::string(100'000, 'x')},
                                  {"__info__/x.json", "{}"},
                                  {"no_dot", "x"},
                                  {"d/1.cls", "8"}}));
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0]["__key__"].text(), "d/1");
  EXPECT_EQ(found[0]["__url__"].text(), (folder_ / "a.tar").string());
  EXPECT_EQ(found[0]["jpg"].bytes(), "picture");
  EXPECT_EQ(found[0]["cls"].bytes(), "7");
  EXPECT_EQ(found[1]["seg.png"].bytes(), std::string(100'000, 'x'));
  EXPECT_EQ(found[2]["cls"].bytes(), "8");
}

TEST_F(Tar, LongNamesAndSizesOfGnuAndPax) {
  const std::string name(300, 'n');
  const auto found = rows(tar_of({{"././@LongLink", name + ".txt" + '\0', 'L'},
                                  {"short.txt", "gnu"},
                                  {"PaxHeaders/x", record("path=" + name + "2.txt") + record("size=3"), 'x'},
                                  {"short.txt", "pax", '0', "00000000003"},
                                  {"big.bin", "abc", '0', std::string("\x80\0\0\0\0\0\0\0\0\0\0\3", 12)},
                                  {"g", record("comment=x"), 'g'},
                                  {"last.bin", "z"}}));
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[0]["__key__"].text(), name);
  EXPECT_EQ(found[0]["txt"].bytes(), "gnu");
  EXPECT_EQ(found[1]["__key__"].text(), name + "2");
  EXPECT_EQ(found[1]["txt"].bytes(), "pax");
  EXPECT_EQ(found[2]["bin"].bytes(), "abc");
  EXPECT_EQ(found[3]["bin"].bytes(), "z");
}

/// Keys of samples: as webdataset reads them.
TEST_F(Tar, NamesMayBeAbsoluteOrOfAnotherEncoding) {
  const auto found = rows(tar_of({{"/data/1.jpg", "1"}, {"caf\xe9.jpg", "2"}, {"caf\xe8.jpg", "3"}}));
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0]["__key__"].text(), "/data/1");
  EXPECT_EQ(found[1]["__key__"].text(), "caf\\xe9");
  EXPECT_EQ(found[2]["__key__"].text(), "caf\\xe8");
}

TEST_F(Tar, CompressedOnesAreReadByNameAndContent) {
  // Of one sample, x.txt, by gzip.
  constexpr std::string_view kDigits =
      "1f8b0800000000000203abd02ba92861a02d300002331313300d04e834101822b141e266e640e50a060c7400a5c52589"
      "45402b19462630641805a360148c8251301201004552705400080000";
  std::string packed;
  for (std::size_t place = 0; place < kDigits.size(); place += 2)
    packed += static_cast<char>(std::stoi(std::string(kDigits.substr(place, 2)), nullptr, 16));
  for (const char* name : {"a.tgz", "b.TAR.GZ", "c.tar"}) {
    testing::write_bytes(folder_ / name, packed);
    auto all = IterableDataset::load(folder_ / name).open();
    const auto row = all.next();
    ASSERT_TRUE(row) << name;
    EXPECT_EQ(Value(*row)["__key__"].text(), "x") << name;
    EXPECT_EQ(Value(*row)["txt"].bytes(), "1") << name;
    EXPECT_FALSE(all.next()) << name;
  }
}

TEST_F(Tar, NamesThatLeaveTheFolderAreRefusedByFileAndMember) {
  for (const char* name : {"../x.jpg", "a/../../x.jpg", "a/..", ".."}) {
    EXPECT_TRUE(contains_all(error(tar_of({{"a.jpg", "1"}, {name, "2"}})),
                             {"a.tar', member '", name, "leaves the folder"}))
        << name;
  }
  EXPECT_TRUE(contains_all(error(tar_of({{"x", record("path=../x.jpg"), 'x'}, {"a.jpg", "2"}})),
                           {"../x.jpg", "leaves"}));
  EXPECT_EQ(rows(tar_of({{"./a..b/1.jpg", "1"}})).size(), 1U);
}

TEST_F(Tar, EveryHalfOfAShardIsAnErrorWithFileAndMember) {
  const auto whole = tar_of({{"1.jpg", std::string(1500, 'a')}, {"2.jpg", std::string(700, 'b')}});
  ASSERT_EQ(rows(whole).size(), 2U);
  const auto end = whole.size() - 1024;
  // Some programs write no mark at the end: a file that ends between two members is whole.
  EXPECT_EQ(rows(whole.substr(0, end)).size(), 2U);
  EXPECT_EQ(rows(whole.substr(0, 2048)).size(), 1U);
  for (std::size_t size = 0; size < end; size += 256) {
    if (size == 2048) continue;
    const auto text = error(whole.substr(0, size));
    EXPECT_TRUE(contains_all(text, {"a.tar"})) << size;
    // Of the member that the end cuts, or behind which it comes.
    if (size >= 512) {
      EXPECT_TRUE(contains_all(text, {size < 2560 ? "1.jpg" : "2.jpg"})) << size << text;
    }
  }
  EXPECT_EQ(rows(whole.substr(0, end + 512)).size(), 2U);
}

TEST_F(Tar, HostileHeadersAreErrors) {
  EXPECT_TRUE(contains_all(error(std::string(2048, 'x')), {"does not begin with a header"}));
  auto damaged = tar_of({{"1.jpg", "a"}, {"2.jpg", "b"}});
  damaged[1024 + 3] = 'X';
  EXPECT_TRUE(contains_all(error(damaged), {"1.jpg", "no header follows it"}));
  EXPECT_TRUE(
      contains_all(error(tar_of({{"1.jpg", "a", '0', "77777777777"}})), {"1.jpg", "8589934591 bytes"}));
  const std::string huge("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12);
  EXPECT_TRUE(contains_all(error(tar_of({{"1.jpg", "a", '0', huge}})), {"1.jpg", "size"}));
  EXPECT_TRUE(contains_all(error(tar_of({{"1.jpg", "a", '0', "12x"}})), {"1.jpg", "size"}));
  EXPECT_TRUE(
      contains_all(error(tar_of({{"1.jpg", "a"}, {"x", "", 'L', "77777777777"}})), {"1.jpg", "length"}));
  for (const char* text :
       {"", "9 path=a", "7 path=a\n", "99 path=a\n", "11 path:abc\n", "-1 path=a\n", "4 a\n"}) {
    if (*text == 0) continue;
    EXPECT_TRUE(
        contains_all(error(tar_of({{"1.jpg", "a"}, {"x", text, 'x'}, {"2.jpg", "b"}})), {"1.jpg", "pax"}))
        << text;
  }
  EXPECT_TRUE(contains_all(error(tar_of({{"x", record("size=99999999999999999999"), 'x'}, {"1.jpg", "a"}})),
                           {"pax"}));
  EXPECT_TRUE(
      contains_all(error(tar_of({{"1.jpg", "a"}, {"1.JPG", "b"}})), {"1.JPG", "has a 'jpg' already"}));
  EXPECT_TRUE(contains_all(error(tar_of({{"1.jpg", "a", 'S'}})), {"sparse"}));
  EXPECT_TRUE(contains_all(
      error(tar_of({{"x", record(std::string("path=a\0.jpg", 11)), 'x'}, {"1.jpg", "a"}})), {"zero byte"}));
  EXPECT_TRUE(contains_all(error(tar_of({{"1.jpg", std::string(3000, 'a')}}), {.max_sample_bytes = 2000}),
                           {"1.jpg", "2000 bytes"}));
}

TEST_F(Tar, ABadShardIsPassedOverAndNamed) {
  testing::write_bytes(folder_ / "b-0.tar", tar_of({{"1.txt", "a"}, {"2.txt", "b"}}).substr(0, 1800));
  testing::write_bytes(folder_ / "b-1.tar", tar_of({{"3.txt", "c"}}));
  auto stream = IterableDataset::load(folder_ / "b-{0..1}.tar", {.skip_bad = true});
  std::vector<std::string> keys;
  for (auto& row : stream) keys.push_back(row.front().second.text());
  EXPECT_EQ(keys, (std::vector<std::string>{"1", "3"}));
  ASSERT_EQ(stream.bad_files().size(), 1U);
  EXPECT_TRUE(contains_all(stream.bad_files()[0].reason, {"b-0.tar", "2.txt"}));
  EXPECT_TRUE(contains_all(testing::message_of<UsageError>([&] { ArrowDataset::load(folder_ / "b-1.tar"); }),
                           {"IterableDataset::load"}));
}

/// The keys of the rows from `state` on.
std::vector<std::string> keys_of(const IterableDataset& stream, const std::string& state = {}) {
  std::vector<std::string> keys;
  auto rows = stream.open(1, 0, state);
  while (const auto row = rows.next()) keys.push_back(row->front().second.text());
  return keys;
}

TEST_F(Tar, WhoSkipsRowsOfABadShardCountsThemAsWhoReadsThem) {
  testing::write_bytes(
      folder_ / "c-0.tar",
      tar_of({{"1.txt", "a"}, {"2.txt", "b"}, {"3.txt", "c"}, {"3.TXT", "d"}, {"4.txt", "e"}}));
  testing::write_bytes(folder_ / "c-1.tar", tar_of({{"5.txt", "f"}, {"6.txt", "g"}, {"7.txt", "h"}}));
  testing::write_bytes(folder_ / "c-2.tar", tar_of({{"8.txt", "i"}, {"9.txt", "j"}}).substr(0, 1800));
  using Keys = std::vector<std::string>;
  const Keys whole{"1", "2", "5", "6", "7", "8"};
  const auto stream = IterableDataset::load(folder_ / "c-{0..2}.tar", {.skip_bad = true});
  ASSERT_EQ(keys_of(stream), whole);
  for (std::size_t count = 0; count <= whole.size(); ++count) {
    EXPECT_EQ(keys_of(stream.skip(static_cast<std::int64_t>(count))),
              Keys(whole.begin() + static_cast<std::ptrdiff_t>(count), whole.end()));
  }
  Keys of_ranks;
  for (int rank = 0; rank < 4; ++rank) {
    const auto keys = keys_of(split_dataset_by_node(stream, rank, 4, SplitStrategy::examples));
    of_ranks.insert(of_ranks.end(), keys.begin(), keys.end());
  }
  EXPECT_EQ(of_ranks, (Keys{"1", "7", "2", "8", "5", "6"}));
  const auto shuffled = stream.shuffle(1, 3);
  const auto order = keys_of(shuffled);
  auto pass = shuffled.open();
  for (std::size_t place = 0; place <= order.size(); ++place, pass.next())
    EXPECT_EQ(keys_of(shuffled, pass.state_dict()),
              Keys(order.begin() + static_cast<std::ptrdiff_t>(place), order.end()));
}

}  // namespace
}  // namespace lockstep
