#include <c10/core/CachingDeviceAllocator.h>

#include <nlohmann/json.hpp>

#include "../checkpoint/manifest.hpp"
#include "accelerator_state.hpp"
#include "gradients.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "lockstep/core/runtime/stop_signals.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json to_json(const LatestCheckpoint& latest) {
  json document{{"passed_over", json::array()}};
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
  if (!document.contains("path")) return latest;
  latest.checkpoint = Checkpoint{.path = document["path"].get<std::string>(),
                                 .info = manifest::info_from_json(document["info"])};
  return latest;
}

}  // namespace

void Accelerator::add_model(std::function<std::vector<NamedTensor>()> tensors,
                            std::shared_ptr<DistributedDataParallelBase> ddp) const {
  gradients()->add_model(ddp);
  state_->training.add_model({std::move(tensors), std::move(ddp)});
}

void Accelerator::add_optimizer(torch::optim::Optimizer& optimizer) const {
  gradients()->add_optimizer(optimizer);
  state_->training.add_optimizer(optimizer);
}

void Accelerator::add_scheduler(optim::Scheduler& scheduler) const {
  state_->training.add_scheduler(scheduler);
}

void Accelerator::register_for_checkpointing(const std::string& name, Checkpointable& object) const {
  state_->training.add_object(name, object);
}

StateHookHandle Accelerator::register_save_state_pre_hook(StateHook hook) const {
  return {state_->save_hooks, std::move(hook)};
}

StateHookHandle Accelerator::register_load_state_pre_hook(StateHook hook) const {
  return {state_->load_hooks, std::move(hook)};
}

void Accelerator::free_memory() const {
  gradients()->clear();
  state_->training.clear();
  if (device().is_cuda()) at::getDeviceAllocator(at::kCUDA)->emptyCache();
}

void Accelerator::save_state(const fs::path& path, const CheckpointInfo& info,
                             const SaveStateOptions& options) const {
  process_heartbeat().working("saving a checkpoint");
  for (const auto& hook : *state_->save_hooks) hook(path);
  state_->training.save(*this, path, info, options, state_->writer);
}

void Accelerator::wait_for_save() const {
  on_main_process([this] { state_->writer.wait(); });
}

Checkpoint Accelerator::load_state(const fs::path& path) const {
  return *find_and_load([&] { return LatestCheckpoint{verify_checkpoint(path), {}}; }).checkpoint;
}

LatestCheckpoint Accelerator::load_latest_state(
    const fs::path& folder, const std::function<bool(const CheckpointInfo&)>& fits) const {
  return find_and_load([&] { return latest_checkpoint(folder, fits); });
}

LatestCheckpoint Accelerator::find_and_load(const std::function<LatestCheckpoint()>& find) const {
  json found;
  on_main_process([&] {
    state_->writer.wait();
    found = to_json(find());
  });
  const LatestCheckpoint latest = latest_from(process_group().broadcast_object(found));
  if (latest.checkpoint) {
    for (const auto& hook : *state_->load_hooks) hook(latest.checkpoint->path);
    state_->training.load(*this, *latest.checkpoint);
    process_heartbeat().resumed_at(static_cast<std::uint64_t>(latest.checkpoint->info.step));
    trackers_resume_at(latest.checkpoint->info.step);
  }
  return latest;
}

void Accelerator::request_stop() const { state_->stop_requested = true; }

bool Accelerator::should_stop() const {
  return state_->stop_agreement.ask(state_->stop_requested || StopSignals::received() != 0);
}

}  // namespace lockstep
