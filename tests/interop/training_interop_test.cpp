// A whole training program of Lockstep under the real torchrun, a Python program under `lockstep run`, and
// trained models that go both ways.

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "interop/jobs.hpp"
#include "net/socket.hpp"

namespace lockstep {
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

std::string model_of(const ScratchFolder& folder) { return read_file(folder.file("model.safetensors")); }

Words training(const ScratchFolder& folder, const std::string& epochs = "3") {
  return {LOCKSTEP_IMAGE_CLASSIFICATION,
          "--epochs",
          epochs,
          "--device",
          "cpu",
          "--output-dir",
          folder.path(),
          "--no-progress"};
}

/// One training under `lockstep run`, for all tests to compare with.
class TrainingInterop : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    trained_.emplace();
    run_under_lockstep(2, training(*trained_));
  }
  static void TearDownTestSuite() { trained_.reset(); }

  static inline std::optional<ScratchFolder> trained_;
};

/// Trains under torchrun, and expects the same model, and only its log beside it.
void expect_same_training(const Words& flags, const ScratchFolder& expected) {
  const ScratchFolder folder, scratch;
  const Words no_python{"--no-python"};
  const auto result = run_under_torchrun(joined(flags, no_python), training(folder), scratch.path());
  EXPECT_NE(result.out.find("2 rank(s) on cpu"), std::string::npos) << result.out;
  ASSERT_GT(model_of(expected).size(), 100000U);
  EXPECT_TRUE(model_of(folder) == model_of(expected)) << "the bytes of the two models differ";
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(folder.path()))
    names.insert(file.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{"model.safetensors", "ranks", "runs"}));
}

TEST_F(TrainingInterop, TorchrunWithAStaticAddressTrainsTheSameModel) {
  const std::string port = std::to_string(net::free_port());
  expect_same_training({"--nproc-per-node=2", "--master-addr=127.0.0.1", "--master-port=" + port}, *trained_);
}

/// Here torchrun's agent hosts the store, and the ranks join it.
TEST_F(TrainingInterop, StandaloneTorchrunTrainsTheSameModel) {
  expect_same_training(standalone_flags(), *trained_);
}

TEST_F(TrainingInterop, AFailingRankFailsTorchrunWithItsMessage) {
  const ScratchFolder folder, scratch;
  const Words words = joined({"-B", "-m", "torch.distributed.run", "--no-python"},
                             joined(standalone_flags(), training(folder, "0")));
  const auto result = launch::LauncherProcess(words, {{"TMPDIR", scratch.path()}}, {}, LOCKSTEP_TEST_PYTHON)
                          .wait(launch::kPythonLimit);
  EXPECT_EQ(result.status, 1);
  // The kind of the error is in the file for torchrun only, not in what the rank itself prints.
  EXPECT_NE(result.err.find("UsageError: --epochs '0'"), std::string::npos) << result.err;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST_F(TrainingInterop, PythonRunsUnderLockstep) {
  const ScratchFolder folder;
  const std::string golden = LOCKSTEP_TESTS_DIR "/golden/";
  run_under_lockstep(2, {golden + "make_golden.py", folder.path(), "mlp"},
                     read_settings(golden + "portable.env"));
  const std::string expected = read_file(golden + "mlp.txt");
  ASSERT_FALSE(expected.empty());
  for (const char* name : {"mlp.0.txt", "mlp.1.txt"}) {
    EXPECT_TRUE(read_file(folder.file(name)) == expected) << name << " is not the golden text";
  }
}

/// Python has left a model, images and logits in the folder: expects that each rank of the C++ side gets the
/// same logits, bit for bit (where both multiply by MKL), and that it saves the bytes that it loaded.
void expect_same_logits(const ScratchFolder& folder) {
  run_under_lockstep(2, {LOCKSTEP_MODEL_PEER, folder.path()}, {{"LOCKSTEP_ONEDNN_MATMUL", "0"}});
  const std::string python = read_file(folder.file("logits.safetensors"));
  ASSERT_GT(python.size(), 70000U);  // 1797 digits, 10 floats each.
  for (const char* name : {"logits.0.safetensors", "logits.1.safetensors"}) {
    EXPECT_TRUE(read_file(folder.file(name)) == python) << name << " differs from Python's logits";
  }
  EXPECT_TRUE(read_file(folder.file("again/model.safetensors")) == model_of(folder));
}

TEST_F(TrainingInterop, PythonReadsTheTrainedModel) {
  const ScratchFolder folder;
  std::filesystem::copy_file(trained_->file("model.safetensors"), folder.file("model.safetensors"));
  run_program(LOCKSTEP_TEST_PYTHON,
              {"-B", LOCKSTEP_TESTS_DIR "/interop/model_peer.py", "read", folder.path()});
  expect_same_logits(folder);
}

TEST_F(TrainingInterop, AModelOfPythonIsRead) {
  const ScratchFolder folder;
  run_program(LOCKSTEP_TEST_PYTHON,
              {"-B", LOCKSTEP_TESTS_DIR "/interop/model_peer.py", "write", folder.path()});
  expect_same_logits(folder);
}

TEST_F(TrainingInterop, ATorchScriptFileOfPythonIsTrained) {
  const ScratchFolder folder;
  const std::string script = LOCKSTEP_TESTS_DIR "/interop/script_net.py";
  run_program(LOCKSTEP_TEST_PYTHON, {"-B", script, "write", folder.path()});
  run_under_lockstep(2, joined(training(folder), {"--model", folder.file("net.pt")}));
  run_program(LOCKSTEP_TEST_PYTHON, {"-B", script, "read", folder.path()});
}

}  // namespace
}  // namespace lockstep
