// A training that can be killed, stopped and restarted, for resume_test.cpp and tests/faults.
//
// Every rank writes its loss of every step to OUT/losses.<rank>, one line per step, the bits in hexadecimal,
// and that of every evaluation to OUT/evaluations.<rank>. At the end rank 0 writes a last checkpoint with the
// complete state to OUT/final. Each process writes its id to OUT/pids.<rank> when it starts, and to
// OUT/trained.<rank> when it begins to train, with its LOCKSTEP_REPLACES ("-" for the first process). A file
// OUT/throw.<rank> or OUT/leave.<rank> makes that rank throw an exception or exit with success after its next
// step.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/utils.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/options.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/train/checkpoints.hpp"
#include "lockstep/train/elastic.hpp"
#include "lost_ranks.hpp"
#include "plain_loop_of_probe.hpp"
#include "trainer_of_probe.hpp"

namespace {

using lockstep::Accelerator;
using lockstep::Checkpoints;
using lockstep::testing::LostRanks;
using std::chrono::milliseconds;

struct Options {
  std::string out;
  std::string folder;
  std::int64_t epochs = 4;
  /// The training ends after this step, even if epochs are left; 0: none.
  std::int64_t steps = 0;
  std::int64_t every = 7;
  /// Steps between evaluations; 0: none.
  std::int64_t evaluate_every = 0;
  std::string resume = "auto";
  /// Minimum duration of a step in milliseconds.
  std::int64_t step_time = 0;
  /// Number of attempts in which a rank is killed at a random time: within a random one of the first
  /// latest_kill steps. Counted in steps, so that a slow machine gets as far between two kills as a fast one.
  std::int64_t kills = 0;
  std::int64_t latest_kill = 36;
  std::uint64_t seed = 1;
  /// This rank is killed in the middle of this step of the first attempt.
  std::int64_t kill_rank = -1;
  std::int64_t kill_step = -1;
  bool agree = true;
  std::string backend = "auto";
  /// Ranks that are lost in the middle of the training and replaced (lockstep run --max-recoveries): how
  /// many, spread over the first `losses_until` steps; and how, a text of letters: see LostRanks.
  std::int64_t losses = 0;
  std::int64_t losses_until = 150;
  std::int64_t losses_from = 2;
  std::string ways = "kbxe2";
  /// The only rank that is lost; -1: a random one.
  std::int64_t lost_rank = -1;
  /// What the program does wrong around run_elastic(): "collective" in its set-up; "lonely", a new process
  /// alone; "question", it alone asks for objects; "objects", of which it makes more; "swallow" of the
  /// exception in the body, which goes on. For Trainer: ProbeTraining.
  std::string misuse;
  /// The losses are also logged to a table, OUT/runs/metrics.csv, which is opened in the set-up.
  bool track = false;
  /// Each process asks the others for their ids in its set-up: OUT/asked.<rank> has a line for each.
  bool ask = false;
  bool asynchronous = false;
  /// Seconds until an operation that a rank does not join has failed.
  std::int64_t timeout = 40;
  /// The training is a Trainer's, and only the options about lost ranks apply.
  bool trainer = false;
  /// The same of a plain loop, without an Accelerator.
  bool plain = false;
  /// See ProbeTraining.
  std::int64_t pause = 0;
  std::int64_t stop_at = -1;
  std::int64_t max_seconds = 0;
};

const lockstep::OptionTable<Options>& option_table() {
  static const auto table =
      lockstep::OptionTable<Options>("checkpoint_probe", "A training to be interrupted.")
          .add("out", &Options::out, "Folder for losses and the end's state.")
          .add("folder", &Options::folder, "Folder for checkpoints.")
          .add("epochs", &Options::epochs, "Passes over the data.")
          .add("steps", &Options::steps, "Steps at most; 0: no limit.")
          .add("every", &Options::every, "Steps between checkpoints.")
          .add("evaluate-every", &Options::evaluate_every, "Steps between evaluations.")
          .add("resume", &Options::resume, "As CheckpointOptions.")
          .add("step-time", &Options::step_time, "Least milliseconds of a step.")
          .add("kills", &Options::kills, "Attempts that are killed.")
          .add("latest-kill", &Options::latest_kill, "The last step of an attempt that a kill may hit.")
          .add("seed", &Options::seed, "Of the kills.")
          .add("kill-rank", &Options::kill_rank, "Killed in the first attempt.")
          .add("kill-step", &Options::kill_step, "In the backward of this step.")
          .add("ask", &Options::ask, "Object collectives in the set-up.")
          .add("track", &Options::track, "Log to a table.")
          .add("asynchronous", &Options::asynchronous, "As CheckpointOptions.")
          .add("backend", &Options::backend, "As AcceleratorOptions.")
          .add("losses", &Options::losses, "Ranks that are lost.")
          .add("losses-until", &Options::losses_until, "The last step in which one may be.")
          .add("losses-from", &Options::losses_from, "The first step in which one may be.")
          .add("ways", &Options::ways, "How they are lost.")
          .add("lost-rank", &Options::lost_rank, "Which one is lost.")
          .add("timeout", &Options::timeout, "Of operations, in seconds.")
          .add("trainer", &Options::trainer, "Train by Trainer.")
          .add("plain", &Options::plain, "Train by a plain loop.")
          .add("pause", &Options::pause, "Train twice by Trainer.")
          .add("stop-at", &Options::stop_at, "Rank 1 of a Trainer's job asks for the end.")
          .add("max-seconds", &Options::max_seconds, "As max_duration of Trainer.")
          .add("misuse", &Options::misuse, "What is done wrong.")
          .add("agree", &Options::agree, "Checkpoints and stopping at all.");
  return table;
}

/// Of this attempt.
std::atomic<std::int64_t> steps_done{0};

/// Returns whether this rank will be killed. The rank and the step differ between attempts.
bool plan_kill(const Accelerator& accelerator, const Options& options) {
  const auto attempt = accelerator.world().restart_count;
  if (attempt >= options.kills) return false;
  std::mt19937_64 random(options.seed * 1000 + static_cast<std::uint64_t>(attempt));
  const auto rank = static_cast<int>(random() % static_cast<std::uint64_t>(accelerator.num_processes()));
  const auto step = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(options.latest_kill));
  const auto delay = std::chrono::microseconds(random() % 8000);
  if (rank != accelerator.process_index()) return false;
  std::thread([step, delay] {
    while (steps_done < step) std::this_thread::sleep_for(std::chrono::microseconds(50));
    std::this_thread::sleep_for(delay);
    ::raise(SIGKILL);
  }).detach();
  return true;
}

