// The trainer on images: supported folders, models, augmentation, and errors.

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "job.hpp"
#include "lost_rank.hpp"
#include "support/tiny_models.hpp"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using launch::read_file;

/// The number after the words in the text, or -1.
double number_after(const std::string& text, const std::string& words) {
  const auto place = text.find(words);
  return place == std::string::npos ? -1 : std::atof(text.c_str() + place + words.size());
}

/// The lines with this beginning.
Words lines_with(const std::string& text, const std::string& beginning) {
  Words found;
  for (const auto& line : lines_of(text)) {
    if (line.starts_with(beginning)) found.push_back(line);
  }
  return found;
}

/// Records of CIFAR-10's binary format: the label determines the red and green of an image; the rest is
/// noise.
std::string cifar_records(int count, unsigned seed) {
  constexpr int kPixels = 32 * 32;
  std::string bytes;
  for (int record = 0; record < count; ++record) {
    const int label = record % 2 == 0 ? 2 : 9;
    bytes += static_cast<char>(label);
    for (const int level : {20 + 20 * label, 220 - 20 * label, 100}) {
      for (int pixel = 0; pixel < kPixels; ++pixel) {
        seed = seed * 1664525U + 1013904223U;
        bytes += static_cast<char>(level + static_cast<int>(seed >> 28));
      }
    }
  }
  return bytes;
}

/// An IDX file of unsigned bytes.
std::string idx(const std::vector<int>& shape, const std::string& bytes) {
  std::string file{'\0', '\0', '\x08', static_cast<char>(shape.size())};
  for (const int size : shape) file += {'\0', '\0', static_cast<char>(size >> 8), static_cast<char>(size)};
  return file + bytes;
}

/// A folder for data, and one for the trainer's output.
class ImageTrainer : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.file(name); }
  std::string write(const std::string& name, const std::string& bytes) const {
    return data_.write(name, bytes);
  }
  std::string data_file(const std::string& name) const { return data_.file(name); }
  void remove(const std::string& name) const { fs::remove(data_file(name)); }

  /// Two files of training images and one of test images.
  void write_cifar(int train = 80, int test = 33) const {
    write("data_batch_1.bin", cifar_records(train / 2, 1));
    write("data_batch_2.bin", cifar_records(train / 2, 2));
    write("test_batch.bin", cifar_records(test, 3));
  }

  /// `count` square images whose brightness determines their label.
  void write_idx(const std::string& name, int count, int side, int classes) const {
    std::string images, labels;
    for (int image = 0; image < count; ++image) {
      const int label = image % classes;
      labels += static_cast<char>(label);
      for (int pixel = 0; pixel < side * side; ++pixel)
        images += static_cast<char>(label * 255 / (classes - 1) / (1 + pixel % 2));
    }
    write(name + "-images-idx3-ubyte", idx({count, side, side}, images));
    write(name + "-labels-idx1-ubyte", idx({count}, labels));
  }

  Words words(const Words& more) const {
    return Words{LOCKSTEP_TRAINER, "--no-progress", "--device", "cpu", "--data", data_.path()} + more;
  }
  Words words(const std::string& more) const { return words(split(more)); }

  /// One process, without the launcher.
  static std::unique_ptr<LauncherProcess> start_alone(const Words& words) {
    return std::make_unique<LauncherProcess>(Words(words.begin() + 1, words.end()),
                                             Environment{{"OMP_NUM_THREADS", "1"}}, nullptr, words.front());
  }

  /// Expects exit code `status` and one line of error with these parts, before any training.
  void expect_refusal(const std::string& flags, int status,
                      std::initializer_list<std::string_view> parts) const {
    const Finished alone = start_alone(words(flags) + Words{"--output-dir", file("refused")})->wait();
    EXPECT_EQ(alone.status, status) << alone.err;
    EXPECT_EQ(lines_of(alone.err).size(), 1U) << alone.err;
    EXPECT_TRUE(contains_all(alone.err, parts));
    EXPECT_EQ(count_lines_with(alone.out, "epoch 1"), 0) << alone.out;
  }

 private:
  ScratchFolder data_;
  ScratchFolder folder_;
};

using Cifar = ImageTrainer;
using Mnist = ImageTrainer;

const std::string kAugmented = "--random-crop-padding 4 --horizontal-flip --normalize ";

