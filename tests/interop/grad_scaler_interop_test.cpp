// GradScaler in every order of its calls, beside torch.amp.GradScaler and beside a training without a scale.
//
// Whatever it does without an exception is what that training does; and it accepts every order in which
// PyTorch is right, with PyTorch's gradients, steps, scale and growth tracker. Where PyTorch raises, it
// raises or is right: a step may be left out, and gradients may be unscaled again. Where PyTorch is wrong in
// silence, it raises or is right: PyTorch divides twice (SUPT), mixes unscaled with scaled gradients (SUST,
// SUPSU), does not divide (SUZST), divides by a scale that has changed since the loss (ICZSPU), or skips a
// step because of gradients that are gone (IUZST).

#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "interop/python.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/optim/grad_scaler.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace {

struct State {
  std::size_t calls = 0;
  double weight = 1;
  /// NaN also for infinite ones, which clipping makes NaN; none if undefined.
  std::optional<double> gradient;
  double scale = 1;
  int growth = 0;
};

bool same(const std::optional<double>& one, const std::optional<double>& other) {
  if (!one || !other) return one.has_value() == other.has_value();
  return *one == *other || (!std::isfinite(*one) && !std::isfinite(*other));
}

/// Of a gradient that waits for its step: unscaled, or with the current scale.
bool same_but_for_scale(const State& state, const std::optional<double>& truth) {
  if (same(state.gradient, truth)) return true;
  return state.gradient && truth && std::abs(*state.gradient - *truth * state.scale) < 1e-5 * *state.gradient;
}

/// With a scaler, or without one as the truth.
class Job {
 public:
  explicit Job(bool scales) {
    if (scales) scaler_.emplace(optim::GradScalerOptions{.init_scale = 8, .growth_interval = 2});
  }

  void call(char name) {
    if (name == 'S') backward(0.25);
    if (name == 'I') backward(std::numeric_limits<double>::infinity());
    if ((name == 'U' || name == 'C') && scaler_) scaler_->unscale(sgd_);
    if (name == 'C' && weight_.grad().defined()) clip();
    if (name == 'T') step();
    if (name == 'P' && scaler_) scaler_->update();
    if (name == 'Z') weight_.mutable_grad().reset();
    if (name == 'z' && weight_.grad().defined()) weight_.grad().zero_();
  }

  State state(std::size_t calls) const {
    State state;
    state.calls = calls;
    state.weight = weight_[0].item<double>();
    if (weight_.grad().defined()) state.gradient = weight_.grad()[0].item<double>();
    if (!scaler_) return state;
    const auto saved = nlohmann::json::parse(scaler_->state_dict());
    state.scale = saved.at("scale").get<double>();
    state.growth = saved.at("growth_tracker").get<int>();
    return state;
  }

 private:
  void backward(double factor) {
    const at::Tensor loss = (weight_ * factor).sum();
    (scaler_ ? scaler_->scale(loss) : loss).backward();
  }
  /// The same arithmetic as Python's.
  void clip() {
    const at::NoGradGuard no_grad;
    const at::Tensor factor = weight_.grad().norm().add(1e-6).reciprocal().mul(0.125).clamp_max(1.0);
    weight_.grad().mul_(factor);
  }
  void step() {
    if (scaler_) {
      scaler_->step(sgd_);
    } else if (weight_.grad().defined() && weight_.grad().isfinite().all().item<bool>()) {
      sgd_.step();
    }
  }

  at::Tensor weight_ = torch::ones({2}).requires_grad_();
  torch::optim::SGD sgd_{{weight_}, 1.0};
  std::optional<optim::GradScaler> scaler_;
};

State outcome_of(bool scales, const std::string& calls) {
  Job job(scales);
  std::size_t done = 0;
  try {
    for (const char name : calls) {
      job.call(name);
      ++done;
    }
  } catch (const UsageError&) {
    EXPECT_TRUE(scales);
  }
  return job.state(done);
}

void extend(std::set<std::string>& all, const std::string& calls, const std::string& names,
            std::size_t more) {
  all.insert(calls);
  if (more == 0) return;
  for (const char name : names) extend(all, calls + name, names, more - 1);
}

/// All orders of up to four calls from a loss on, in the first window and in those after windows that ended,
/// or whose step was left out; and calls before the first loss. The last of four only of the calls that
/// differ most: C unscales as U does, and z clears as Z does.
std::set<std::string> sequences() {
  std::set<std::string> all;
  for (const char* before : {"", "SCZ", "ICZ", "SUz", "STPZ", "SCTPz", "SUP"}) {
    for (const char* loss : {"S", "I"}) {
      extend(all, std::string(before) + loss, "SIUCTPZz", 2);
      extend(all, std::string(before) + loss, "SIUTPZ", 3);
    }
  }
  for (const char* before : {"U", "T", "P", "C"}) extend(all, before, "SIUCTPZz", 2);
  return all;
}

