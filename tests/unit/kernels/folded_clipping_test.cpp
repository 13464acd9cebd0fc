// Clipping whose factor the optimizer's step multiplies gradients by, on the emulator.

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "lockstep/train/callbacks.hpp"
#include "unit/kernels/emulated_kernels.hpp"
#include "unit/train/small_trainings.hpp"

namespace lockstep {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

/// Sees the gradients of the steps.
class Looking final : public TrainerCallback {
 public:
  void on_pre_optimizer_step(CallbackContext& event) override {
    at::Tensor squares = at::zeros({}, at::kDouble);
    for (const auto& entry : event.trainer.model().parameters())
      squares += entry.tensor.grad().to(at::kDouble).square().sum();
    norms.push_back(squares.sqrt().item<double>());
  }
  std::vector<double> norms;
};

struct Trained {
  Outcome outcome;
  std::map<std::string, int> launches;
};

Trained trained(double max_norm, const std::shared_ptr<TrainerCallback>& callback) {
  EmulatedKernels emulated(1);
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.max_grad_norm = max_norm;
  args.logging_steps = 1;
  Outcome outcome = train_on(1, args, [&](const Accelerator&) {
    TrainerComponents parts = plain_parts();
    parts.callbacks = {callback};
    return parts;
  });
  return {std::move(outcome), emulated.launches()};
}

/// The same bits as with clipping in a pass of its own, which a callback of the program's asks for, because
/// it may look at the gradients.
TEST(FoldedClipping, ChangesNoResults) {
  for (const double max_norm : {0.05, 100.0}) {
    SCOPED_TRACE(max_norm);
    const auto looking = std::make_shared<Looking>();
    const Trained folded = trained(max_norm, std::make_shared<MemoryCallback>()),
                  apart = trained(max_norm, looking);
    EXPECT_EQ(folded.launches, apart.launches);
    EXPECT_GT(folded.launches.at("adam<true, false, false>"), 0);
    ASSERT_EQ(folded.outcome.weights.size(), apart.outcome.weights.size());
    for (std::size_t i = 0; i < apart.outcome.weights.size(); ++i)
      EXPECT_TRUE(at::equal(folded.outcome.weights[i], apart.outcome.weights[i])) << i;
    EXPECT_EQ(folded.outcome.logged("grad_norm"), apart.outcome.logged("grad_norm"));
    ASSERT_FALSE(looking->norms.empty());
    for (const double norm : looking->norms) EXPECT_LE(norm, max_norm * 1.0001);
  }
  const Trained clipped = trained(0.05, std::make_shared<MemoryCallback>()),
                unclipped = trained(0, std::make_shared<MemoryCallback>());
  EXPECT_FALSE(at::equal(clipped.outcome.weights[0], unclipped.outcome.weights[0]));
}

}  // namespace
}  // namespace lockstep
