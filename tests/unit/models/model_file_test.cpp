#include "lockstep/models/model_file.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "lockstep/core/error.hpp"
#include "models/zip_names.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep::models {
namespace {

using testing::TemporaryFolder;

std::string number(std::uint64_t value, int size) {
  std::string bytes;
  for (int i = 0; i < size; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

/// The central directory and the end of an archive with these names, behind `before` bytes of content.
std::string archive(const std::vector<std::string>& names, std::size_t before = 0) {
  std::string directory;
  for (const auto& name : names) {
    directory += "PK\x01\x02" + std::string(24, '\0') + number(name.size(), 2) + number(0, 2) + number(0, 2) +
                 std::string(12, '\0') + name;
  }
  return std::string(before, 'x') + directory + "PK\x05\x06" + std::string(8, '\0') +
         number(directory.size(), 4) + number(before, 4) + number(0, 2);
}

/// A file with this content.
class File {
 public:
  explicit File(const std::string& content) { std::ofstream(path(), std::ios::binary) << content; }
  std::filesystem::path path() const { return folder_ / "model.bin"; }

 private:
  TemporaryFolder folder_;
};

TEST(ZipNames, AreThoseOfTheDirectory) {
  const std::vector<std::string> names = {"net/data.pkl", "net/code/a.py", ""};
  EXPECT_EQ(zip_names(File(archive(names)).path()), names);
  EXPECT_EQ(zip_names(File(archive(names, 1000)).path()), names);
  EXPECT_EQ(zip_names(File(archive(names) + std::string(300, 'c')).path()), names) << "a comment may follow";
}

TEST(ZipNames, OfADamagedArchiveThereAreNone) {
  const std::string whole = archive({"net/data.pkl", "net/version"}, 40);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const auto names = zip_names(File(whole.substr(0, length)).path());
    EXPECT_TRUE(names.empty()) << length;
  }
  for (std::size_t place = 0; place < whole.size(); ++place) {
    std::string damaged = whole;
    damaged[place] = '\xff';
    zip_names(File(damaged).path());  // Whatever it says, it ends and reads no byte outside.
  }
}

TEST(ModelFile, EachKindIsKnownByItsContent) {
  const auto kind = [](const std::string& content) { return model_file_kind(File(content).path()); };
  EXPECT_EQ(kind(archive({"n/data.pkl", "n/constants.pkl", "n/code/__torch__.py"})),
            ModelFileKind::torch_script);
  EXPECT_EQ(kind(archive({"n/data/aotinductor/model/x.so", "n/models/model.json"})),
            ModelFileKind::aot_inductor);
  EXPECT_EQ(kind(archive({"n/models/model.json", "n/version"})), ModelFileKind::exported);
  EXPECT_EQ(kind(archive({"n/data.pkl", "n/data/0"})), ModelFileKind::state_dict);
  EXPECT_EQ(kind(std::string("\x80\x02}q", 4)), ModelFileKind::state_dict);
  EXPECT_EQ(kind(std::string("\x10\0\0\0\0\0\0\0{\"a\": 1}", 16)), ModelFileKind::safetensors);
  for (const auto* other : {"", "PK", "just a text, long enough"})
    EXPECT_EQ(kind(other), ModelFileKind::unknown);
}

TEST(ModelFile, TheErrorSaysWhatTheFileIsAndHowToMakeTheRightOne) {
  const File weights(archive({"n/data.pkl", "n/data/0"}));
  EXPECT_THROWS(require_kind(weights.path(), ModelFileKind::torch_script), DataError, "model.bin",
                "a pickle of torch.save", "torch.jit.script(model).save");
  EXPECT_THROWS(require_kind(weights.path(), ModelFileKind::aot_inductor), DataError,
                "aoti_compile_and_package");
  const TemporaryFolder folder;
  EXPECT_THROWS(model_file_kind(folder.path()), DataError, "is a folder");
  EXPECT_THROWS(model_file_kind(folder / "none.pt"), DataError, "none.pt", "cannot be read");
}

}  // namespace
}  // namespace lockstep::models
