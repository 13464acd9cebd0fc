#include <cstdlib>
#include <filesystem>

#include "job.hpp"

namespace lockstep::testing {
namespace {

using launch::read_file;

Finished train_on_two(const Words& words) {
  Words program{LOCKSTEP_TRAINER, "--no-progress", "--device", "cpu"};
  program.insert(program.end(), words.begin(), words.end());
  return run_job(program, 2);
}

double test_accuracy(const std::string& out) {
  const std::string words = "test accuracy ";
  const auto place = out.find(words);
  return place == std::string::npos ? 0 : std::atof(out.c_str() + place + words.size());
}

/// What the README promises of the first command that a newcomer runs.
TEST(ImageClassification, ReachesItsAccuracyOnTwoRanksByDefault) {
  const ScratchFolder folder;
  const Finished job = train_on_two({"--output-dir", folder.file("out")});
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(job.err, "");
  EXPECT_GE(test_accuracy(job.out), 0.97) << job.out;
  EXPECT_GT(std::filesystem::file_size(folder.file("out/model.safetensors")), 1000U);
}

TEST(ImageClassification, GivesTheSameBytesTwice) {
  const ScratchFolder folder;
  for (const auto* out : {"one", "two"}) {
    const Finished job = train_on_two({"--epochs", "1", "--output-dir", folder.file(out)});
    ASSERT_EQ(job.status, 0) << job.err;
  }
  const std::string first = read_file(folder.file("one/model.safetensors"));
  EXPECT_GT(first.size(), 1000U);
  EXPECT_EQ(first == read_file(folder.file("two/model.safetensors")), true);
}

}  // namespace
}  // namespace lockstep::testing
