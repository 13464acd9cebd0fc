#pragma once

#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "job.hpp"

namespace lockstep::testing {

/// Runs a program alone, without the launcher; the error of one that refuses.
Finished run_alone(const Words& words);

/// The numbers of that name in the log of a checkpoint, in order.
std::vector<double> logged(const std::string& checkpoint, const std::string& name);

/// "STEP LOSS" of make_causal_lm.py and make_translation.py.
std::vector<double> golden_losses(const std::string& path);

/// A folder for one program: the model, its data and what it leaves.
class TextTrainer : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.file(name); }
  std::string write(const std::string& name, const std::string& text) const {
    return folder_.write(name, text);
  }

  /// What all runs have in common.
  Words common() const {
    return {"--device", "cpu", "--disable-tqdm", "--cache-dir", file("cache"), "--model", file("model")};
  }

  /// Expects exit code `status` and one line of error with these parts; nothing may have been trained.
  void expect_refusal(const Words& words, int status, std::initializer_list<std::string_view> parts) const;

  /// What every program refuses of the arguments that all have.
  void expect_refusals_of_arguments(const Words& words) const;

  /// Changes one value of the model's config.json.
  void set_in_config(const std::string& name, const nlohmann::json& value) const;

 private:
  ScratchFolder folder_;
};

}  // namespace lockstep::testing
