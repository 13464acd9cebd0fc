#include <fmt/core.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "checkpoint/manifest.hpp"
#include "comm/group_observer.hpp"
#include "comm/set_up_record.hpp"
#include "lockstep/comm/trace.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "lockstep/train/accelerator.hpp"
#include "train/accelerator_state.hpp"
#include "train/accumulation_window.hpp"
#include "train/adapter_meaning.hpp"
#include "train/elastic/step_seed.hpp"
#include "train/model_content.hpp"
#include "train/training_scope.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json to_json(const LatestCheckpoint& latest) {
  json document{{"passed_over", json::array()}, {"weights_only", json::array()}};
  for (const auto& path : latest.weights_only) document["weights_only"].push_back(path.string());
  for (const auto& bad : latest.passed_over) {
    document["passed_over"].push_back({{"path", bad.path.string()}, {"reason", bad.reason}});
  }
  if (!latest.checkpoint) return document;
  document["path"] = latest.checkpoint->path.string();
  document["info"] = manifest::info_to_json(latest.checkpoint->info);
  return document;
}

LatestCheckpoint latest_from(const json& document) {
  LatestCheckpoint latest;
  for (const auto& bad : document.at("passed_over"))
    latest.passed_over.push_back({bad["path"], bad["reason"]});
  for (const auto& path : document.at("weights_only"))
    latest.weights_only.emplace_back(path.get<std::string>());
  if (!document.contains("path")) return latest;
  latest.checkpoint = Checkpoint{.path = document["path"].get<std::string>(),
                                 .info = manifest::info_from_json(document["info"])};
  return latest;
}

[[noreturn]] void refuse_to_begin_anew(const fs::path& folder, const std::vector<BadCheckpoint>& damaged) {
  std::string list;
  for (const auto& one : damaged)
    list += fmt::format("{}'{}' ({})", list.empty() ? "" : ", ", one.path.string(), one.reason);
  throw DataError(
      fmt::format("no checkpoint in '{}' can be resumed from: {}. Restore one of them, or move them away to "
                  "start over. A "
                  "Trainer resumes from another one by its path, and starts over with 'never' (--resume or "
                  "--resume-from-checkpoint; CheckpointOptions::resume)",
                  folder.string(), list));
}

void report_skipped(const LatestCheckpoint& latest) {
  const auto say = [](const std::string& text) { std::cerr << "lockstep: " + text + "\n" << std::flush; };
  for (const auto& entry : latest.passed_over)
    say("'" + entry.path.string() + "' is skipped: " + entry.reason);
  if (latest.weights_only.empty()) return;
  say("the training starts over: '" + latest.weights_only.front().string() +
      "' has only weights (save_only_model)");
}

}  // namespace

void Accelerator::save(const TensorMap& tensors, const std::filesystem::path& path) const {
  on_main_process([&] { save_file(tensors, path); });
}

std::vector<NamedTensor> Accelerator::whole_state(const std::vector<NamedTensor>& state) const {
  return train::gather_whole(state_->prepared.sharded_models(), state, is_main_process());
}

void Accelerator::save_file_of_model(const SavedForm& model, const std::filesystem::path& folder,
                                     std::uint64_t max_shard_bytes) const {
  const auto& [state, adapter] = model;
  const auto models = state_->prepared.sharded_models();
  const auto& saved = adapter ? adapter->tensors : state;
  train::GatheredTensors gathered;
  train::queue_model(gathered, models, saved, adapter ? train::kOneFile : max_shard_bytes);
  if (!is_main_process()) gathered.drop_rest();
  on_main_process([&] {
    const auto get = [&](const std::string& name) { return gathered.get(name); };
    const auto forms = train::whole_forms(models, saved);
    gathered.during([&] {
      if (adapter) return write_adapter(folder, *adapter, forms, get);
      write_model(folder, forms, get, max_shard_bytes);
    });
  });
}

