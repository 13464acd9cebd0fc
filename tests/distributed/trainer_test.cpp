#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "job.hpp"
#include "lockstep/core/runtime/program.hpp"

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

/// The accuracy that the README states for the first command.
TEST(ImageClassification, ReachesItsAccuracyOnTwoRanksByDefault) {
  const ScratchFolder folder;
  const Finished job = train_on_two({"--output-dir", folder.file("out")});
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(job.err, "");
  EXPECT_GE(test_accuracy(job.out), 0.97) << job.out;
  EXPECT_GT(std::filesystem::file_size(folder.file("out/model.safetensors")), 1000U);
}

/// The accuracy that the documentation states for augmented digits.
TEST(ImageClassification, ReachesMoreWithAugmentation) {
  const ScratchFolder folder;
  const Finished job =
      train_on_two({"--epochs", "20", "--random-crop-padding", "1", "--output-dir", folder.file("out")});
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_GE(test_accuracy(job.out), 0.98) << job.out;
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

Words resumable(const ScratchFolder& folder, const char* out) {
  return {LOCKSTEP_TRAINER,     "--no-progress",
          "--device",           "cpu",
          "--epochs",           "2",
          "--output-dir",       folder.file(out),
          "--checkpoint-dir",   folder.file("checkpoints"),
          "--checkpoint-every", "10"};
}

/// The lines with the results of training.
Words results_in(const std::string& out) {
  Words results;
  for (const auto& line : lines_of(out)) {
    if (line.starts_with("epoch ") || line.starts_with("test ")) results.push_back(line);
  }
  return results;
}

/// The same command line for the first start and the next.
TEST(ImageClassification, ResumesAfterAStopAsIfUninterrupted) {
  const ScratchFolder folder;
  Words plain = resumable(folder, "plain");
  plain.resize(8);
  const Finished wanted = run_job(plain, 2);
  ASSERT_EQ(wanted.status, 0) << wanted.err;

  auto job = start_job(resumable(folder, "stopped"), 2);
  ASSERT_TRUE(
      launch::eventually([&] { return std::filesystem::exists(folder.file("checkpoints/checkpoint-10")); }));
  job->signal(SIGUSR1);
  const Finished stopped = job->wait();
  EXPECT_EQ(stopped.status, kPreemptedExitCode) << stopped.err;
  EXPECT_EQ(count_lines_with(stopped.out, "preempted: saved "), 1) << stopped.out;
  EXPECT_FALSE(std::filesystem::exists(folder.file("stopped/model.safetensors")));

  const Finished resumed = run_job(resumable(folder, "stopped"), 2);
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(count_lines_with(resumed.out, "resumed from "), 1) << resumed.out;
  Words results = results_in(stopped.out);
  for (const auto& line : results_in(resumed.out)) results.push_back(line);
  EXPECT_EQ(results, results_in(wanted.out));
  EXPECT_EQ(read_file(folder.file("stopped/model.safetensors")) ==
                read_file(folder.file("plain/model.safetensors")),
            true);
}

}  // namespace
}  // namespace lockstep::testing
