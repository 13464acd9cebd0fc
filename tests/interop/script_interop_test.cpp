// TorchScript files that Python wrote, as models of the trainers on texts.

#include <filesystem>

#include "interop/jobs.hpp"

namespace lockstep {
namespace {

using launch::ScratchFolder;
using testing::joined;
using testing::run_program;
using testing::run_under_lockstep;
using testing::Words;

const std::string kScript = LOCKSTEP_TESTS_DIR "/interop/script_texts.py";
const std::string kTokenizers = LOCKSTEP_TOKENIZER_DIR;

class ScriptInterop : public ::testing::Test {
 protected:
  ScriptInterop() { run_program(LOCKSTEP_TEST_PYTHON, {"-B", kScript, "write", file("")}); }

  std::string file(const std::string& name) const { return folder_.file(name); }

  Words training(const std::string& program, const std::string& net, const std::string& data) const {
    return {program,
            "--device",
            "cpu",
            "--disable-tqdm",
            "--cache-dir",
            file("cache"),
            "--model",
            file(net + ".pt"),
            "--train-file",
            file(data),
            "--output-dir",
            file(net),
            "--max-steps",
            "30",
            "--save-steps",
            "30",
            "--logging-steps",
            "5",
            "--learning-rate",
            "0.05",
            "--per-device-train-batch-size",
            "4"};
  }
  Words classification() const {
    return joined(training(LOCKSTEP_SEQUENCE_CLASSIFICATION, "classifier", "texts.jsonl"),
                  {"--tokenizer", kTokenizers + "/bert.json", "--max-length", "16"});
  }

  /// One line with these parts, and nothing trained.
  void expect_refusal(const Words& command, std::initializer_list<const char*> parts) const {
    const auto result = launch::LauncherProcess(Words(command.begin() + 1, command.end()), {}, {}, command[0])
                            .wait(launch::kPythonLimit);
    EXPECT_NE(result.status, 0);
    for (const char* part : parts) EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
    EXPECT_EQ(result.out.find("loss"), std::string::npos) << result.out;
  }

 private:
  ScratchFolder folder_;
};

TEST_F(ScriptInterop, EachTrainerOfTextsTrainsOne) {
  const Words words{"--tokenizer", kTokenizers + "/roberta.json"};
  run_under_lockstep(2, classification());
  run_under_lockstep(
      2, joined(training(LOCKSTEP_CAUSAL_LM, "language", "lines.txt"), joined(words, {"--block-size", "8"})));
  const auto translation = run_under_lockstep(
      2, joined(training(LOCKSTEP_TRANSLATION, "translator", "pairs.jsonl"),
                joined(words, {"--max-target-length", "16", "--validation-file", file("pairs.jsonl")})));
  EXPECT_NE(translation.out.find("eval_token_accuracy"), std::string::npos) << translation.out;
  EXPECT_EQ(translation.out.find("bleu"), std::string::npos) << "a program writes no texts";
  run_program(LOCKSTEP_TEST_PYTHON, {"-B", kScript, "read", file("")});
}

TEST_F(ScriptInterop, WhatDoesNotFitIsFoundBeforeTheTraining) {
  expect_refusal(joined(classification(), {"--tokenizer", ""}), {"--tokenizer is missing", "classifier.pt"});
  expect_refusal(joined(classification(), {"--model", file("translator.pt")}),
                 {"translator.pt does not fit", "[2, 2]"});
  expect_refusal(joined(classification(), {"--model", file("texts.jsonl")}),
                 {"texts.jsonl", "torch.jit.script"});
  expect_refusal(joined(classification(), {"--tokenizer", "", "--model", LOCKSTEP_CAUSAL_LM}),
                 {"causal_lm is neither a TorchScript file", "torch.jit.script"});
  const Words language = joined(training(LOCKSTEP_CAUSAL_LM, "language", "lines.txt"),
                                {"--tokenizer", kTokenizers + "/roberta.json"});
  expect_refusal(language, {"--block-size is missing"});
  expect_refusal(joined(language, {"--block-size", "8", "--prompt", "speak"}),
                 {"--prompt", "TorchScript file"});
}

/// TorchScript and a package of AOTInductor, on texts of several lengths.
TEST(InferenceInterop, ProgramsFromPythonInferWhatTheyInferThere) {
  const ScratchFolder folder;
  const std::string script = LOCKSTEP_TESTS_DIR "/interop/inference_peer.py";
  const std::string tokenizer = kTokenizers + "/bert.json";
  run_program(LOCKSTEP_TEST_PYTHON, {"-B", script, "write", folder.path(), tokenizer});
  const auto infer = [&](const std::string& task, const std::string& model, const std::string& output) {
    const Words words{LOCKSTEP_INFERENCE, "--device", "cpu", "--no-progress", "--batch-size", "4"};
    const Words files{"--task",      task,
                      "--model",     folder.file(model),
                      "--data",      folder.file("texts.jsonl"),
                      "--output",    folder.file(output),
                      "--tokenizer", tokenizer,
                      "--cache-dir", folder.file("cache")};
    run_under_lockstep(2, joined(words, files));
  };
  infer("text-classification", "classifier.pt", "labels.jsonl");
  infer("feature-extraction", "encoder.pt2", "vectors.jsonl");
  run_program(LOCKSTEP_TEST_PYTHON, {"-B", script, "read", folder.path(), tokenizer});
}

}  // namespace
}  // namespace lockstep
