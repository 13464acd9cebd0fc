#include "models/load_weights.hpp"

#include <algorithm>
#include <utility>

#include "models/nf4_load.hpp"
#include "models/weights_dtype.hpp"

namespace lockstep::models {

void load_weights(PreTrainedModelImpl& model, const std::filesystem::path& folder,
                  const PretrainedNames& names, PretrainedReport* report) {
  load_weights_with_head(model, folder, names, {}, /*is_new=*/false, report);
}

void load_weights_with_head(PreTrainedModelImpl& model, const std::filesystem::path& folder,
                            PretrainedNames names, const std::vector<std::string>& head, bool is_new,
                            PretrainedReport* report) {
  WeightsDtype::apply(model);
  names.new_heads.insert(names.new_heads.end(), head.begin(), head.end());
  auto tensors = parallel::named_state_of(model);
  std::vector<std::string> new_names;
  std::erase_if(tensors, [&](const NamedTensor& entry) {
    const bool is_left_out =
        is_new && std::any_of(head.begin(), head.end(), [&](const std::string& beginning) {
          return entry.name.starts_with(beginning);
        });
    if (is_left_out) new_names.push_back(entry.name);
    return is_left_out;
  });
  const Nf4Loading quantized(model, folder);
  quantized.expect(tensors, names);
  auto found = load_pretrained(folder, tensors, names);
  quantized.finish(names);
  found.initialized.insert(found.initialized.end(), new_names.begin(), new_names.end());
  model.set_renames(found.renames);
  if (report) *report = std::move(found);
}

}  // namespace lockstep::models