/// Including augmentation and running means of batch normalization: the same bits with a different number of
/// workers after the middle of an epoch, and the same test images on one rank and on two.
TEST_F(Cifar, AResNetLearnsAndResumesInTheMiddleOfAnEpochWithTheSameBits) {
  write_cifar();
  const Words training = words(
      "--model resnet18 --learning-rate 5e-4 --batch-size 8 --epochs 2 --checkpoint-every 3 --keep-last 0 " +
      kAugmented);
  const Finished whole = run_job(training + Words{"--num-workers", "0", "--checkpoint-dir", file("whole"),
                                                  "--output-dir", file("whole-out")},
                                 2);
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_EQ(count_lines_with(whole.out, "training on 72 images, validating on 8, testing on 33"), 1);
  EXPECT_LT(number_after(whole.out, "epoch 2: loss "), 0.8 * number_after(whole.out, "epoch 1: loss "));

  const Finished rest =
      run_job(training + Words{"--num-workers", "2", "--checkpoint-dir", file("rest"), "--output-dir",
                               file("rest-out"), "--resume", file("whole/checkpoint-3")},
              2);
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(count_lines_with(rest.out, "resumed from "), 1) << rest.out;
  EXPECT_EQ(lines_with(rest.out, "epoch "), lines_with(whole.out, "epoch "));
  EXPECT_EQ(read_file(file("whole-out/model.safetensors")) == read_file(file("rest-out/model.safetensors")),
            true);

  const Finished tested =
      run_job(training + Words{"--checkpoint-dir", file("whole"), "--output-dir", file("tested")}, 1);
  ASSERT_EQ(tested.status, 0) << tested.err;
  EXPECT_EQ(lines_with(tested.out, "test accuracy"), lines_with(whole.out, "test accuracy"));
}

TEST_F(Cifar, AKilledTrainingResumesAsIfUninterrupted) {
  write_cifar(200);
  const Words training =
      words("--learning-rate 1e-3 --batch-size 4 --epochs 2 --num-workers 1 " + kAugmented);
  const Finished whole = start_alone(training + Words{"--output-dir", file("whole")})->wait();
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_GT(number_after(whole.out, "test accuracy "), 0.9) << whole.out;

  const Words resumable = training + Words{"--output-dir",      file("killed"),       "--checkpoint-dir",
                                           file("checkpoints"), "--checkpoint-every", "7"};
  const auto killed = start_alone(resumable);
  ASSERT_TRUE(launch::eventually([&] { return fs::exists(file("checkpoints/checkpoint-7")); }));
  killed->signal(SIGKILL);
  EXPECT_EQ(killed->wait().status, -SIGKILL);
  const Finished resumed = start_alone(resumable)->wait();
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(count_lines_with(resumed.out, "resumed from "), 1) << resumed.out;
  EXPECT_EQ(read_file(file("whole/model.safetensors")) == read_file(file("killed/model.safetensors")), true);
  // As many others are not the images of the checkpoint.
  write("data_batch_1.bin", cifar_records(100, 7));
  const Finished others = start_alone(resumable + Words{"--epochs", "3"})->wait();
  EXPECT_EQ(others.status, 2) << others.out;
  EXPECT_TRUE(contains_all(others.err, {"data set", "200 images", "pixels"}));
}

/// A lost rank takes nothing of the epoch's loss and accuracy along, nor does one that prints them.
TEST_F(Cifar, LosesRanksAndPrintsTheSameEpochs) {
  write_cifar(400);
  const auto start = [&](const std::string& name) {
    return start_job(
        words("--learning-rate 1e-3 --batch-size 4 --epochs 3 --checkpoint-every 5 --keep-last 0 " +
              kAugmented) +
            Words{"--output-dir", file(name), "--checkpoint-dir", file(name + "-checkpoints")},
        2, {"--max-recoveries", "4"});
  };
  const Finished whole = start("whole")->wait();
  ASSERT_EQ(whole.status, 0) << whole.err;
  const auto job = start("lost");
  const auto is_at = [&](int step) {
    return [this, step] { return fs::exists(file("lost-checkpoints/checkpoint-" + std::to_string(step))); };
  };
  kill_rank(1, file("lost"), is_at(10));
  kill_rank(0, file("lost"), is_at(65));
  const Finished lost = job->wait();
  ASSERT_EQ(lost.status, 0) << lost.err;
  EXPECT_EQ(count_lines_with(lost.err, "all ranks are there again after"), 2) << lost.err;
  // A process that is lost right after it has printed a line has a successor that prints it again.
  Words epochs = lines_with(lost.out, "epoch ");
  epochs.erase(std::unique(epochs.begin(), epochs.end()), epochs.end());
  EXPECT_EQ(lines_with(whole.out, "epoch ").size(), 3U) << whole.out;
  EXPECT_EQ(epochs, lines_with(whole.out, "epoch "));
  EXPECT_EQ(lines_with(lost.out, "test accuracy"), lines_with(whole.out, "test accuracy"));
  EXPECT_TRUE(read_file(file("whole/model.safetensors")) == read_file(file("lost/model.safetensors")));
}

