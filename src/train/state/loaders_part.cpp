#include "train/state/loaders_part.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/json.hpp"
#include "data/same_order.hpp"
#include "lockstep/core/error.hpp"
#include "train/state/loader_position.hpp"

namespace lockstep::train {
namespace {

using nlohmann::json;

std::string loader_file(std::size_t index) { return numbered_file("sampler", index, ".json"); }

/// "reads another data set (9 samples; it was 8)": what makes an order another one.
std::vector<std::string> differences_of(const DataLoaderState& saved, const DataLoaderState& now) {
  std::vector<std::string> differences;
  const auto compare = [&](const char* what, const std::string& then, const std::string& here) {
    if (then != here) differences.push_back(fmt::format("{} ({}; it was {})", what, here, then));
  };
  compare("reads another data set", saved.dataset, now.dataset);
  compare("has another seed", std::to_string(saved.seed), std::to_string(now.seed));
  if (!data::is_same_order(saved.order, now.order)) compare("has another order", saved.order, now.order);
  return differences;
}

/// Between two epochs nothing of the next one has been read: its data may be other ones, as a validation set
/// that has grown, and so may its order. So may those of an epoch that is to begin anew.
void accept_another_order(std::size_t number, DataLoaderState& saved, const DataLoaderState& now,
                          bool begins_anew, const Accelerator& accelerator) {
  const auto differences = differences_of(saved, now);
  if (differences.empty() || (saved.samples > 0 && !begins_anew)) return;
  if (accelerator.is_main_process()) {
    std::cerr << fmt::format("lockstep: loader #{} {} than when the checkpoint was written: {}\n", number,
                             fmt::join(differences, ", "),
                             saved.samples > 0
                                 ? "its epoch begins anew (ignore_data_skip)"
                                 : "it was between two epochs, so it continues with the new one")
              << std::flush;
  }
  saved.dataset = now.dataset;
  saved.seed = now.seed;
  saved.order = now.order;
  saved.samples = 0;
  saved.parts.clear();
}

DataLoaderState read_position(const std::filesystem::path& path) {
  try {
    return loader_state_from(read_json_document(path));
  } catch (const json::exception& error) {
    throw DataError("'" + path.string() + "' is not the position of a loader: " + error.what());
  }
}

}  // namespace

void LoadersPart::gather(const GatherOptions& options) {
  for (const auto& loader : loaders_) {
    auto& parts = parts_.emplace_back();
    if (loader.is_stream()) parts = options.group.all_gather_object(loader.state().parts.front());
  }
}

std::string LoadersPart::why_not_given() const {
  const bool any = std::ranges::any_of(loaders_, [](const auto& loader) { return loader.is_stream(); });
  return any ? "each rank has a position of its own in a stream" : "";
}

void LoadersPart::take_local() {
  for (std::size_t i = 0; i < loaders_.size(); ++i) {
    states_.push_back(loaders_[i].state());
    states_.back().parts = parts_[i];
  }
}

void LoadersPart::write(CheckpointFiles& files) const {
  for (std::size_t i = 0; i < states_.size(); ++i) files.add_json(loader_file(i), to_json(states_[i]));
}

void LoadersPart::describe(CheckpointInfo& info) const {
  if (!loaders_.empty()) info.epoch = loaders_.front().state().epoch;
}

void LoadersPart::read(const Checkpoint& checkpoint) {
  check_file_count(checkpoint.path, "loaders", loaders_.size(), loader_file);
  for (std::size_t i = 0; i < loaders_.size(); ++i)
    states_.push_back(read_position(checkpoint.path / loader_file(i)));
}

void LoadersPart::apply(const Accelerator& accelerator, const CheckpointInfo&) {
  json positions = json::array();
  for (const auto& state : states_) positions.push_back(to_json(state));
  positions = accelerator.process_group().broadcast_object(positions, root());
  for (std::size_t i = 0; i < loaders_.size(); ++i) {
    auto saved = loader_state_from(positions[i]);
    if (begins_anew_ || !loaders_[i].is_stream())
      accept_another_order(i + 1, saved, loaders_[i].state(), begins_anew_, accelerator);
    loaders_[i].load_state(saved);
  }
}

}  // namespace lockstep::train
