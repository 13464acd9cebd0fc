#include "checkpoint/torch_file.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "lockstep/core/error.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "support/zip.hpp"

namespace lockstep {
namespace {

using testing::little_endian;
using testing::TemporaryFolder;
using testing::write_bytes;
using testing::zip_archive;

// The opcodes of a pickle, by what they put on the stack.
std::string text(const std::string& value) { return "X" + little_endian(value.size(), 4) + value; }
std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
std::string number(std::int64_t value) {
  return "\x8a\x08" + little_endian(static_cast<std::uint64_t>(value), 8);
}
std::string tuple(const std::string& items) { return "(" + items + "t"; }
std::string numbers(const std::vector<std::int64_t>& values) {
  std::string items;
  for (const auto value : values) items += number(value);
  return tuple(items);
}
std::string call(const std::string& function, const std::string& arguments) {
  return function + tuple(arguments) + "R";
}
std::string ordered_dict() { return global("collections", "OrderedDict") + ")R"; }

std::string storage(const std::string& key, std::int64_t elements, const std::string& type = "FloatStorage") {
  return tuple(text("storage") + global("torch", type) + text(key) + text("cpu") + number(elements)) + "Q";
}

std::string tensor(const std::string& storage, std::int64_t offset, const std::vector<std::int64_t>& sizes,
                   const std::vector<std::int64_t>& strides) {
  return call(global("torch._utils", "_rebuild_tensor_v2"),
              storage + number(offset) + numbers(sizes) + numbers(strides) + "\x89" + ordered_dict());
}

std::string pickle(const std::string& object) { return "\x80\x02" + object + "."; }
std::string dict(const std::string& entries) { return "}(" + entries + "u"; }

/// A file of torch.save with six floats, 0 to 5, and this pickle.
std::string archive(const std::string& object) {
  std::string floats;
  for (int i = 0; i < 6; ++i) {
    const auto value = static_cast<float>(i);
    std::string bytes(sizeof(value), '\0');
    std::memcpy(bytes.data(), &value, sizeof(value));
    floats += bytes;
  }
  return zip_archive({{"m/data.pkl", pickle(object)}, {"m/byteorder", "little"}, {"m/data/0", floats}});
}

class File {
 public:
  explicit File(const std::string& content) { write_bytes(path(), content); }
  std::filesystem::path path() const { return folder_ / "pytorch_model.bin"; }
  TorchFile open() const { return TorchFile(path()); }

