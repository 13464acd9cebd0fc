#include "lost_ranks.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <thread>

namespace lockstep::testing {
namespace {

bool is_after_step(char way) { return way == 'v' || way == 'c' || way == 'd' || way == 't'; }

void raise_after(std::chrono::microseconds delay, int number) {
  std::thread([delay, number] {
    std::this_thread::sleep_for(delay);
    ::kill(::getpid(), number);
  }).detach();
}

}  // namespace

LostRanks::LostRanks(const LossPlan& plan, int rank, int ranks) : folder_(plan.folder), rank_(rank) {
  std::mt19937_64 random(plan.seed);
  const auto number = [&](std::int64_t end) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end));
  };
  const std::int64_t share = plan.losses == 0 ? 1 : plan.until / plan.losses;
  for (std::int64_t i = 0; i < plan.losses; ++i) {
    Loss loss;
    loss.step = plan.from + i * share + number(share);
    loss.rank = static_cast<int>(number(ranks));
    if (plan.lost_rank >= 0) loss.rank = static_cast<int>(plan.lost_rank);
    loss.way = plan.ways[static_cast<std::size_t>(number(static_cast<std::int64_t>(plan.ways.size())))];
    loss.delay = std::chrono::microseconds(number(8000));
    losses_.push_back(loss);
  }
}

bool LostRanks::any_is_lost() const { return !losses_.empty() && std::filesystem::exists(mark(0)); }

void LostRanks::in_set_up() const {
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    const char way = losses_[i].way;
    const bool due =
        losses_[i].rank == rank_ && (way == '2' || way == 'f') && std::filesystem::exists(mark(i));
    if (!due || !claim(mark(i) + ".again", way)) continue;
    if (way == '2') ::raise(SIGKILL);
    // Some milliseconds later, the ranks form their group.
    raise_after(losses_[i].delay, SIGKILL);
  }
}

void LostRanks::in_step(std::int64_t step, const at::Tensor& loss_value) const {
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    const Loss& loss = losses_[i];
    if (loss.way == 'a' && loss.step == step && claim(mark(i) + ".of." + std::to_string(rank_), loss.way))
      ::raise(SIGKILL);
    if (loss.rank != rank_ || loss.step != step || is_after_step(loss.way)) continue;
    if (loss.way == 's') throw std::runtime_error("this step cannot be computed");
    if (loss.way == 'a' || !claim(mark(i), loss.way)) continue;
    if (loss.way == 'x') throw std::runtime_error("an exception of this rank");
    if (loss.way == 'e') std::_Exit(0);
    if (loss.way == 'b') loss_value.register_hook([](const at::Tensor&) { ::raise(SIGKILL); });
    if (loss.way == 'k' || loss.way == '2' || loss.way == 'f') raise_after(loss.delay, SIGKILL);
    if (loss.way == 'p') raise_after(loss.delay, SIGSTOP);
  }
}

void LostRanks::in_evaluation(std::int64_t step) const {
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    const bool due = losses_[i].rank == rank_ && losses_[i].way == 'v' && losses_[i].step <= step;
    if (due && claim(mark(i), losses_[i].way)) ::raise(SIGKILL);
  }
}

void LostRanks::after_checkpoint(std::int64_t step) const {
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    const char way = losses_[i].way;
    if (losses_[i].rank != rank_ || losses_[i].step > step || (way != 'c' && way != 'd')) continue;
    if (claim(mark(i), way) || (way == 'd' && claim(mark(i) + ".again", way))) ::raise(SIGKILL);
  }
}

void LostRanks::after_last_step() const {
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    if (losses_[i].rank == rank_ && losses_[i].way == 't' && claim(mark(i), 't')) ::raise(SIGKILL);
  }
}

bool LostRanks::claim(const std::string& path, char way) {
  const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
  if (file < 0) return false;
  if (::write(file, &way, 1) != 1) throw std::runtime_error("cannot write " + path);
  ::close(file);
  return true;
}

}  // namespace lockstep::testing
