#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "job.hpp"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using launch::read_file;

const std::string kName = "image_classification";
const std::string kImages = LOCKSTEP_DATA_DIR "/digits/digits-images-idx3-ubyte";
const std::string kLabels = LOCKSTEP_DATA_DIR "/digits/digits-labels-idx1-ubyte";

/// The trainer without a launcher.
Finished run_alone(const Words& words) {
  return LauncherProcess(words, {{"OMP_NUM_THREADS", "1"}}, {}, LOCKSTEP_TRAINER).wait();
}

Finished run_on_two(const Words& words) {
  Words program{LOCKSTEP_TRAINER};
  program.insert(program.end(), words.begin(), words.end());
  return run_job(program, 2);
}

/// Expects `status` and one line that contains the parts, from one process, and from each of two ranks.
void expect_refusal(Words words, int status, std::initializer_list<std::string_view> parts) {
  const ScratchFolder folder;
  words.insert(words.end(), {"--output-dir", folder.file("out")});
  const Finished alone = run_alone(words);
  EXPECT_EQ(alone.status, status) << alone.err;
  EXPECT_EQ(lines_of(alone.err).size(), 1U) << alone.err;
  EXPECT_TRUE(contains_all(alone.err, {kName + ": error: "}) && contains_all(alone.err, parts));
  const Finished both = run_on_two(words);
  EXPECT_EQ(both.status, status) << both.err;
  EXPECT_EQ(count_lines_with(both.err, "FAILED: rank "), 1) << both.err;
  EXPECT_TRUE(is_readable(both, kName));
  EXPECT_TRUE(contains_all(both.err, parts));
  EXPECT_FALSE(fs::exists(folder.file("out/model.safetensors")));
}

TEST(Refused, AnUnknownFlag) {
  expect_refusal({"--epohcs", "3"}, 2, {"--epohcs", "did you mean '--epochs'"});
}
TEST(Refused, NoEpochs) { expect_refusal({"--epochs", "0"}, 2, {"--epochs", "'0'", "at least 1"}); }
TEST(Refused, ABatchSizeOfLetters) {
  expect_refusal({"--batch-size", "x"}, 2, {"--batch-size", "'x'", "integer"});
}
TEST(Refused, FractionsAboveTheWhole) {
  expect_refusal({"--validation-fraction", "0.6", "--test-fraction", "0.6"}, 2,
                 {"--validation-fraction and --test-fraction", "each needs at least one"});
}
TEST(Refused, ANonsensicalDevice) {
  expect_refusal({"--device", "toaster"}, 2, {"'toaster' is not a device: expected auto"});
}
TEST(Refused, AnIntervalOfCheckpointsThatAreNotWritten) {
  expect_refusal({"--checkpoint-every", "5"}, 2, {"--checkpoint-every", "--checkpoint-dir", "--save-steps"});
  expect_refusal({"--checkpoint-every", "5", "--checkpoint-dir", "x", "--save-steps", "7"}, 2,
                 {"--checkpoint-every", "--save-steps"});
}
TEST(Refused, AModelThatIsNotAProgram) {
  expect_refusal({"--model", kImages}, 1, {"digits-images", "torch.jit.script(model).save"});
}
TEST(Refused, NcclOnTheCpu) {
  expect_refusal({"--device", "cpu", "--backend", "nccl"}, 2, {"nccl", "CUDA tensors only", "cpu", "gloo"});
}
/// On a machine with few devices, and on one without any.
TEST(Refused, ACudaDeviceThatIsNotThere) {
  expect_refusal({"--device", "cuda:99"}, 2, {"means CUDA device 99, but this process can use", "'cpu'"});
}
TEST(Refused, CudaWhereThereIsNone) {
  if (fs::exists("/dev/nvidiactl")) GTEST_SKIP() << "this machine has NVIDIA's driver";
  expect_refusal({"--device", "cuda"}, 2,
                 {"device 'cuda' means CUDA device ", "can use 0 CUDA devices", "'cpu'"});
}
TEST(Refused, AFolderThatIsNotThere) {
  expect_refusal({"--data", "/no/such/folder"}, 2, {"/no/such/folder is not a folder"});
}
TEST(Refused, AFolderWithoutImages) {
  const ScratchFolder folder;
  expect_refusal({"--data", folder.path()}, 2, {folder.path(), "expected one file *-images-idx3-ubyte", "0"});
}

