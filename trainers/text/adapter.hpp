#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/core/options.hpp"
#include "lockstep/models/auto_model.hpp"
#include "options/dependent_options.hpp"

namespace texts {

/// In which dtype the weights of --model are loaded, and the adapter that is trained instead of them.
struct AdapterOptions {
  std::string dtype = "float32";
  std::string quantization = "none";
  std::string adapter;
  std::int64_t lora_r = 0;
  double lora_alpha = 16;
  double lora_dropout = 0;
  std::vector<std::string> lora_target_modules;
};

const lockstep::OptionTable<AdapterOptions>& adapter_option_table();

/// Those that have an effect only together with others.
std::vector<program_options::DependentOption> dependent_adapter_options(const AdapterOptions& options);

/// How --model is loaded.
lockstep::models::FromPretrainedOptions loading_of(const AdapterOptions& options);

/// Whether the options ask for an adapter.
bool has_adapter(const AdapterOptions& options);

/// Throws UsageError for options that contradict each other. For programs to call before they read data.
void check_adapter(const AdapterOptions& options);

/// Adds the adapter that checked options ask for, if any. `folder`: the model's, for the adapter's files.
void add_adapter(const lockstep::models::CausalLM& model, const std::string& folder,
                 const AdapterOptions& options);

}  // namespace texts
