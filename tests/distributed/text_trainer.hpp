#pragma once

#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "job.hpp"

namespace lockstep::testing {

/// Runs a program without the launcher, for the error of one that refuses.
Finished run_alone(const Words& words);

/// The numbers of that name in the log of a checkpoint, in order.
std::vector<double> logged(const std::string& checkpoint, const std::string& name);

/// "STEP LOSS" of make_causal_lm.py and make_translation.py.
std::vector<double> golden_losses(const std::string& path);

/// A folder for one program: the model, its data and its output.
class TextTrainer : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.file(name); }
  std::string write(const std::string& name, const std::string& text) const {
    return folder_.write(name, text);
  }

  /// Arguments that all runs share.
  Words common() const {
    return {"--device", "cpu", "--disable-tqdm", "--cache-dir", file("cache"), "--model", file("model")};
  }

  /// Expects exit code `status` and one line of error with these parts, before any training.
  void expect_refusal(const Words& words, int status, std::initializer_list<std::string_view> parts) const;

  /// The arguments that every program must reject.
  void expect_refusals_of_arguments(const Words& words) const;

  /// Changes one value of the model's config.json.
  void set_in_config(const std::string& name, const nlohmann::json& value) const;

 private:
  ScratchFolder folder_;
};

}  // namespace lockstep::testing
