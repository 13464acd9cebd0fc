#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "../rules/python_json.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "training_run.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw DataError("'" + path.string() + "' cannot be read: is the checkpoint one of a Trainer?");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

nlohmann::ordered_json read_results(const fs::path& path) {
  if (!fs::exists(path)) return nlohmann::ordered_json::object();
  try {
    return parse_python_json(read_text(path));
  } catch (const nlohmann::json::exception& error) {
    throw DataError("'" + path.string() + "' is not JSON: " + error.what());
  }
}

}  // namespace

void Trainer::save_state() {
  const fs::path folder = impl_->args.output_dir;
  impl_->accelerator.on_main_process([&] {
    fs::create_directories(folder);
    write_atomically(folder / kTrainerStateFileName, trainer_state_text(impl_->state));
  });
}

void Trainer::save_metrics(const std::string& split, const LogValues& metrics) {
  const fs::path folder = impl_->args.output_dir;
  impl_->accelerator.on_main_process([&] {
    fs::create_directories(folder);
    auto own = nlohmann::ordered_json::object();
    for (const auto& [name, value] : metrics) own[name] = value;
    write_atomically(folder / (split + "_results.json"), python_json_text(own));
    auto all = read_results(folder / "all_results.json");
    all.update(own);
    write_atomically(folder / "all_results.json", python_json_text(all));
  });
}

std::function<void(const fs::path&)> TrainingRun::files_to_add() {
  const std::string state = trainer_state_text(impl_.state);
  const std::string args = training_argument_table().to_json_text(impl_.args);
  return [state, args](const fs::path& folder) {
    write_atomically(folder / kTrainerStateFileName, state);
    write_atomically(folder / "training_args.json", args);
  };
}

void TrainingRun::resume() {
  checkpoints_->resume();
  const fs::path& from = checkpoints_->resumed_from();
  if (from.empty()) return;
  std::string text;
  impl_.accelerator.on_main_process([&] { text = read_text(from / kTrainerStateFileName); });
  text = impl_.accelerator.process_group().broadcast_object(text);
  take_state(trainer_state_from(text, (from / kTrainerStateFileName).string()));
  if (impl_.args.ignore_data_skip) batches_->rewind();
}

void TrainingRun::take_state(const TrainerState& saved) {
  const TrainerState& state = impl_.state;
  if (saved.total_batch_size != 0 && saved.total_batch_size != state.total_batch_size) {
    impl_.warn("a step has ", state.total_batch_size, " samples now, and had ", saved.total_batch_size,
               " when the checkpoint was written: the training is another one from here on. Set "
               "global_batch_size to keep it on any number of ranks");
  }
  begin_state(saved);
  first_step_ = saved.global_step;
  seconds_before_ = saved.train_seconds;
  last_logged_step_ = saved.global_step - saved.unlogged_steps;
  if (state.best_global_step) checkpoints_->protect(checkpoint_name(*state.best_global_step));
  for (const auto& callback : impl_.callbacks) {
    const auto found = state.stateful_callbacks.find(callback->name());
    if (found != state.stateful_callbacks.end()) callback->load_state(found->second);
  }
}

}  // namespace lockstep