/// A copy of the digits, to be damaged.
class SpoiltDigits : public ::testing::Test {
 protected:
  SpoiltDigits() {
    fs::copy_file(kImages, images());
    fs::copy_file(kLabels, labels());
  }

  std::string images() const { return folder_.file("a-images-idx3-ubyte"); }
  std::string labels() const { return folder_.file("a-labels-idx1-ubyte"); }
  const std::string& folder() const { return folder_.path(); }

 private:
  ScratchFolder folder_;
};

TEST_F(SpoiltDigits, ThatAreCutOff) {
  fs::resize_file(images(), 1000);
  expect_refusal({"--data", folder()}, 1, {images(), "claims 115008 data bytes", "the file has 984"});
}

TEST_F(SpoiltDigits, ThatAreCutOffInTheHeader) {
  fs::resize_file(images(), 3);
  expect_refusal({"--data", folder()}, 1, {images()});
}

TEST_F(SpoiltDigits, ThatAreNoIdxFile) {
  std::ofstream(images()) << "This is not the file that you look for.";
  expect_refusal({"--data", folder()}, 1, {images()});
}

TEST_F(SpoiltDigits, WithTooFewLabels) {
  const std::string header("\0\0\x08\x01\0\0\0\x03", 8);
  std::ofstream(labels(), std::ios::binary) << header << "\1\2\3";
  expect_refusal({"--data", folder()}, 1, {labels(), "expected 1797 unsigned bytes"});
}

/// A folder instead of the file, which even root cannot read.
TEST_F(SpoiltDigits, ThatCannotBeRead) {
  fs::remove(labels());
  fs::create_directory(labels());
  expect_refusal({"--data", folder()}, 1, {labels()});
}

/// Reported before training, not after hours of it.
TEST(Refused, AnOutputFolderThatIsAFile) {
  const ScratchFolder folder;
  const std::string file = folder.write("file", "mine");
  const Finished alone = run_alone({"--output-dir", file});
  EXPECT_EQ(alone.status, 2);
  EXPECT_EQ(alone.err,
            kName + ": error: --output-dir " + file + " cannot be made a folder: Not a directory\n");
  const Finished both = run_on_two({"--output-dir", file + "/out"});
  EXPECT_EQ(both.status, 2);
  EXPECT_TRUE(blames(both, 0, kName));
  EXPECT_TRUE(contains_all(error_of_rank(both, 1, kName), {"rank 0 failed", file}));
  EXPECT_EQ(count_lines_with(alone.out + both.out, "epoch 1"), 0);
  EXPECT_EQ(read_file(file), "mine");
}

TEST(Refused, ALearningRateThatMakesTheLossNoNumber) {
  expect_refusal({"--learning-rate", "1e30", "--no-progress"}, 1,
                 {"the loss is ", "try a smaller --learning-rate"});
}

TEST(Help, NamesEveryOption) {
  const Finished help = run_alone({"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_EQ(help.err, "");
  for (const auto* flag : {"-h, --help",
                           "--data",
                           "--validation-fraction",
                           "--test-fraction",
                           "--num-workers",
                           "--epochs",
                           "--batch-size",
                           "--learning-rate",
                           "--weight-decay",
                           "--seed",
                           "--device",
                           "--backend",
                           "--timeout",
                           "--output-dir",
                           "--[no-]progress",
                           "--gradient-accumulation-steps",
                           "--early-stopping-patience",
                           "--ema-decay",
                           "--report-to",
                           "--lr-scheduler-type",
                           "--[no-]bf16"}) {
    // Texts of other options may mention it; its own line begins with it.
    EXPECT_EQ(count_lines_with(help.out, "  " + std::string(flag) + " "), 1) << flag << " in:\n" << help.out;
  }
}

}  // namespace
}  // namespace lockstep::testing