TEST_F(Cifar, WithoutATestBatchAPartOfTheImagesIsTestedOn) {
  write_cifar();
  remove("test_batch.bin");
  const Finished job =
      start_alone(words("--epochs 1 --mixed-precision bf16") + Words{"--output-dir", file("out")})->wait();
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(count_lines_with(job.out, "training on 56 images, validating on 8, testing on 16"), 1) << job.out;
}

TEST_F(Cifar, RefusesFilesThatDoNotFit) {
  expect_refusal("", 2, {"expected one file *-images-idx3-ubyte", "data_batch_*.bin", "there are 0"});
  fs::create_directories(data_file("train/cat"));
  fs::create_directories(data_file("validation/cat"));
  expect_refusal("", 2, {"folders train and val", "but folders train, validation"});
  write("data_batch_1", "pickled");
  expect_refusal("", 2, {"CIFAR-10 for Python", "binary version"});
  write_cifar();
  write("data_batch_2.bin", cifar_records(1, 1).substr(0, 3000));
  expect_refusal("", 1, {"data_batch_2.bin", "3000 bytes are not records of 3073 bytes"});
  write("data_batch_2.bin", "\x0A" + cifar_records(1, 1).substr(1));
  expect_refusal("", 1, {"data_batch_2.bin", "record 0", "label 10", "from 0 to 9"});
  write("data_batch_2.bin", "");
  expect_refusal("", 1, {"data_batch_2.bin", "0 bytes"});
  write_idx("train", 4, 8, 2);
  expect_refusal("", 2, {"IDX and CIFAR-10 files are in the same folder"});
}

TEST_F(Cifar, RefusesFoldersOfOtherClasses) {
  for (const char* name : {"train/cat", "train/dog", "val/cat", "val/wolf"}) {
    fs::create_directories(data_file(name));
    write(std::string(name) + "/0.png", "");
  }
  expect_refusal("", 1, {"only train/ has 'dog', only val has 'wolf'"});
  fs::remove_all(data_file("train/dog"));
  fs::remove_all(data_file("val/wolf"));
  fs::create_directory_symlink("..", data_file("train/cat/loop"));
  expect_refusal("", 1, {"train/cat/loop' is a link to a folder above it"});
  fs::remove(data_file("train/cat/loop"));
  expect_refusal("", 1, {"one class only, 'cat'", "two or more"});
}

TEST_F(Cifar, RefusesTestImagesAlone) {
  write("test_batch.bin", cifar_records(4, 1));
  expect_refusal("", 2, {"test_batch.bin, but no data_batch_*.bin"});
}

TEST_F(Cifar, RefusesFlagsThatContradictEachOther) {
  write_cifar(40, 2);
  expect_refusal("--model resnet34", 2, {"--model resnet34", "resnet18, resnet50", "no such file"});
  expect_refusal("--model " LOCKSTEP_TRAINER " --weights w.safetensors", 2,
                 {"--weights w.safetensors", "TorchScript", "leave one of the two out"});
  expect_refusal("--weights " + file("none.safetensors"), 1, {"none.safetensors"});
  expect_refusal("--test-fraction 0.2", 2, {"--test-fraction", "already has test images"});
  expect_refusal("--validation-fraction 0.01", 2,
                 {"--validation-fraction splits 40 images", "0 for validation"});
  expect_refusal("--random-crop-padding -1", 2, {"--random-crop-padding", "at least 0"});
  expect_refusal("--mixed-precision fp8", 2, {"--mixed-precision", "'fp8'", "bf16"});
}

nlohmann::json json_of(const std::string& path) { return nlohmann::json::parse(read_file(path)); }