void Accelerator::load_file_of_model(const SavedForm& model, const std::filesystem::path& path) const {
  const auto& [state, adapter] = model;
  const auto models = state_->prepared.sharded_models();
  // Only rank 0 sees the files.
  const bool is_adapter =
      adapter &&
      process_group().broadcast_object(json(is_main_process() && is_adapter_file(path))).get<bool>();
  const auto& loaded = is_adapter ? adapter->tensors : state;
  TensorSource content;
  on_main_process([&] {
    if (const auto config = train::adapter_config_beside(path); adapter && !config.empty())
      train::check_same_adapter(config, adapter->config);
    const bool is_folder = is_adapter && fs::is_directory(path);
    content = train::open_state(models, is_folder ? path / parallel::kAdapterFile : path, loaded);
  });
  train::scatter_whole(models, process_group(), content, loaded);
}

void Accelerator::register_for_checkpointing(const std::string& name, Checkpointable& object) {
  state_->prepared.add_object(name, object);
}

StateHookHandle Accelerator::register_save_state_pre_hook(StateHook hook) {
  return {state_->save_hooks, std::move(hook)};
}

StateHookHandle Accelerator::register_load_state_pre_hook(StateHook hook) {
  return {state_->load_hooks, std::move(hook)};
}

void Accelerator::save_state(const fs::path& path, const CheckpointInfo& info,
                             const SaveStateOptions& options) const {
  process_heartbeat().working("saving a checkpoint");
  const trace::Range range("checkpoint");
  for (const auto& hook : *state_->save_hooks) hook(path);
  state_->prepared.state(gradients()->scaling()).save(*this, path, info, options, state_->writer);
}

void Accelerator::wait_for_save() const {
  const trace::Range range("checkpoint");
  on_main_process([this] { state_->writer.wait(); });
}

Checkpoint Accelerator::load_state(const fs::path& path) {
  if (comm::is_newcomer(process_group())) return Checkpoint{.path = path, .info = {}};
  return *find_and_load([&] { return LatestCheckpoint{verify_checkpoint(path), {}}; }).checkpoint;
}

LatestCheckpoint Accelerator::load_latest_state(const fs::path& folder,
                                                const std::function<bool(const CheckpointInfo&)>& fits) {
  return load_newest(folder, fits, /*must_load=*/true);
}

LatestCheckpoint Accelerator::load_newest(const fs::path& folder,
                                          const std::function<bool(const CheckpointInfo&)>& fits,
                                          bool must_load) {
  auto latest = find_and_load([&] { return latest_checkpoint(folder, fits); });
  if (must_load && !latest.checkpoint && !latest.passed_over.empty())
    refuse_to_begin_anew(folder, latest.passed_over);
  if (is_main_process()) report_skipped(latest);
  return latest;
}

/// A process that replaces a lost one gets the state of another rank later.
LatestCheckpoint Accelerator::find_and_load(const std::function<LatestCheckpoint()>& find) {
  if (comm::is_newcomer(process_group())) return {};
  const comm::LeftOutByNewcomers left_out(process_group());
  json found;
  on_main_process([&] {
    state_->writer.wait();
    found = to_json(find());
  });
  const LatestCheckpoint latest = latest_from(process_group().broadcast_object(found));
  if (latest.checkpoint) {
    for (const auto& hook : *state_->load_hooks) hook(latest.checkpoint->path);
    state_->seed_before_load = train::TrainingScope::seed_of(*this);
    ++state_->loads;
    state_->loaded_step = static_cast<std::uint64_t>(latest.checkpoint->info.step);
    state_->prepared.state(gradients()->scaling()).load(*this, *latest.checkpoint);
    state_->loaded_seed = train::seed_of_generator();
    process_heartbeat().resumed_at(static_cast<std::uint64_t>(latest.checkpoint->info.step));
    trackers_resume_at(latest.checkpoint->info.step);
  }
  return latest;
}

}  // namespace lockstep
