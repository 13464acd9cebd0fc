// Training with DistributedDataParallel in C++ and in Python gives the same bits. README.md describes the
// cases, the text and the settings.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <optional>

#include "golden_file.hpp"
#include "interop/jobs.hpp"

namespace lockstep::golden {
namespace {

using launch::read_file;
using launch::ScratchFolder;
using testing::joined;
using testing::read_settings;
using testing::run_program;
using testing::run_under_lockstep;
using testing::run_under_torchrun;
using testing::standalone_flags;
using testing::Words;

const std::string kScript = LOCKSTEP_TESTS_DIR "/golden/make_golden.py";

std::string text_of(const ScratchFolder& folder, const std::string& name, int rank = 0) {
  return read_file(folder.file(name + "." + std::to_string(rank) + ".txt"));
}

/// Expects a text that says something: a gradient after the first step, and numbers only.
void expect_content(const std::string& text) {
  EXPECT_NE(text.find("step 1 gradient "), std::string::npos);
  EXPECT_GT(sections_of(text).size(), 10U);
  EXPECT_EQ(text.find("nan"), std::string::npos);
  EXPECT_EQ(text.find("inf"), std::string::npos);
}

class CheckedIn : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Cases, CheckedIn, ::testing::Values("mlp", "cnn"));

TEST_P(CheckedIn, NumbersAreReached) {
  const ScratchFolder ours;
  run_under_lockstep(2, {LOCKSTEP_GOLDEN_TRAIN, ours.path(), GetParam()},
                     read_settings(LOCKSTEP_TESTS_DIR "/golden/portable.env"));
  const std::string golden = read_file(LOCKSTEP_TESTS_DIR "/golden/" + std::string(GetParam()) + ".txt");
  expect_content(golden);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(first_difference(text_of(ours, GetParam(), rank), golden), "") << "rank " << rank;
  }
}

const Words kLiveCases{"mlp",     "cnn",        "bucket_view", "tiny_buckets", "static_graph",
                       "no_sync", "batch_norm", "script_mlp",  "script_cnn",   "script_unused"};

/// Both languages train all cases once, here and now, with whatever this processor computes best with.
class Live : public ::testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() {
    python_.emplace();
    ours_.emplace();
    run_under_torchrun(standalone_flags(), joined({kScript, python_->path()}, kLiveCases), python_->path());
    for (const auto& name : kLiveCases) {
      const std::string script = name + ".pt";
      if (!std::filesystem::exists(python_->file(script))) continue;
      std::filesystem::copy_file(python_->file(script), ours_->file(script));
    }
    run_under_lockstep(2, joined({LOCKSTEP_GOLDEN_TRAIN, ours_->path()}, kLiveCases));
  }
  static void TearDownTestSuite() {
    python_.reset();
    ours_.reset();
  }

  static inline std::optional<ScratchFolder> python_;
  static inline std::optional<ScratchFolder> ours_;
};
INSTANTIATE_TEST_SUITE_P(Cases, Live, ::testing::ValuesIn(kLiveCases),
                         [](const auto& test) { return test.param; });

TEST_P(Live, PythonGivesTheSameBits) {
  const std::string python = text_of(*python_, GetParam());
  expect_content(python);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(first_difference(text_of(*ours_, GetParam(), rank), python), "") << "rank " << rank;
  }
}

/// The largest difference between two gradients of the same heading. Fails when one has another set of
/// headings.
double largest_difference(const std::string& one, const std::string& other) {
  const auto sections = sections_of(one);
  const auto other_sections = sections_of(other);
  double largest = 0;
  int compared = 0;
  for (const auto& [heading, values] : sections) {
    if (heading.find(" gradient ") == std::string::npos) continue;
    const auto& other_values = other_sections.at(heading);
    EXPECT_EQ(values.size(), other_values.size()) << heading;
    for (std::size_t i = 0; i < values.size() && i < other_values.size(); ++i) {
      largest = std::max(largest, std::abs(values[i] - other_values[i]));
      ++compared;
    }
  }
  EXPECT_GT(compared, 1000);
  return largest;
}

/// The same batches of 32 rows, trained on by one process in Python and by worlds of several sizes here.
class Split : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    python_.emplace();
    run_program(LOCKSTEP_TEST_PYTHON, {"-B", kScript, python_->path(), "split", "split_exact"});
    for (const int size : {1, 2, 4}) {
      const auto& folder = *worlds_.emplace(size, std::make_unique<ScratchFolder>()).first->second;
      run_under_lockstep(size, {LOCKSTEP_GOLDEN_TRAIN, folder.path(), "split", "split_exact"});
    }
  }
  static void TearDownTestSuite() {
    python_.reset();
    worlds_.clear();
  }

  static std::string ours(int size, const std::string& name) {
    return text_of(*worlds_.at(size), name, size - 1);
  }

  static inline std::optional<ScratchFolder> python_;
  static inline std::map<int, std::unique_ptr<ScratchFolder>> worlds_;
};

TEST_F(Split, AWorldOfOneGivesTheBitsOfPython) {
  for (const char* name : {"split", "split_exact"}) {
    expect_content(text_of(*python_, name));
    EXPECT_EQ(first_difference(ours(1, name), text_of(*python_, name)), "") << name;
  }
}

TEST_F(Split, GradientsAreEqualWhereTheArithmeticIsExact) {
  for (const int size : {2, 4}) {
    EXPECT_EQ(largest_difference(ours(1, "split_exact"), ours(size, "split_exact")), 0.0) << size << " ranks";
  }
}

TEST_F(Split, GradientsAreEqualWithinRounding) {
  // Gradients here are below 1/8, where neighbouring floats are at most 7.5e-9 apart.
  constexpr double kRounding = 5e-8;
  for (const int size : {2, 4}) {
    EXPECT_LE(largest_difference(ours(1, "split"), ours(size, "split")), kRounding) << size << " ranks";
  }
}

}  // namespace
}  // namespace lockstep::golden
