#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parallel/adapter_layer.hpp"

namespace lockstep::models {

/// The files of an adapter: PEFT's.
constexpr const char* kAdapterConfigFileName = parallel::kAdapterConfigFile;
constexpr const char* kAdapterFileName = parallel::kAdapterFile;
/// What names of tensors in that file begin with.
constexpr const char* kAdapterPrefix = "base_model.model.";

/// Modules of a model by their names: a list, or a regular expression.
class ModuleNames {
 public:
  ModuleNames() = default;
  /// A regular expression (ECMAScript) that a module's whole name matches; as target_modules, "all-linear"
  /// means all linear layers but the head.
  ModuleNames(std::string pattern) : pattern_(std::move(pattern)) {}
  ModuleNames(const char* pattern) : pattern_(pattern) {}
  /// Each is a module's name or the end of it: "q_proj" is "model.layers.0.self_attn.q_proj" and so on.
  ModuleNames(std::initializer_list<std::string> names) : names_(names) {}
  ModuleNames(std::vector<std::string> names) : names_(std::move(names)) {}

  bool empty() const noexcept { return names_.empty() && pattern_.empty(); }
  const std::vector<std::string>& names() const noexcept { return names_; }
  /// Empty: a list.
  const std::string& pattern() const noexcept { return pattern_; }
  bool is_all_linear() const;
  bool operator==(const ModuleNames&) const = default;

 private:
  std::vector<std::string> names_;
  std::string pattern_;
};

/// How the matrices of a new adapter begin: A as a new linear layer and B zero; A normal with deviation 1/r
/// and B zero; both as new linear layers, so that the model is another one at once.
enum class LoraInit { kaiming, gaussian, both_random };

/// The configuration of an adapter, with the names, defaults and meaning of PEFT's LoraConfig and of its file
/// adapter_config.json.
struct LoraConfig {
  /// The rank: the width of the thin matrices A [r, inputs] and B [outputs, r].
  std::int64_t r = 8;
  /// The product of A and B counts lora_alpha / r times.
  double lora_alpha = 8;
  /// Dropout of A's input in training.
  double lora_dropout = 0;
  /// The layers that get an adapter: linear layers of lockstep::models (see linear.hpp), and embeddings
  /// (embedding.hpp). None: those that PEFT chooses for the model's family, queries and values.
  ModuleNames target_modules = {};
  /// Layers that get none, although target_modules names them.
  ModuleNames exclude_modules = {};
  /// Only these numbers of the model's blocks; none: all. Not with a regular expression.
  std::optional<std::vector<std::int64_t>> layers_to_transform = {};
  /// The names of the lists of blocks that layers_to_transform counts ("layers", "h"); none: any.
  std::vector<std::string> layers_pattern = {};
  /// r and lora_alpha of layers whose name, or the end of it, matches a regular expression: the first that
  /// does.
  std::vector<std::pair<std::string, std::int64_t>> rank_pattern = {};
  std::vector<std::pair<std::string, double>> alpha_pattern = {};
  /// The product counts lora_alpha / sqrt(r) times (Kalajdzievski, 2023).
  bool use_rslora = false;
  /// Biases that are trained as well: "none", "all" of the model, or "lora_only", those of layers with an
  /// adapter.
  std::string bias = "none";
  /// Modules that are trained and saved whole, such as a new head.
  std::vector<std::string> modules_to_save = {};
  LoraInit init_lora_weights = LoraInit::kaiming;
  /// Set by add_lora(): whether the layers' weights are [inputs, outputs], as GPT-2's.
  bool fan_in_fan_out = false;
  /// "CAUSAL_LM", "SEQ_CLS" and so on; empty: what the model is for.
  std::string task_type = {};
  /// The folder of the model without the adapter; empty: the folder that the model came from.
  std::string base_model_name_or_path = {};
  /// The file that the configuration came from: fields that Lockstep does not know are written back.
  std::string file = {};

  /// Reads adapter_config.json, or the one in a folder. Throws DataError, which names file and field: for
  /// another kind of adapter, for values of the wrong type or out of range, and for each setting of PEFT that
  /// is not implemented (use_dora, trainable_token_indices, ...) unless it is neutral.
  static LoraConfig from_file(const std::filesystem::path& path);
  /// The text of adapter_config.json.
  std::string to_json() const;
};

}  // namespace lockstep::models