/// From its weights, with a new classifier for other classes; what is saved is such a folder again.
TEST_F(Cifar, AModelOfAFolderIsTrainedAndSaved) {
  write_cifar();
  write_tiny_vit(file("vit"), 3);
  const std::string flags = "--learning-rate 1e-3 --batch-size 8 --horizontal-flip --random-crop-padding 4 ";
  const Finished job =
      run_job(words(flags + "--epochs 3") + Words{"--model", file("vit"), "--output-dir", file("tuned")}, 2);
  ASSERT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(lines_with(job.out, "new: "), (Words{"new: classifier.weight, classifier.bias: " + file("vit") +
                                                 " has 3 classes, the data have 10"}));
  EXPECT_GT(number_after(job.out, "test accuracy "), 0.9) << job.out;
  const auto config = json_of(file("tuned/config.json"));
  EXPECT_EQ(config["id2label"].size(), 10U);
  EXPECT_EQ(config["kept"], "as it is");
  EXPECT_EQ(json_of(file("tuned/preprocessor_config.json")), json_of(file("vit/preprocessor_config.json")));

  // Nothing is new now, and nothing is learned: the test has the same result, on one rank.
  const Finished again = run_job(words("--learning-rate 1e-30 --weight-decay 0 --epochs 1 --batch-size 8") +
                                     Words{"--model", file("tuned"), "--output-dir", file("again")},
                                 1);
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(count_lines_with(again.out, "new: "), 0) << again.out;
  EXPECT_EQ(number_after(again.out, "test accuracy "), number_after(job.out, "test accuracy ")) << again.out;

  // Larger images, for which positions are interpolated.
  const Finished large = run_job(words("--epochs 1 --batch-size 8 --resize 24") +
                                     Words{"--model", file("tuned"), "--output-dir", file("large")},
                                 1);
  ASSERT_EQ(large.status, 0) << large.err;
  EXPECT_EQ(json_of(file("large/preprocessor_config.json"))["size"]["width"], 24);
}

TEST_F(Cifar, RefusesFoldersThatAreNoModelOfImages) {
  write_cifar(40, 10);
  write_tiny_vit(file("vit"), 3);
  const std::string model = "--model " + file("vit") + " ";
  expect_refusal(model + "--normalize", 2, {"--normalize", "says how images are normalized"});
  expect_refusal(model + "--weights x", 2, {"--weights", "weights of its own"});
  fs::remove(file("vit/preprocessor_config.json"));
  expect_refusal(model, 1, {"preprocessor_config.json", "no such file"});
  write_tiny_bert(file("bert"), 20, 3);
  expect_refusal("--model " + file("bert"), 1, {"'model_type' is \"bert\", which has no image classifier"});
}

/// The compressed files are beside the decompressed ones, as torchvision leaves them.
TEST_F(Mnist, HasItsOwnTestImages) {
  write_idx("train", 60, 10, 4);
  write_idx("t10k", 21, 10, 4);
  write("train-images-idx3-ubyte.gz", "");
  const Finished job = run_job(
      words("--epochs 2 --batch-size 4 --resize 8 --normalize") + Words{"--output-dir", file("out")}, 2);
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(count_lines_with(job.out, "training on 54 images, validating on 6, testing on 21"), 1) << job.out;
  EXPECT_EQ(count_lines_with(job.out, "normalized by mean / standard deviation: 0."), 1) << job.out;
  EXPECT_GT(number_after(job.out, "test accuracy "), 0.9) << job.out;
  // The last line names the launcher that started the ranks, which draws what they logged.
  ASSERT_EQ(lines_with(job.out, "report: ").size(), 1U) << job.out;
  const Words command = split(lines_of(job.out).back().substr(std::string("report: ").size()));
  ASSERT_EQ(Words(command.begin() + 1, command.end()), (Words{"report", file("out")})) << job.out;
  EXPECT_EQ(fs::path(command.front()).filename(), "lockstep");
  EXPECT_EQ(LauncherProcess({"report", file("out")}).wait().status, 0);
  EXPECT_TRUE(contains_all(read_file(file("out/report.html")), {"<svg", "loss", "accuracy"}));
}

/// This program supports the options of the library's Trainer.
TEST_F(Mnist, EndsEarlyAndReportsWhatItLogs) {
  write_idx("a", 40, 8, 4);
  // Nothing is learned, so the second evaluation is not better than the first.
  const Finished job =
      start_alone(words("--epochs 5 --learning-rate 1e-30 --early-stopping-patience 1 --report-to csv") +
                  Words{"--output-dir", file("out")})
          ->wait();
  ASSERT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(lines_with(job.out, "epoch ").size(), 2U) << job.out;
  EXPECT_TRUE(fs::exists(file("out/model.safetensors")));
  std::string reported;
  for (const auto& entry : fs::recursive_directory_iterator(file("out/runs")))
    if (entry.is_regular_file()) reported += read_file(entry.path());
  EXPECT_TRUE(contains_all(reported, {"train/loss", "eval/accuracy", "test/accuracy"}));
  const Finished silent =
      start_alone(words("--epochs 1 --report-to none") + Words{"--output-dir", file("silent")})->wait();
  EXPECT_EQ(silent.status, 0) << silent.err;
  EXPECT_EQ(lines_with(silent.out, "report: "), Words()) << silent.out;
}

