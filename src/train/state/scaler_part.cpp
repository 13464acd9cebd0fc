#include "train/state/scaler_part.hpp"

#include <nlohmann/json.hpp>

namespace lockstep::train {
namespace {

constexpr const char* kScalerFile = "scaler.json";

}  // namespace

void ScalerPart::take_local() {
  if (scaling_ != nullptr) state_ = scaling_->state_dict();
}

void ScalerPart::write(CheckpointFiles& files) const {
  if (!state_.empty()) files.add_json(kScalerFile, nlohmann::json::parse(state_));
}

void ScalerPart::read(const Checkpoint& checkpoint) {
  const auto file = checkpoint.path / kScalerFile;
  if (scaling_ != nullptr && std::filesystem::exists(file)) state_ = read_json_text(file);
}

void ScalerPart::apply(const Accelerator& accelerator, const CheckpointInfo&) {
  if (scaling_ == nullptr) return;
  state_ = accelerator.process_group().broadcast_object(state_, root());
  if (!state_.empty()) scaling_->load_state_dict(state_);
}

}  // namespace lockstep::train
