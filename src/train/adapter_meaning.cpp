#include "train/adapter_meaning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/parallel/adapter_layer.hpp"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
// Of the patterns, the first that matches counts.
using OrderedJson = nlohmann::ordered_json;

/// Fields without which the matrices mean something else, and PEFT's defaults.
constexpr std::array<std::pair<const char*, const char*>, 6> kMeaningOfMatrices = {
    {{"r", "8"},
     {"lora_alpha", "8"},
     {"use_rslora", "false"},
     {"rank_pattern", "{}"},
     {"alpha_pattern", "{}"},
     {"fan_in_fan_out", "false"}}};

OrderedJson field_of(const OrderedJson& config, const char* field, const char* otherwise) {
  const auto found = config.find(field);
  return found == config.end() || found->is_null() ? OrderedJson::parse(otherwise) : *found;
}

}  // namespace

void check_same_adapter(const fs::path& file, const std::string& own) {
  std::ifstream stream(file, std::ios::binary);
  const auto saved = OrderedJson::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!saved.is_object()) {
    throw DataError(fmt::format(
        "'{}' cannot be read as a JSON object: it says what the matrices of the adapter beside it mean. "
        "Restore it, or load another checkpoint",
        file.string()));
  }
  const auto ours = OrderedJson::parse(own);
  for (const auto& [field, otherwise] : kMeaningOfMatrices) {
    const auto before = field_of(saved, field, otherwise), now = field_of(ours, field, otherwise);
    if (before == now) continue;
    throw DataError(fmt::format(
        "'{}' has '{}': {}, and the program's adapter {}, with which the saved matrices mean something else. "
        "Give the training the same, or a folder of its own",
        file.string(), field, json_text(before), json_text(now)));
  }
}

fs::path adapter_config_beside(const fs::path& weights) {
  std::error_code failure;
  fs::path config = weights / parallel::kAdapterConfigFile;
  if (!fs::is_directory(weights, failure)) {
    std::string number = weights.filename().string();
    for (const std::string beginning : {"adapter_model", "model"})
      if (number.starts_with(beginning)) number.erase(0, beginning.size());
    number.erase(std::min(number.find('.'), number.size()));
    config = weights.parent_path() / ("adapter_config" + number + ".json");
  }
  return fs::exists(config, failure) ? config : fs::path();
}

}  // namespace lockstep::train