/// A training may end before the step of its kill, which it has now, so that every run has all kills.
void await_kill(const Options& options) {
  steps_done = options.latest_kill;
  std::this_thread::sleep_for(std::chrono::seconds(30));
}

/// What the files OUT/throw.<rank> and OUT/leave.<rank> ask for, once.
void obey_files(const Options& options, int rank) {
  const auto asked = [&](const char* what) {
    return std::filesystem::remove(options.out + "/" + what + "." + std::to_string(rank));
  };
  if (asked("throw")) throw lockstep::Error("an exception was asked for.");
  if (asked("leave")) std::_Exit(0);
}

class Losses {
 public:
  Losses(const std::string& folder, const std::string& name, int rank)
      : file_(folder + "/" + name + "." + std::to_string(rank), std::ios::app) {}

  void write(std::int64_t step, const at::Tensor& loss) {
    char line[64];
    std::snprintf(line, sizeof(line), "%lld %a", static_cast<long long>(step), loss.item<double>());
    file_ << line << std::endl;
  }

 private:
  std::ofstream file_;
};

/// Renamed when complete, so that no reader sees half of it.
void write_pid(const std::string& path) {
  std::ofstream(path + ".new") << ::getpid() << std::endl;
  std::filesystem::rename(path + ".new", path);
}

