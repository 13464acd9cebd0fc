#include "checkpoint/shards.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "lockstep/core/error.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::TemporaryFolder;
using testing::write_bytes;

struct GoldenCase {
  std::uint64_t largest = 0;
  shards::TensorSizes sizes;
  std::vector<std::size_t> files;
};

GoldenCase parse(const std::string& line) {
  std::istringstream words(line);
  GoldenCase result;
  words >> result.largest;
  std::string word;
  while (words >> word && word != "|")
    result.sizes.emplace_back(std::to_string(result.sizes.size()), std::stoull(word));
  for (std::size_t file = 0; words >> file;) result.files.push_back(file);
  return result;
}

std::vector<std::size_t> files_of(const shards::Plan& plan, std::size_t tensors) {
  std::vector<std::size_t> files(tensors);
  for (std::size_t i = 0; i < plan.files.size(); ++i) {
    for (const auto& name : plan.files[i].second) files.at(std::stoul(name)) = i;
  }
  return files;
}

TEST(Shards, AreHuggingFaces) {
  std::ifstream file(LOCKSTEP_SHARDS_GOLDENS);
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const GoldenCase golden = parse(line);
    const auto plan = shards::plan(golden.sizes, golden.largest, "model.safetensors");
    EXPECT_EQ(files_of(plan, golden.sizes.size()), golden.files) << line;
  }
  EXPECT_EQ(cases, 60);
}

TEST(Shards, AreNamedAndListed) {
  const auto plan = shards::plan({{"b", 6}, {"a", 6}, {"c", 2}}, 8, "model.safetensors");
  ASSERT_EQ(plan.files.size(), 2U);
  EXPECT_EQ(plan.files[1].first, "model-00002-of-00002.safetensors");
  EXPECT_EQ(shards::index_text(plan), R"({
  "metadata": {
    "total_size": 14
  },
  "weight_map": {
    "a": "model-00002-of-00002.safetensors",
    "b": "model-00001-of-00002.safetensors",
    "c": "model-00002-of-00002.safetensors"
  }
}
)");
  EXPECT_EQ(shards::plan({{"b", 6}}, 8, "model.safetensors").files[0].first, "model.safetensors");
  EXPECT_EQ(shards::plan({}, 8, "model.safetensors").files.size(), 1U);
}

TEST(Shards, GiveBackAnIndexAndRefuseOthers) {
  const TemporaryFolder folder;
  const auto path = folder / "model.safetensors.index.json";
  write_bytes(path, shards::index_text(shards::plan({{"b", 6}, {"a", 6}}, 8, "model.safetensors")));
  EXPECT_EQ(shards::read_index(path).at("a"), "model-00002-of-00002.safetensors");
  const std::string deep(100000, '[');
  for (const std::string text :
       {R"({"weight_map":{"a":"../x"}})", R"({"weight_map":{"a":1}})", "[]", "", R"({"weight_map":{"a":)"}) {
    write_bytes(path, text);
    EXPECT_THROWS(shards::read_index(path), DataError, path.string());
  }
  write_bytes(path, deep);
  EXPECT_THROWS(shards::read_index(path), DataError, "too deeply");
}

}  // namespace
}  // namespace lockstep