/// A loss after a step whose gradients were not cleared. To PyTorch and to us they count as scaled, so that
/// both do the same, which is not what a training without a scale does.
bool adds_to_stepped(const std::string& calls) {
  bool stepped = false;
  for (const char name : calls) {
    if (name == 'T') stepped = true;
    if (name == 'Z' || name == 'z') stepped = false;
    if (stepped && (name == 'S' || name == 'I')) return true;
  }
  return false;
}

/// A loss after gradients that were unscaled and neither used nor cleared.
bool adds_to_unscaled(const std::string& calls) {
  bool unscaled = false;
  for (const char name : calls) {
    if (name == 'U' || name == 'C') unscaled = true;
    if (name == 'Z' || name == 'z' || name == 'T') unscaled = false;
    if (unscaled && (name == 'S' || name == 'I')) return true;
  }
  return false;
}

/// Whether each loss is followed by its step before the update, and each unscaling by its step.
bool has_whole_windows(const std::string& calls) {
  bool waits = false, unscaled = false;
  for (const char name : calls) {
    if (name == 'T') waits = unscaled = false;
    if (waits && name == 'P') return false;
    if (unscaled && (name == 'S' || name == 'I' || name == 'Z' || name == 'z')) return false;
    if (name == 'S' || name == 'I') waits = true;
    if (name == 'U' || name == 'C') unscaled = true;
  }
  return true;
}

double number_of(const std::string& text) { return std::strtod(text.c_str(), nullptr); }

State read_state(std::istream& printed) {
  State state;
  std::string weight, gradient;
  printed >> state.calls >> weight >> gradient >> state.scale >> state.growth;
  state.weight = number_of(weight);
  if (gradient != "none") state.gradient = number_of(gradient);
  return state;
}

TEST(GradScalerInterop, IsRightOrRefusesInEveryOrderOfCalls) {
  const testing::TemporaryFolder folder;
  const auto all = sequences();
  std::ofstream file(folder / "sequences");
  for (const auto& calls : all) file << calls << '\n';
  file.close();
  std::istringstream printed(testing::run_python("grad_scaler_peer.py", {(folder / "sequences").string()}));
  std::set<std::string> wrong_in_python;
  int same_as_python = 0, better = 0, refused_by_both = 0, refused = 0, uncleared = 0;
  for (const auto& calls : all) {
    SCOPED_TRACE(calls);
    const State python = read_state(printed), truth = outcome_of(false, calls),
                ours = outcome_of(true, calls);
    ASSERT_TRUE(printed);
    const auto expect_same_as_python = [&] {
      EXPECT_EQ(ours.calls, python.calls);
      EXPECT_EQ(ours.weight, python.weight);
      EXPECT_TRUE(same(ours.gradient, python.gradient));
      EXPECT_EQ(ours.scale, python.scale);
      EXPECT_EQ(ours.growth, python.growth);
    };
    if (adds_to_stepped(calls)) {
      const bool comparable = python.calls == calls.size() && has_whole_windows(calls);
      if (comparable) expect_same_as_python();
      uncleared += comparable ? 1 : 0;
      continue;
    }
    const bool unscaled = std::string("UCT").find(calls.back()) != std::string::npos;
    const auto right = [&](const State& state) {
      return state.calls == calls.size() && state.weight == truth.weight &&
             (unscaled ? same(state.gradient, truth.gradient) : same_but_for_scale(state, truth.gradient));
    };
    // A mixture is refused as soon as it is used.
    if (ours.calls == calls.size() && (unscaled || !adds_to_unscaled(calls))) {
      EXPECT_TRUE(right(ours)) << ours.weight << " for " << truth.weight;
    }
    const bool was_wrong = wrong_in_python.contains(calls.substr(0, calls.size() - 1));
    const bool right_in_python = right(python) && !was_wrong;
    if (was_wrong || (unscaled && !right_in_python)) wrong_in_python.insert(calls);
    if (right_in_python) {
      expect_same_as_python();
      ++same_as_python;
    } else if (right(ours)) {
      ++better;
    } else if (python.calls < calls.size()) {
      ++refused_by_both;
    } else {
      ++refused;
    }
  }
  EXPECT_GT(same_as_python, 1000);
  EXPECT_GT(better, 100) << "windows whose step was left out";
  EXPECT_GT(refused_by_both, 100);
  EXPECT_GT(refused, 50) << "PyTorch is wrong in silence";
  EXPECT_GT(uncleared, 50);
}

}  // namespace
}  // namespace lockstep