 private:
  TemporaryFolder folder_;
};

std::vector<float> read(const TorchFile& file, const std::string& name) {
  const auto& tensor = file.tensors().at(name);
  std::vector<float> values(tensor.elements);
  file.read(tensor, values.data());
  return values;
}

void expect_refused(const std::string& object, std::initializer_list<std::string_view> parts) {
  try {
    File(archive(object)).open();
    ADD_FAILURE() << "was read";
  } catch (const DataError& error) {
    EXPECT_TRUE(testing::contains_all(error.what(), parts));
    EXPECT_TRUE(testing::contains_all(error.what(), {"pytorch_model.bin"}));
  }
}

TEST(TorchFile, ReadsViewsOfAStorage) {
  const File content(archive(dict(text("all") + tensor(storage("0", 6), 0, {2, 3}, {3, 1}) +  //
                                  text("column") + tensor(storage("0", 6), 1, {2}, {3}) +     //
                                  text("scalar") + tensor(storage("0", 6), 5, {}, {}) +       //
                                  text("empty") + tensor(storage("0", 6), 6, {0, 3}, {3, 1}))));
  const TorchFile file = content.open();
  EXPECT_EQ(read(file, "all"), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(read(file, "column"), (std::vector<float>{1, 2, 3, 4})) << "the range of the view";
  EXPECT_EQ(file.tensors().at("column").strides, std::vector<std::int64_t>{3});
  EXPECT_EQ(read(file, "scalar"), std::vector<float>{5});
  EXPECT_EQ(read(file, "empty"), std::vector<float>{});
  EXPECT_TRUE(is_torch_file(content.path()));
}

TEST(TorchFile, TheLaterOfTwoEqualNamesCounts) {
  const File content(archive(dict(text("x") + tensor(storage("0", 6), 0, {1}, {1}) + text("x") +
                                  tensor(storage("0", 6), 4, {2}, {1}))));
  EXPECT_EQ(read(content.open(), "x"), (std::vector<float>{4, 5}));
}

TEST(TorchFile, CodeIsRefusedByItsName) {
  expect_refused(call(global("os", "system"), text("touch /tmp/owned")),
                 {"uses Python's 'os.system'", "may run code"});
  expect_refused(call(global("builtins", "eval"), text("1")), {"builtins.eval"});
  expect_refused(text("posix") + text("system") + "\x93", {"posix.system"});
  expect_refused(dict(text("model") + call(global("__main__", "Net"), "")),
                 {"__main__.Net", "save_model(model, path)"});
  expect_refused(call(global("torch.storage", "_load_from_bytes"), text("x")),
                 {"torch.storage._load_from_bytes"});
  // Calls of what is no global, and objects that set their state.
  expect_refused(call(ordered_dict(), ""), {"calls a dict"});
  expect_refused(tensor(storage("0", 6), 0, {1}, {1}) + "}b", {"sets attributes of a tensor"});
  // Instructions that make objects in other ways.
  for (const std::string opcode :
       {"i__main__\nNet\n", "o", "\x81", "\x92", "Ppersistent\n", "\x82\x01", "\x97", "I1\n", "V1\n"})
    expect_refused(global("torch", "Size") + ")" + opcode,
                   {"opcode", "does not occur in pickles of tensors"});
}

TEST(TorchFile, AViewBeyondItsStorageIsAnError) {
  const auto entry = [](std::int64_t offset, const std::vector<std::int64_t>& sizes,
                        const std::vector<std::int64_t>& strides) {
    return dict(text("w") + tensor(storage("0", 6), offset, sizes, strides));
  };
  constexpr std::int64_t kLargest = INT64_MAX;
  for (const auto& object :
       {entry(0, {7}, {1}), entry(1, {2, 3}, {3, 1}), entry(7, {}, {}), entry(0, {2}, {6}),
        entry(kLargest, {1}, {1}), entry(0, {2}, {kLargest}), entry(0, {kLargest}, {0}),
        entry(0, {kLargest, kLargest}, {0, 0}), entry(1, {2, 2}, {kLargest, kLargest}), entry(7, {0}, {1})})
    expect_refused(object, {"the entry 'w'", "exceed its storage of 6 elements"});
  expect_refused(entry(-1, {1}, {1}), {"'w'", "offset"});
  expect_refused(entry(0, {-1}, {1}), {"'w'", "sizes"});
  expect_refused(entry(0, {1}, {-1}), {"'w'", "strides"});
  expect_refused(entry(0, {1, 1}, {1}), {"'w'", "another number of sizes than of strides"});
  expect_refused(entry(0, std::vector<std::int64_t>(65, 1), std::vector<std::int64_t>(65, 1)),
                 {"'w'", "sizes"});
  expect_refused(dict(text("w") + tensor(storage("0", 7), 0, {1}, {1})),
                 {"storage '0' should have 7 elements"});
  expect_refused(dict(text("w") + tensor(storage("0", 4, "DoubleStorage"), 0, {1}, {1})),
                 {"storage '0'", "8 bytes"});
  expect_refused(dict(text("w") + tensor(storage("../0", 6), 0, {1}, {1})),
                 {"no record of the storage '../0'"});
}

TEST(TorchFile, OnlyTensorsByNameAreAStateDictionary) {
  expect_refused(tensor(storage("0", 6), 0, {1}, {1}),
                 {"holds an object of type tensor", "torch.save(model.state_dict(), path)"});
  expect_refused(dict(text("epoch") + number(3)), {"the entry 'epoch'", "is of type int, not a tensor"});
  expect_refused(dict(text("state_dict") + dict("")),
                 {"entry 'state_dict'", "is of type dict", "save that entry alone"});
  expect_refused(dict(number(1) + tensor(storage("0", 6), 0, {1}, {1})),
                 {"a name of its dictionary is of type int"});
  expect_refused(dict(text("caf\xe9") + tensor(storage("0", 6), 0, {1}, {1})), {"not UTF-8"});
}

TEST(TorchFile, DamagedPicklesAreErrors) {
  expect_refused("}(", {"value is missing"});
  expect_refused("u", {"missing"});
  expect_refused("t", {"mark is missing"});
  expect_refused("h\x07", {"refers to value 7"});
  expect_refused("}" + text("a") + "NsNs", {"missing"});
  expect_refused("](Nu", {"items are added to a list"});
  expect_refused("X\xff\xff\xff\xff", {"ends in the middle"});
  expect_refused("\x8d" + little_endian(UINT64_MAX, 8), {"ends in the middle"});
  expect_refused("\x80\x06", {"protocol 6"});
  // Nothing is too deep, not even what contains itself.
  std::string deep;
  for (int i = 0; i < 1000000; ++i) deep += "]q\1";
  for (int i = 0; i < 999999; ++i) deep += "a";
  expect_refused(deep, {"holds an object of type list"});
  expect_refused("]q\1h\1a", {"holds an object of type list"});
  // A short program for a long list: the list's copies are counted.
  std::string bomb = "](";
  for (int i = 0; i < 20000; ++i) bomb += "NN\x86";
  bomb += "eq\1";
  for (int i = 0; i < 20000; ++i) bomb += global("collections", "OrderedDict") + "h\1\x85R";
  expect_refused(bomb, {"copies more than"});
}

TEST(TorchFile, DamagedFilesAreErrors) {
  const std::string good = archive(dict(text("w") + tensor(storage("0", 6), 0, {6}, {1})));
  for (std::size_t length = 0; length < good.size(); length += 3)
    EXPECT_THROWS(File(good.substr(0, length)).open(), DataError, "pytorch_model.bin");
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    try {
      const File content(damaged);
      const TorchFile file = content.open();
      for (const auto& [name, tensor] : file.tensors()) {
        ASSERT_LE(tensor.begin + tensor.elements * tensor.element_bytes, damaged.size()) << at;
      }
    } catch (const DataError&) {
    }
  }
  EXPECT_THROWS(File(zip_archive({{"m/other", "x"}})).open(), DataError, "no record data.pkl");
  EXPECT_THROWS(File(zip_archive({{"m/data.pkl", pickle("}")}, {"m/constants.pkl", ""}})).open(), DataError,
                "TorchScript");
  EXPECT_THROWS(File(zip_archive({{"m/data.pkl", pickle("}")}, {"m/byteorder", "big"}})).open(), DataError,
                "another byte order");
}

/// A file of the format before archives.
std::string legacy(const std::string& object, const std::string& keys, const std::string& storages) {
  return pickle("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19") + pickle("M\xe9\x03") +
         pickle(dict(text("little_endian") + "\x88")) + pickle(object) + pickle(keys) + storages;
}

TEST(TorchFile, ReadsTheOlderFormat) {
  const std::string floats =
      std::string("\0\0\x80\x3f", 4) + std::string("\0\0\0\x40", 4) + std::string("\0\0\x40\x40", 4);
  // An identifier with a sixth member is a part of a storage: 2 elements from 1 on.
  const std::string part = tuple(text("storage") + global("torch", "FloatStorage") + text("7") + text("cpu") +
                                 number(3) + tuple(text("8") + number(1) + number(2))) +
                           "Q";
  const std::string object =
      dict(text("w") + tensor(storage("7", 3), 0, {3}, {1}) + text("part") + tensor(part, 0, {2}, {1}));
  const std::string keys = "](" + text("7") + "e";
  const std::string good = legacy(object, keys, little_endian(3, 8) + floats);
  const File content(good);
  EXPECT_TRUE(is_torch_file(content.path()));
  EXPECT_EQ(read(content.open(), "w"), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(read(content.open(), "part"), (std::vector<float>{2, 3}));
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_THROWS(File(good.substr(0, length)).open(), DataError, "pytorch_model.bin");
  EXPECT_THROWS(File(legacy(object, keys, little_endian(UINT64_MAX, 8) + floats)).open(), DataError,
                "truncated");
  EXPECT_THROWS(File(legacy(object, "](" + text("9") + "e", "")).open(), DataError,
                "no tensor refers to its storage '9'");
  EXPECT_THROWS(File(legacy(object, "]", "")).open(), DataError, "no bytes of the storage '7'");
  EXPECT_THROWS(File(pickle(number(7))).open(), DataError, "does not begin with torch.save's magic number");
}

}  // namespace
}  // namespace lockstep
