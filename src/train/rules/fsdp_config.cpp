#include "train/rules/fsdp_config.hpp"

#include <fmt/core.h>

#include <sstream>

#include "core/input_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/options.hpp"

namespace lockstep {
namespace {

struct FsdpConfig {
  std::optional<bool> reshard_after_forward = {};
  std::string backward_prefetch = "backward_pre";
  bool activation_checkpointing = false;
  std::vector<std::string> transformer_layer_cls_to_wrap = {};
  std::int64_t fsdp_version = 2;
};

const OptionTable<FsdpConfig>& config_table() {
  static const auto table =
      OptionTable<FsdpConfig>("fsdp_config", "How models are sharded.")
          .add("reshard-after-forward", &FsdpConfig::reshard_after_forward, "Free weights after forward.")
          .add("backward-prefetch", &FsdpConfig::backward_prefetch, "When backward gathers.",
               one_of({"backward_pre", "no_prefetch"}))
          .add("activation-checkpointing", &FsdpConfig::activation_checkpointing, "Recompute activations.")
          .add("transformer-layer-cls-to-wrap", &FsdpConfig::transformer_layer_cls_to_wrap,
               "Classes of the units that are gathered.")
          .add("fsdp-version", &FsdpConfig::fsdp_version, "PyTorch's version of FSDP.");
  return table;
}

/// The JSON text itself, or the content of the file that `config` names.
std::string config_text(const std::string& config) {
  if (config.find('{') != std::string::npos) return config;
  InputFile file(config);
  std::string text(file.size(), '\0');
  file.read(text.data(), text.size());
  return text;
}

}  // namespace

std::optional<FullyShardedDataParallelPlugin> fsdp_plugin(const TrainingArguments& args) {
  std::optional<bool> reshards;
  bool hybrid = false;
  std::istringstream words(args.fsdp);
  for (std::string word; words >> word;) {
    if (word == "auto_wrap") continue;  // The model always defines the units.
    hybrid = word.starts_with("hybrid_shard");
    const bool frees = word == "full_shard" || word == "hybrid_shard";
    if (!frees && word != "shard_grad_op" && word != "hybrid_shard_zero2") {
      throw UsageError(fmt::format(
          "training arguments: fsdp has '{}': expected full_shard, shard_grad_op, hybrid_shard or "
          "hybrid_shard_zero2, and auto_wrap beside it",
          word));
    }
    reshards = frees;
  }
  const FsdpConfig config = config_table().from_json_text(config_text(args.fsdp_config));
  if (config.fsdp_version != 2) {
    throw UsageError(
        fmt::format("training arguments: fsdp_config has fsdp_version {}: expected 2", config.fsdp_version));
  }
  if (!reshards) {
    if (args.fsdp.empty()) return std::nullopt;
    throw UsageError("training arguments: fsdp is 'auto_wrap' alone: add full_shard or shard_grad_op");
  }
  return FullyShardedDataParallelPlugin{
      .reshard_after_forward = config.reshard_after_forward.value_or(*reshards),
      .backward_prefetch = config.backward_prefetch == "backward_pre",
      .transformer_cls_names_to_wrap = config.transformer_layer_cls_to_wrap,
      .activation_checkpointing = config.activation_checkpointing,
      .hybrid_shard = hybrid};
}

}  // namespace lockstep
