#include "lockstep/train/checkpoints.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "comm/group_observer.hpp"
#include "comm/planner_link.hpp"
#include "comm/set_up_record.hpp"
#include "core/atomic_directory.hpp"
#include "core/lease.hpp"
#include "core/runtime/stop_signals.hpp"
#include "core/utf8_check.hpp"
#include "lockstep/core/error.hpp"
#include "train/accelerator_state.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

void say(const std::string& text) { std::cerr << "lockstep: " + text + "\n" << std::flush; }

void check_options(const CheckpointOptions& options) {
  const auto least = std::min(
      {options.every, options.keep_last, options.keep_best, options.keep_every, options.total_limit});
  if (least < 0)
    throw UsageError(
        "Checkpoints: 'every', 'keep_last', 'keep_best', 'keep_every' and 'total_limit' must be 0 or more.");
  if (options.folder.empty() && options.every > 0)
    throw UsageError("Checkpoints: 'every' needs a folder to write to.");
}

/// Runs in the thread that wrote the new checkpoint.
void rotate(const CheckpointOptions& options, const std::string& protect,
            const std::vector<BadCheckpoint>& bad) {
  try {
    rotate_checkpoints(options.folder,
                       {.keep_last = options.keep_last,
                        .keep_best = options.keep_best,
                        .greater_is_better = options.greater_is_better,
                        .keep_every = options.keep_every,
                        .total_limit = options.total_limit,
                        .protect = protect},
                       bad);
  } catch (const Error& error) {
    say(std::string("old checkpoints were not removed: ") + error.what());  // The new one is safe.
  }
}

}  // namespace

struct Checkpoints::State final : train::ElasticPart {
  State(const Accelerator& the_accelerator, CheckpointOptions the_options);
  ~State() override;
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  nlohmann::json elastic_state() const override;
  void take_elastic_state(const nlohmann::json& state) override;

  bool is_on() const { return !options.folder.empty(); }
  void take_folder();
  void check_lease() const;
  void take_over(const Checkpoint& checkpoint);
  void resume_newest();
  void resume_from_path();
  bool try_save(std::optional<double> metric = {});
  void save_and_rotate(std::optional<double> metric);

  Accelerator accelerator;
  CheckpointOptions options;
  std::shared_ptr<Lease> lease;
  std::optional<StopSignals> signals;
  std::vector<BadCheckpoint> bad;
  std::string started_from;
  std::string protected_name;
  fs::path resumed_from;
  std::int64_t step = 0;
  std::int64_t saved_step = -1;
};

Checkpoints::State::State(const Accelerator& the_accelerator, CheckpointOptions the_options)
    : accelerator(the_accelerator), options(std::move(the_options)) {
  check_options(options);
  if (is_on()) {
    if (options.stop_at_sigterm) {
      signals.emplace(std::initializer_list<int>{SIGUSR1, SIGTERM});
    } else {
      signals.emplace(std::initializer_list<int>{SIGUSR1});
    }
    // A spare has a folder when it has a rank: the one before it may be writing there.
    const auto replaced = comm::replacement_of_this_process();
    if (!replaced || !replaced->is_spare()) accelerator.on_main_process([this] { take_folder(); });
  }
  accelerator.state_->elastic_parts.push_back(this);
}

Checkpoints::State::~State() { std::erase(accelerator.state_->elastic_parts, this); }

nlohmann::json Checkpoints::State::elastic_state() const {
  return {{"step", step}, {"saved_step", saved_step}, {"started_from", utf8_text(started_from)}};
}

void Checkpoints::State::take_elastic_state(const nlohmann::json& state) {
  step = state.at("step").get<std::int64_t>();
  saved_step = state.at("saved_step").get<std::int64_t>();
  started_from = state.at("started_from").get<std::string>();
  if (is_on() && !lease && accelerator.is_main_process()) take_folder();
}

void Checkpoints::State::take_folder() {
  lease = acquire_lease(options.folder);
  remove_leftovers(options.folder);
}

void Checkpoints::State::check_lease() const {
  if (!lease->held())
    throw Error(
        fmt::format("another job took the folder '{}' while this one was stopped: nothing is saved there",
                    options.folder));
}

void Checkpoints::State::take_over(const Checkpoint& checkpoint) {
  step = saved_step = checkpoint.info.step;
  resumed_from = checkpoint.path;
  accelerator.print(
      "resumed from ", checkpoint.path.string(), ": step ", step, ", epoch ", checkpoint.info.epoch,
      checkpoint.info.world_size == accelerator.num_processes()
          ? ""
          : fmt::format(", written by {} rank(s): random numbers start over", checkpoint.info.world_size));
}

