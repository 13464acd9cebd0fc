#include "models/load_weights.hpp"

#include <utility>

#include "models/weights_dtype.hpp"

namespace lockstep::models {
void load_weights(PreTrainedModelImpl& model, const std::filesystem::path& folder,
                  const PretrainedNames& names, PretrainedReport* report) {
  WeightsDtype::apply(model);
  auto found = load_pretrained(folder, parallel::named_state_of(model), names);
  model.set_renames(found.renames);
  if (report) *report = std::move(found);
}

}  // namespace lockstep::models
