// GradScaler in every order of its calls, beside torch.amp.GradScaler and beside a training without a scale.
// Whatever it does without an exception is what that training does; and it accepts every order in which
// PyTorch is right, with PyTorch's scale.

#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
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
  double scale = 0;
};

bool same(const std::optional<double>& one, const std::optional<double>& other) {
  if (!one || !other) return one.has_value() == other.has_value();
  return *one == *other || (!std::isfinite(*one) && !std::isfinite(*other));
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
    State state{calls, weight_[0].item<double>(), {}, scaler_ ? scaler_->get_scale() : 1};
    if (weight_.grad().defined()) state.gradient = weight_.grad()[0].item<double>();
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
    const at::Tensor factor =
        weight_.grad().norm().add(1e-6).reciprocal().mul(0.125).clamp_max(1.0);
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

void extend(std::vector<std::string>& all, const std::string& calls, std::size_t more) {
  all.push_back(calls);
  if (more == 0) return;
  for (const char name : std::string("SIUCTPZz")) extend(all, calls + name, more - 1);
}

/// A loss after a step with gradients that were not cleared: to PyTorch and to us they count as scaled.
bool adds_to_stepped(const std::string& calls) {
  bool stepped = false;
  for (const char name : calls) {
    if (name == 'T') stepped = true;
    if (name == 'Z' || name == 'z') stepped = false;
    if (stepped && (name == 'S' || name == 'I')) return true;
  }
  return false;
}

/// All orders of up to four calls after a loss, in the first window and in those after windows that ended, or
/// whose step was left out; and calls before the first loss.
std::vector<std::string> sequences() {
  std::vector<std::string> all;
  for (const char* before : {"", "SCZ", "ICZ", "SUz", "STPZ", "SCTPz", "SUP"}) {
    for (const char* loss : {"S", "I"}) extend(all, std::string(before) + loss, 3);
  }
  for (const char* before : {"U", "T", "P", "C"}) extend(all, before, 2);
  std::erase_if(all, adds_to_stepped);
  return all;
}

double number_of(const std::string& text) { return std::strtod(text.c_str(), nullptr); }

TEST(GradScalerInterop, IsRightOrRefusesInEveryOrderOfCalls) {
  const testing::TemporaryFolder folder;
  const auto all = sequences();
  std::ofstream file(folder / "sequences");
  for (const auto& calls : all) file << calls << '\n';
  file.close();
  std::istringstream printed(testing::run_python("grad_scaler_peer.py", {(folder / "sequences").string()}));
  int same_as_python = 0, better = 0, refused_by_both = 0, refused = 0;
  for (const auto& calls : all) {
    SCOPED_TRACE(calls);
    State python;
    std::string weight, gradient;
    ASSERT_TRUE(printed >> python.calls >> weight >> gradient >> python.scale);
    python.weight = number_of(weight);
    if (gradient != "none") python.gradient = number_of(gradient);
    const State truth = outcome_of(false, calls), ours = outcome_of(true, calls);
    const bool scaled = std::string("UCT").find(calls.back()) == std::string::npos;
    const auto right = [&](const State& state) {
      return state.calls == calls.size() && state.weight == truth.weight &&
             (scaled || same(state.gradient, truth.gradient));
    };
    if (ours.calls == calls.size()) {
      EXPECT_TRUE(right(ours)) << ours.weight << " for " << truth.weight;
    }
    if (right(python)) {
      EXPECT_TRUE(right(ours)) << "refused at call " << ours.calls;
      EXPECT_EQ(ours.scale, python.scale);
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
  EXPECT_GT(refused, 10) << "PyTorch is wrong in silence";
}

}  // namespace
}  // namespace lockstep