TEST_F(Mnist, AccumulatesGradientsAndAveragesWeights) {
  write_idx("a", 40, 8, 4);
  const auto train = [&](const std::string& name, const std::string& flags) {
    const Finished job = start_alone(words("--epochs 1 --batch-size 4 " + flags) +
                                     Words{"--output-dir", file(name), "--checkpoint-dir", file(name)})
                             ->wait();
    EXPECT_EQ(job.status, 0) << job.err;
    return read_file(file(name + "/model.safetensors"));
  };
  const std::string last = train("last", "--gradient-accumulation-steps 2");
  // 28 images are 7 batches, and they are 4 steps.
  EXPECT_TRUE(fs::exists(file("last/checkpoint-4")));
  EXPECT_EQ(last == train("mean", "--gradient-accumulation-steps 2 --ema-decay 0.9"), false);
  EXPECT_EQ(last == train("global", "--global-batch-size 8"), true);
}

TEST_F(Mnist, RefusesFilesThatDoNotFit) {
  write("train-images-idx3-ubyte.gz", "");
  expect_refusal("", 2, {"expected one file *-labels-idx1-ubyte, but there are 0"});
  write_idx("train", 20, 8, 4);
  write_idx("t10k", 10, 8, 5);
  expect_refusal("", 1, {"t10k-labels", "the label 4 is not one of the 4 classes"});
  write_idx("t10k", 10, 9, 4);
  expect_refusal("", 1, {"t10k-images", "9 x 9 pixels", "8 x 8"});
  remove("t10k-labels-idx1-ubyte");
  expect_refusal("", 2, {"expected one file *-images-idx3-ubyte, but there are 2"});
  write_idx("more", 10, 8, 4);
  remove("t10k-images-idx3-ubyte");
  expect_refusal("", 2, {"one must be *train-... and one *t10k-..."});
}

TEST_F(Mnist, RefusesImagesThatGiveNothingToLearn) {
  write("a-images-idx3-ubyte", idx({20, 8, 8}, std::string(20 * 64, '\7')));
  write("a-labels-idx1-ubyte", idx({20}, std::string(20, '\0')));
  expect_refusal("", 1, {"one class only: expected two or more"});
  write("a-labels-idx1-ubyte", idx({20}, std::string(20, '\1')));
  expect_refusal("--normalize", 1, {"--normalize: channel 0", "same value everywhere"});
  expect_refusal("--model resnet18 --batch-size 13", 2, {"--batch-size 13 leaves a batch of one out of 14"});
}

TEST_F(Mnist, BeginsWithWeightsAndReplacesALastLayerOfOtherClasses) {
  write_idx("a", 40, 8, 4);
  const Finished first = start_alone(words("--epochs 1") + Words{"--output-dir", file("first")})->wait();
  ASSERT_EQ(first.status, 0) << first.err;
  const std::string weights = " --weights " + file("first/model.safetensors");
  const Finished again =
      start_alone(words("--epochs 1" + weights) + Words{"--output-dir", file("again")})->wait();
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_LT(number_after(again.out, "epoch 1: loss "), number_after(first.out, "epoch 1: loss "));
  EXPECT_EQ(count_lines_with(again.out, "new: "), 0) << again.out;

  expect_refusal("--model resnet18" + weights, 1,
                 {"model.safetensors does not fit", "'conv1.weight' is ", "is missing"});
  expect_refusal("--resize 12" + weights, 1, {"'hidden.weight' is ", "expected "});
  write_idx("a", 40, 8, 3);
  const Finished other =
      start_alone(words("--epochs 1" + weights) + Words{"--output-dir", file("other")})->wait();
  EXPECT_EQ(other.status, 0) << other.err;
  EXPECT_EQ(lines_with(other.out, "new: "), (Words{"new: output.weight", "new: output.bias"}));
}

}  // namespace
}  // namespace lockstep::testing
