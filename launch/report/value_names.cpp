#include "report/value_names.hpp"

#include <algorithm>
#include <map>

namespace lockstep::launch {
namespace {

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::ranges::any_of(endings, [name](std::string_view ending) { return name.ends_with(ending); });
}

std::string spaced(std::string text) {
  std::ranges::replace(text, '_', ' ');
  return text;
}

}  // namespace

ValueKind kind_of_value(std::string_view name) {
  if (name == "loss") return ValueKind::loss;
  if (name == "eval_loss") return ValueKind::evaluation_loss;
  if (name == "learning_rate") return ValueKind::learning_rate;
  if (name == "grad_norm") return ValueKind::gradient_norm;
  if (name.starts_with("memory/")) return ValueKind::memory;
  if (name.starts_with("throughput/")) return ValueKind::speed;
  const bool is_of_a_whole =
      name.starts_with("train_") || name.starts_with("test_") || name == "total_flos" || name == "epoch";
  const bool is_of_evaluation = name.starts_with("eval_");
  if (is_of_a_whole ||
      (is_of_evaluation && ends_with_any(name, {"_runtime", "_samples_per_second", "_steps_per_second",
                                                "_jit_compilation_time", "_model_preparation_time"})))
    return ValueKind::summary;
  return is_of_evaluation ? ValueKind::evaluation : ValueKind::other;
}

std::string title_of_value(const std::string& name) {
  static const std::map<std::string, std::string> known{
      {"loss", "Training loss"},
      {"eval_loss", "Evaluation loss"},
      {"learning_rate", "Learning rate"},
      {"grad_norm", "Gradient norm"},
      {"total_flos", "Floating-point operations"},
      {"memory/peak_rss_mib", "Peak memory of rank 0's process"},
      {"memory/peak_allocated_mib", "Peak memory of rank 0 on its GPU"},
      {"throughput/tokens_per_second", "Tokens per second"},
      {"throughput/steps_per_second", "Steps per second"},
      {"throughput/mfu", "Share of the device's peak (MFU)"},
      {"train_runtime", "Training time"},
      {"train_loss", "Mean training loss"},
      {"train_samples_per_second", "Samples per second in training"},
      {"train_steps_per_second", "Steps per second in training"}};
  if (const auto found = known.find(name); found != known.end()) return found->second;
  if (name.starts_with("eval_")) return "Evaluation " + spaced(name.substr(5));
  if (name.starts_with("test_")) return "Test " + spaced(name.substr(5));
  return name;
}

std::string unit_of_value(std::string_view name) {
  if (name.ends_with("_mib")) return "MiB";
  if (name.ends_with("_runtime") || name == "runtime") return "s";
  if (name.ends_with("tokens_per_second")) return "tokens/s";
  if (name.ends_with("samples_per_second")) return "samples/s";
  if (name.ends_with("steps_per_second")) return "steps/s";
  return "";
}

}  // namespace lockstep::launch
