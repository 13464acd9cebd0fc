#include "tally.hpp"

#include <fmt/core.h>
#include <torch/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/train/elastic.hpp"

namespace {

using nlohmann::json;

enum { kSamples, kLoss, kCorrect, kSums };
constexpr const char* kName = "sums";
constexpr const char* kLast = "last_step";

/// As texts: JSON has no infinity.
json texts_of(const at::Tensor& sums) {
  const at::Tensor here = sums.cpu();
  json texts = json::array();
  for (int i = 0; i < kSums; ++i) texts.push_back(fmt::format("{}", here.const_data_ptr<double>()[i]));
  return texts;
}

at::Tensor sums_from(const json& texts) {
  std::vector<double> values;
  for (const auto& text : texts) values.push_back(std::stod(text.get<std::string>()));
  if (values.size() != kSums) throw lockstep::DataError("expected three sums of the epoch");
  return torch::tensor(values, torch::kDouble);
}

}  // namespace

// A recovery goes back to the end of a step, which callbacks of a rank that stays hear of once, and those of
// a new process for the first time. So what a step adds is kept apart until its end is heard: a rank that
// stays never adds a step twice, nor one that was not made, and takes the last step of the rank that is ahead
// (load_state_dict); a new process takes what that rank had before it heard of the end (load_text).

Tally::Tally(const lockstep::Accelerator& accelerator)
    : accelerator_(accelerator),
      is_shared_(lockstep::is_elastic() && accelerator.num_processes() > 1 && accelerator.device().is_cpu()),
      sums_(torch::zeros({kSums}, at::TensorOptions(accelerator.device()).dtype(torch::kDouble))),
      own_(torch::zeros_like(sums_)),
      shared_(own_),
      last_(own_) {}

void Tally::begin_step() { own_.zero_(); }

void Tally::add(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& mean_loss) {
  const torch::NoGradGuard no_grad;
  const auto rows = static_cast<double>(labels.size(0));
  own_[kSamples] += rows;
  own_[kLoss] += mean_loss * rows;
  own_[kCorrect] += (logits.argmax(1) == labels).sum();
}

void Tally::share_step() { shared_ = is_shared_ ? accelerator_.reduce(own_) : own_; }

void Tally::keep_step() { last_ = shared_; }

void Tally::end_step(std::int64_t step) {
  if (step > step_) sums_ += last_;
  step_ = step;
}

void Tally::clear() { sums_.zero_(); }

Tally Tally::of_all_ranks() const {
  Tally all(accelerator_);
  all.sums_ = is_shared_ ? sums_.clone() : accelerator_.reduce(sums_);
  return all;
}

double Tally::loss() const { return (sums_[kLoss] / sums_[kSamples]).item<double>(); }
double Tally::accuracy() const { return (sums_[kCorrect] / sums_[kSamples]).item<double>(); }

/// One row for each rank, also if each rank has the total: a job without recoveries may go on from it.
lockstep::SafeTensors Tally::state_dict() const {
  if (!is_shared_) return {.tensors = {{kName, accelerator_.gather(sums_.unsqueeze(0))}}, .metadata = {}};
  const at::Tensor rows = torch::zeros({accelerator_.num_processes(), kSums}, sums_.options());
  rows[0].copy_(sums_);
  return {.tensors = {{kName, rows}, {kLast, last_.clone()}}, .metadata = {}};
}

void Tally::load_state_dict(const lockstep::SafeTensors& state) {
  if (is_shared_ && trains_) {
    last_ = state.tensors.at(kLast).to(sums_.device());
    return;
  }
  const auto found = state.tensors.find(kName);
  if (found == state.tensors.end() || found->second.dim() != 2 || found->second.size(1) != kSums)
    throw lockstep::DataError("the checkpoint has no sums of the epoch, one row for each rank");
  const at::Tensor& rows = found->second;
  // With another number of ranks only the total matters: rank 0 gets it.
  const bool same_ranks = rows.size(0) == accelerator_.num_processes();
  clear();
  if (is_shared_) {
    sums_.copy_(rows.sum(0));
  } else if (same_ranks) {
    sums_.copy_(rows[accelerator_.process_index()]);
  } else if (accelerator_.is_main_process()) {
    sums_.copy_(rows.sum(0));
  }
}

std::string Tally::text() const {
  const json state{{kName, texts_of(sums_)}, {kLast, texts_of(last_)}, {"step", step_}};
  return state.dump(-1, ' ', false, json::error_handler_t::replace);
}

void Tally::load_text(const std::string& text) {
  try {
    const json state = json::parse(text);
    sums_.copy_(sums_from(state.at(kName)));
    last_ = sums_from(state.at(kLast)).to(sums_.device());
    step_ = state.at("step").get<std::int64_t>();
  } catch (const std::exception& error) {
    throw lockstep::DataError(fmt::format("'{}' are no sums of an epoch: {}", text, error.what()));
  }
}
