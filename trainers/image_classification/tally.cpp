#include "tally.hpp"

#include <torch/types.h>

#include "lockstep/core/error.hpp"

namespace {

enum { kSamples, kLoss, kCorrect, kSums };
constexpr const char* kName = "sums";

}  // namespace

Tally::Tally(const lockstep::Accelerator& accelerator)
    : accelerator_(accelerator),
      sums_(torch::zeros({kSums}, at::TensorOptions(accelerator.device()).dtype(torch::kDouble))) {}

void Tally::add(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& mean_loss) {
  const torch::NoGradGuard no_grad;
  const auto rows = static_cast<double>(labels.size(0));
  sums_[kSamples] += rows;
  sums_[kLoss] += mean_loss * rows;
  sums_[kCorrect] += (logits.argmax(1) == labels).sum();
}

void Tally::clear() { sums_.zero_(); }

Tally Tally::of_all_ranks() const {
  Tally all(accelerator_);
  all.sums_ = accelerator_.reduce(sums_);
  return all;
}

double Tally::loss() const { return (sums_[kLoss] / sums_[kSamples]).item<double>(); }
double Tally::accuracy() const { return (sums_[kCorrect] / sums_[kSamples]).item<double>(); }

lockstep::SafeTensors Tally::state_dict() const {
  return {.tensors = {{kName, accelerator_.gather(sums_.unsqueeze(0))}}, .metadata = {}};
}

void Tally::load_state_dict(const lockstep::SafeTensors& state) {
  const auto found = state.tensors.find(kName);
  if (found == state.tensors.end() || found->second.dim() != 2 || found->second.size(1) != kSums)
    throw lockstep::DataError("the checkpoint has no sums of the epoch, one row for each rank");
  const at::Tensor& rows = found->second;
  // With another number of ranks only the total matters: rank 0 gets it.
  const bool same_ranks = rows.size(0) == accelerator_.num_processes();
  clear();
  if (same_ranks) sums_.copy_(rows[accelerator_.process_index()]);
  if (!same_ranks && accelerator_.is_main_process()) sums_.copy_(rows.sum(0));
}
