#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "lockstep/models/pretrained.hpp"
#include "models/config_file.hpp"
#include "models/nf4_layers.hpp"

namespace lockstep::models {

/// How the weights of a folder are quantized, by its config.json; none if they are not. Throws DataError for
/// anything else than nf4 of bitsandbytes.
std::optional<Nf4Options> nf4_of_config(const ConfigFile& config);

/// The field "quantization_config" of a model with these options.
nlohmann::ordered_json nf4_config_fields(const Nf4Options& options);

/// The loading of quantized layers, around that of the other tensors: from files that have them, or by
/// quantizing what files have in their place, one layer at a time.
class Nf4Loading {
 public:
  Nf4Loading(torch::nn::Module& model, const std::filesystem::path& folder);

  /// Replaces what the files will not have among the model's `tensors`, and adds to `names` what they have
  /// besides.
  void expect(std::vector<NamedTensor>& tensors, PretrainedNames& names) const;
  /// After the loading of these tensors. *Collective* under a ShardedInit.
  void finish(const PretrainedNames& names) const;

 private:
  std::filesystem::path folder_;
  std::vector<NamedNf4Layer> layers_;
  bool is_in_files_ = false;
};

}  // namespace lockstep::models
