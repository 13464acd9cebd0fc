// A training that can be killed, stopped and restarted, for resume_test.cpp and tests/faults.
//
// Every rank writes its loss of every step to OUT/losses.<rank>, one line per step, the bits in hexadecimal,
// and that of every evaluation to OUT/evaluations.<rank>. At the end rank 0 writes a last checkpoint with the
// complete state to OUT/final. A file OUT/throw.<rank> or OUT/leave.<rank> makes that rank throw an exception
// or exit with success after its next step.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/utils.h>
#include <unistd.h>

#include <fcntl.h>
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
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/options.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/train/checkpoints.hpp"
#include "lockstep/train/elastic.hpp"

namespace {

using lockstep::Accelerator;
using lockstep::Checkpoints;
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
  /// many, spread over the first `losses_until` steps; and how, a text of letters: see Losses.
  std::int64_t losses = 0;
  std::int64_t losses_until = 150;
  std::string ways = "kbxe2";
  /// The only rank that is lost; -1: a random one.
  std::int64_t lost_rank = -1;
  bool asynchronous = false;
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
          .add("asynchronous", &Options::asynchronous, "As CheckpointOptions.")
          .add("backend", &Options::backend, "As AcceleratorOptions.")
          .add("losses", &Options::losses, "Ranks that are lost.")
          .add("losses-until", &Options::losses_until, "The last step in which one may be.")
          .add("ways", &Options::ways, "How they are lost.")
          .add("lost-rank", &Options::lost_rank, "Which one is lost.")
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

/// The losses of ranks, planned from the seed, each carried out once by whichever process of its rank gets
/// there:
///
///     k  SIGKILL at a random moment within 8 ms        x  an exception
///     b  SIGKILL in the middle of a backward           e  exit(0)
///     2  as k, and the successor is killed too, before its training
///     s  an exception in the same step of every process
class LostRanks {
 public:
  LostRanks(const Options& options, int rank, int ranks) : folder_(options.out), rank_(rank) {
    std::mt19937_64 random(options.seed);
    const auto number = [&](std::int64_t end) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end));
    };
    const std::int64_t share = options.losses == 0 ? 1 : options.losses_until / options.losses;
    for (std::int64_t i = 0; i < options.losses; ++i) {
      Loss loss;
      loss.step = 2 + i * share + number(share);
      loss.rank = static_cast<int>(number(ranks));
      if (options.lost_rank >= 0) loss.rank = static_cast<int>(options.lost_rank);
      loss.way =
          options.ways[static_cast<std::size_t>(number(static_cast<std::int64_t>(options.ways.size())))];
      loss.delay = std::chrono::microseconds(number(8000));
      losses_.push_back(loss);
    }
  }

  void in_set_up() const {
    for (std::size_t i = 0; i < losses_.size(); ++i) {
      const bool due = losses_[i].rank == rank_ && losses_[i].way == '2' && std::filesystem::exists(mark(i));
      if (due && claim(mark(i) + ".again")) ::raise(SIGKILL);
    }
  }

  /// Before the backward of a step.
  void in_step(std::int64_t step, const at::Tensor& loss_value) const {
    for (std::size_t i = 0; i < losses_.size(); ++i) {
      const Loss& loss = losses_[i];
      if (loss.rank != rank_ || loss.step != step) continue;
      if (loss.way == 's') throw std::runtime_error("this step cannot be computed");
      if (!claim(mark(i))) continue;
      if (loss.way == 'x') throw std::runtime_error("an exception of this rank");
      if (loss.way == 'e') std::_Exit(0);
      if (loss.way == 'b') loss_value.register_hook([](const at::Tensor&) { ::raise(SIGKILL); });
      if (loss.way == 'k' || loss.way == '2') {
        std::thread([delay = loss.delay] {
          std::this_thread::sleep_for(delay);
          ::raise(SIGKILL);
        }).detach();
      }
    }
  }

 private:
  struct Loss {
    std::int64_t step = 0;
    int rank = 0;
    char way = 'k';
    std::chrono::microseconds delay{0};
  };

  std::string mark(std::size_t number) const { return folder_ + "/lost." + std::to_string(number); }
  static bool claim(const std::string& path) {
    const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (file >= 0) ::close(file);
    return file >= 0;
  }

  std::string folder_;
  int rank_;
  std::vector<Loss> losses_;
};

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

int run(const Options& options) {
  Accelerator accelerator({.device = "cpu",
                           .backend = lockstep::comm_backend_from(options.backend),
                           .timeout = std::chrono::seconds(40)});
  const int rank = accelerator.process_index();
  std::ofstream(options.out + "/pids." + std::to_string(rank), std::ios::app) << ::getpid() << std::endl;
  const LostRanks lost_ranks(options, rank, accelerator.num_processes());
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
  write_pid(options.out + "/pid." + std::to_string(rank));
  Losses losses(options.out, "losses", rank), evaluations(options.out, "evaluations", rank);
  const bool is_killed = plan_kill(accelerator, options);
  const auto is_last = [&] { return options.steps > 0 && checkpoints.step() >= options.steps; };
  const int status = lockstep::run_elastic(accelerator, [&](lockstep::ElasticState&) {
    while (batches.epoch() < options.epochs && !is_last()) {
      for (auto& batch : batches) {
        const at::Tensor loss = torch::mse_loss(ddp(batch["x"]), batch["y"]);
        const bool deadly = accelerator.world().restart_count == 0 && rank == options.kill_rank &&
                            checkpoints.step() == options.kill_step;
        if (deadly) loss.register_hook([](const at::Tensor&) { ::raise(SIGKILL); });
        lost_ranks.in_step(checkpoints.step(), loss);
        opt.zero_grad();
        accelerator.backward(loss);
        opt.step();
        scheduler.step();
        losses.write(checkpoints.step(), loss);
        std::this_thread::sleep_for(milliseconds(options.step_time));
        // Before the checkpoint, so that no evaluation is left out after a restart.
        if (const auto done = checkpoints.step() + 1; evaluation && done % options.evaluate_every == 0)
          evaluations.write(done, evaluate(accelerator, model, ddp, *evaluation));
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