void Checkpoints::State::resume_newest() {
  const auto latest = accelerator.load_latest_state(options.folder);
  bad = latest.passed_over;
  if (!latest.checkpoint) return;
  started_from = latest.checkpoint->info.started_from;
  take_over(*latest.checkpoint);
}

void Checkpoints::State::resume_from_path() {
  // Ranks may see different file systems; rank 0's path is used.
  started_from = accelerator.process_group().broadcast_object(fs::weakly_canonical(options.resume).string());
  if (is_on()) {
    const auto comes_from_it = [this](const CheckpointInfo& info) {
      // As the manifest writes a path that is not UTF-8.
      return info.started_from == utf8_text(started_from);
    };
    const auto latest = accelerator.load_newest(options.folder, comes_from_it, /*must_load=*/false);
    bad = latest.passed_over;
    if (latest.checkpoint) return take_over(*latest.checkpoint);
  }
  take_over(accelerator.load_state(started_from));
  // It is in another folder or belongs to an older run: this run's folder has no checkpoint of this step yet.
  saved_step = -1;
}

void Checkpoints::State::save_and_rotate(std::optional<double> metric) {
  accelerator.on_main_process([this] { check_lease(); });
  // Keeps the lease until the thread has finished.
  const auto done = [o = options, p = protected_name, b = bad, keep = lease] { rotate(o, p, b); };
  accelerator.save_state(fs::path(options.folder) / checkpoint_name(step),
                         {.step = step, .started_from = started_from, .metric = metric},
                         {.asynchronous = options.asynchronous,
                          .save_on_each_node = options.save_on_each_node,
                          .trained_only = options.trained_only,
                          .add_files = options.add_files ? options.add_files() : nullptr,
                          .when_written = done});
  bad.clear();
  saved_step = step;
}

/// Returns false if the checkpoint could not be written and training continues nevertheless.
bool Checkpoints::State::try_save(std::optional<double> metric) {
  try {
    save_and_rotate(metric);
    return true;
  } catch (const RemoteError& error) {
    if (!options.continue_after_failed_save) throw;
  } catch (const CommunicationError&) {
    throw;
  } catch (const Error& error) {
    if (!options.continue_after_failed_save) throw;
    say(std::string("training continues without this checkpoint: ") + error.what());
  }
  return false;
}

Checkpoints::Checkpoints(const Accelerator& accelerator, CheckpointOptions options)
    : state_(std::make_unique<State>(accelerator, std::move(options))) {}

Checkpoints::~Checkpoints() = default;
Checkpoints::Checkpoints(Checkpoints&&) noexcept = default;
Checkpoints& Checkpoints::operator=(Checkpoints&&) noexcept = default;

void Checkpoints::resume() {
  const std::string& resume = state_->options.resume;
  // A process that replaces a lost one gets the state of another rank.
  if (resume == "never" || comm::is_newcomer(state_->accelerator.process_group())) return;
  const comm::LeftOutByNewcomers left_out(state_->accelerator.process_group());
  if (resume != "auto") return state_->resume_from_path();
  if (state_->is_on()) state_->resume_newest();
}

bool Checkpoints::after_step() {
  count_step();
  if (const auto& commit = state_->accelerator.state_->commit_step) commit();
  if (!state_->is_on()) return false;
  const bool due = state_->options.every > 0 && state_->step % state_->options.every == 0;
  if (due) state_->try_save();
  if (!state_->accelerator.should_stop()) return false;
  if (state_->saved_step != state_->step) state_->save_and_rotate({});
  state_->accelerator.wait_for_save();
  state_->accelerator.print("preempted: saved ", state_->options.folder, "/", checkpoint_name(state_->step),
                            " at step ", state_->step, "; the same command resumes from there");
  return true;
}

void Checkpoints::count_step() noexcept { ++state_->step; }

void Checkpoints::protect(const std::string& name) { state_->protected_name = name; }

const fs::path& Checkpoints::resumed_from() const noexcept { return state_->resumed_from; }

void Checkpoints::save() {
  if (state_->is_on() && state_->saved_step != state_->step) state_->try_save();
}

void Checkpoints::save_again() {
  if (state_->is_on()) state_->try_save();
}

void Checkpoints::save(double metric) {
  if (state_->is_on()) state_->try_save(metric);
}

void Checkpoints::wait() {
  if (state_->is_on()) state_->accelerator.wait_for_save();
}

std::int64_t Checkpoints::step() const noexcept { return state_->step; }

}  // namespace lockstep
