#include "text/adapter.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/models/lora.hpp"

namespace texts {

using lockstep::at_least;
using lockstep::one_of;

const lockstep::OptionTable<AdapterOptions>& adapter_option_table() {
  static const auto table =
      lockstep::OptionTable<AdapterOptions>("adapter", "What is trained of a language model.")
          .section("adapter")
          .add(
              "dtype", &AdapterOptions::dtype,
              "The dtype of the weights of --model; auto: as its config.json says, or its files. bfloat16 is "
              "for a model that adapters train (--lora-r).",
              one_of({"float32", "bfloat16", "float16", "auto"}))
          .add("quantization", &AdapterOptions::quantization,
               "nf4: the linear layers of --model get four bits a weight as they are loaded, of which an "
               "adapter "
               "is trained (QLoRA).",
               one_of({"none", "nf4"}))
          .add("lora-r", &AdapterOptions::lora_r,
               "Freeze the model and train a LoRA adapter of this rank; --output-dir gets it in PEFT's "
               "files. 0: train all weights.",
               at_least(0))
          .add("lora-alpha", &AdapterOptions::lora_alpha,
               "Scaling: the adapter's output is multiplied by lora_alpha / r.", at_least(0.0))
          .add("lora-dropout", &AdapterOptions::lora_dropout, "Dropout of the adapter's inputs.",
               lockstep::between(0.0, 1.0))
          .add("lora-target-modules", &AdapterOptions::lora_target_modules,
               "The layers that get an adapter, by name: q_proj,v_proj. all-linear: all but the head. "
               "Default: those that PEFT chooses for the family.")
          .add("adapter", &AdapterOptions::adapter,
               "Folder with an adapter of --model to train further: adapter_config.json and "
               "adapter_model.safetensors, as PEFT or this program writes them.");
  return table;
}

std::vector<program_options::DependentOption> dependent_adapter_options(const AdapterOptions& options) {
  const bool is_new = options.lora_r > 0;
  constexpr const char* kNewAdapter = "with --lora-r, for a new adapter";
  return {{"quantization", has_adapter(options),
           "with --lora-r or --adapter: it freezes layers, of which an adapter is trained"},
          {"lora-alpha", is_new, kNewAdapter},
          {"lora-dropout", is_new, kNewAdapter},
          {"lora-target-modules", is_new, kNewAdapter}};
}

lockstep::models::FromPretrainedOptions loading_of(const AdapterOptions& options) {
  lockstep::models::FromPretrainedOptions loading{.dtype = lockstep::models::dtype_of_name(options.dtype)};
  if (options.quantization == "nf4") loading.quantization = lockstep::models::Nf4Options{};
  return loading;
}

bool has_adapter(const AdapterOptions& options) { return options.lora_r > 0 || !options.adapter.empty(); }

void check_adapter(const AdapterOptions& options) {
  if (options.lora_r > 0 && !options.adapter.empty())
    throw lockstep::UsageError(
        "--lora-r creates a new adapter and --adapter loads one: give only one of them.");
}

void add_adapter(const lockstep::models::CausalLM& model, const std::string& folder,
                 const AdapterOptions& options) {
  if (!options.adapter.empty()) {
    lockstep::models::load_adapter(model, options.adapter);
  } else if (options.lora_r > 0) {
    lockstep::models::add_lora(model, {.r = options.lora_r,
                                       .lora_alpha = options.lora_alpha,
                                       .lora_dropout = options.lora_dropout,
                                       .target_modules = options.lora_target_modules,
                                       .base_model_name_or_path = folder});
  }
}

}  // namespace texts