/// Once for each process.
void note_training(const Options& options, int rank) {
  static bool is_noted = false;
  if (std::exchange(is_noted, true)) return;
  const auto replaces = lockstep::find_variable(lockstep::process_environment(), "LOCKSTEP_REPLACES");
  std::ofstream(options.out + "/trained." + std::to_string(rank), std::ios::app)
      << ::getpid() << " " << replaces.value_or("-") << std::endl;
  write_pid(options.out + "/pid." + std::to_string(rank));
}

/// What only the first processes of the ranks can answer.
void ask_others(const Accelerator& accelerator, const Options& options) {
  const std::string own = std::to_string(::getpid());
  const auto& group = accelerator.process_group();
  std::string line = accelerator.on_main_process([&] { return own; });
  line += " " + std::to_string(accelerator.on_main_process([] { return ::getpid(); }));
  for (const auto& pid : accelerator.gather_object(std::vector{own})) line += " " + pid;
  const std::vector<std::string> dealt(static_cast<std::size_t>(group.size()), own);
  line += " " + group.scatter_object(dealt, 1);
  std::ofstream(options.out + "/asked." + std::to_string(accelerator.process_index()), std::ios::app)
      << line << std::endl;
}

torch::nn::Sequential make_model() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(6, 32), torch::nn::BatchNorm1d(32), torch::nn::ReLU(),
                               torch::nn::Dropout(0.3), torch::nn::Linear(32, 1));
}

lockstep::DataLoader make_loader(std::uint64_t seed = 4, bool shuffle = true) {
  torch::manual_seed(seed);
  const at::Tensor x = torch::randn({400, 6});
  auto data =
      std::make_shared<lockstep::TensorDataset>(lockstep::Batch{{"x", x}, {"y", x.sum(1, true).sin()}});
  return lockstep::DataLoader(data, {.batch_size = 4, .shuffle = shuffle, .num_workers = 1, .seed = 11});
}

/// The sum of the losses of all batches of all ranks, without gradients.
template <class Model>
at::Tensor evaluate(const Accelerator& accelerator, torch::nn::Sequential& net, Model& model,
                    lockstep::DataLoader& batches) {
  const at::NoGradGuard guard;
  net->eval();
  at::Tensor sum = torch::zeros({});
  for (auto& batch : batches) sum += torch::mse_loss(model(batch["x"]), batch["y"]);
  net->train();
  return accelerator.reduce(sum);
}

void compute_gradients(Accelerator& accelerator, const at::Tensor& loss, const Options& options) {
  try {
    accelerator.backward(loss);
  } catch (const lockstep::CommunicationError&) {
    if (options.misuse != "swallow") throw;
  }
}

lockstep::testing::LossPlan plan_of(const Options& options) {
  return {.folder = options.out,
          .seed = options.seed,
          .losses = options.losses,
          .from = options.losses_from,
          .until = options.losses_until,
          .ways = options.ways,
          .lost_rank = options.lost_rank};
}

