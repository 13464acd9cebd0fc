#include "lockstep/models/model_file.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/core/error.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "support/zip.hpp"

namespace lockstep::models {
namespace {

using testing::TemporaryFolder;
using testing::zip_directory;

/// A file with this content.
class File {
 public:
  explicit File(const std::string& content) { testing::write_bytes(path(), content); }
  std::filesystem::path path() const { return folder_ / "model.bin"; }

 private:
  TemporaryFolder folder_;
};

TEST(ModelFile, EachKindIsKnownByItsContent) {
  const auto kind = [](const std::string& content) { return model_file_kind(File(content).path()); };
  EXPECT_EQ(kind(zip_directory({"n/data.pkl", "n/constants.pkl", "n/code/__torch__.py"})),
            ModelFileKind::torch_script);
  EXPECT_EQ(kind(zip_directory({"n/data/aotinductor/model/x.so", "n/models/model.json"})),
            ModelFileKind::aot_inductor);
  EXPECT_EQ(kind(zip_directory({"n/models/model.json", "n/version"})), ModelFileKind::exported);
  EXPECT_EQ(kind(zip_directory({"n/data.pkl", "n/data/0"})), ModelFileKind::state_dict);
  EXPECT_EQ(kind(std::string("\x80\x02}q", 4)), ModelFileKind::state_dict);
  EXPECT_EQ(kind(std::string("\x10\0\0\0\0\0\0\0{\"a\": 1}", 16)), ModelFileKind::safetensors);
  for (const auto* other : {"", "PK", "just a text, long enough"})
    EXPECT_EQ(kind(other), ModelFileKind::unknown);
}

TEST(ModelFile, TheErrorSaysWhatTheFileIsAndHowToMakeTheRightOne) {
  const File weights(zip_directory({"n/data.pkl", "n/data/0"}));
  EXPECT_THROWS(require_kind(weights.path(), ModelFileKind::torch_script), DataError, "model.bin",
                "a pickle of torch.save", "torch.jit.script(model).save");
  EXPECT_THROWS(require_kind(weights.path(), ModelFileKind::aot_inductor), DataError,
                "aoti_compile_and_package");
  const TemporaryFolder folder;
  EXPECT_THROWS(model_file_kind(folder.path()), DataError, "is a folder");
  EXPECT_THROWS(model_file_kind(folder / "none.pt"), DataError, "none.pt", "cannot read");
}

}  // namespace
}  // namespace lockstep::models