int run(const Options& options) {
  if (options.trainer) {
    return lockstep::testing::train_by_trainer(plan_of(options), {.pause = options.pause,
                                                                  .stop_at = options.stop_at,
                                                                  .max_seconds = options.max_seconds,
                                                                  .misuse = options.misuse});
  }
  if (options.plain) {
    return lockstep::testing::train_by_plain_loop(
        plan_of(options),
        {.epochs = options.epochs, .step_time = options.step_time, .misuse = options.misuse});
  }
  Accelerator accelerator({.device = "cpu",
                           .backend = lockstep::comm_backend_from(options.backend),
                           .timeout = std::chrono::seconds(options.timeout)});
  const int rank = accelerator.process_index();
  std::ofstream(options.out + "/pids." + std::to_string(rank), std::ios::app) << ::getpid() << std::endl;
  const LostRanks lost_ranks(plan_of(options), rank, accelerator.num_processes());
  lost_ranks.in_set_up();
  auto model = make_model();
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.01));
  auto loader = make_loader();
  lockstep::optim::LrScheduler cosine(optimizer,
                                      {.name = "cosine", .num_warmup_steps = 5, .num_training_steps = 500});
  auto [ddp, opt, scheduler, batches] = accelerator.prepare(model, optimizer, cosine, loader);
  std::optional<decltype(accelerator.prepare(make_loader()))> evaluation;
  if (options.evaluate_every > 0) evaluation.emplace(accelerator.prepare(make_loader(5, false)));
  torch::manual_seed(100 + static_cast<std::uint64_t>(rank));  // Dropout differs between the ranks.
  Checkpoints checkpoints(accelerator, {.folder = options.agree ? options.folder : "",
                                        .every = options.agree ? options.every : 0,
                                        .asynchronous = options.asynchronous,
                                        .resume = options.agree ? options.resume : "never"});
  checkpoints.resume();
  if (options.ask) ask_others(accelerator, options);
  const bool is_new = lost_ranks.any_is_lost();
  if (options.misuse == "collective" || (options.misuse == "lonely" && is_new))
    accelerator.process_group().all_reduce(torch::ones({1}));
  if (options.misuse == "question" && is_new) accelerator.gather_object(std::vector<std::string>{"?"});
  std::optional<Checkpoints> more;
  if (options.misuse == "objects" && is_new)
    more.emplace(accelerator, lockstep::CheckpointOptions{.folder = ""});
  if (options.track) {
    accelerator.init_trackers({.log_with = {"csv"}, .folder = options.out + "/runs"});
    if (rank == 0) accelerator.add_tracker(lockstep::make_json_lines_tracker(options.out + "/runs"));
  }
  Losses losses(options.out, "losses", rank), evaluations(options.out, "evaluations", rank);
  const bool is_killed = plan_kill(accelerator, options);
  const auto is_last = [&] { return options.steps > 0 && checkpoints.step() >= options.steps; };
  // At the beginning of the next step, so that none is left out after a restart or a recovery.
  const auto evaluate_if_due = [&] {
    const std::int64_t done = checkpoints.step();
    if (evaluation && done > 0 && done % options.evaluate_every == 0)
      evaluations.write(done, evaluate(accelerator, model, ddp, *evaluation));
  };
  const int status = lockstep::run_elastic(accelerator, [&](lockstep::ElasticState&) {
    while (batches.epoch() < options.epochs && !is_last()) {
      for (auto& batch : batches) {
        note_training(options, rank);
        evaluate_if_due();
        const at::Tensor loss = torch::mse_loss(ddp(batch["x"]), batch["y"]);
        const bool deadly = accelerator.world().restart_count == 0 && rank == options.kill_rank &&
                            checkpoints.step() == options.kill_step;
        if (deadly) loss.register_hook([](const at::Tensor&) { ::raise(SIGKILL); });
        lost_ranks.in_step(checkpoints.step(), loss);
        opt.zero_grad();
        compute_gradients(accelerator, loss, options);
        opt.step();
        scheduler.step();
        losses.write(checkpoints.step(), loss);
        if (options.track) accelerator.log({{"loss", loss.item<double>()}}, checkpoints.step() + 1);
        std::this_thread::sleep_for(milliseconds(options.step_time));
        ++steps_done;
        obey_files(options, rank);
        if (checkpoints.after_step()) {
          std::cout << "rank " + std::to_string(rank) + " stopped at step " +
                           std::to_string(checkpoints.step()) + "\n"
                    << std::flush;
          return lockstep::kPreemptedExitCode;
        }
        if (is_last()) break;
      }
    }
    evaluate_if_due();
    return 0;
  });
  if (status != 0) return status;
  if (options.agree) accelerator.process_group().write_trace(options.out + "/traces");
  if (is_killed) await_kill(options);
  accelerator.save_state(options.out + "/final", {.step = checkpoints.step()});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("checkpoint_probe",
                               [&] { return run(option_table().parse(argc, argv).options); });
}
