#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/models/dpo.hpp"
#include "lockstep/train/elastic.hpp"

namespace lockstep::models {
namespace {

constexpr const char* kPreferenceNames[] = {"rewards/chosen",  "rewards/rejected", "rewards/accuracies",
                                            "rewards/margins", "logps/chosen",     "logps/rejected"};

/// The sums over a batch's pairs, and their number: float64 [7], on its device.
at::Tensor sums_of(const Batch& outputs) {
  const at::Tensor &chosen = outputs["rewards/chosen"], &rejected = outputs["rewards/rejected"];
  const at::Tensor all =
      at::stack({chosen, rejected, chosen.gt(rejected).to(chosen.scalar_type()), chosen - rejected,
                 outputs["logps/chosen"], outputs["logps/rejected"], at::ones_like(chosen)});
  return all.to(at::kDouble).sum(1);
}

/// The sums over the ranks, on the group's device. *Collective*.
at::Tensor sums_of_all(const ProcessGroup& group, const at::Tensor& sums) {
  at::Tensor all = sums.defined()
                       ? sums.detach().to(group.device(), at::kDouble, /*non_blocking=*/false, /*copy=*/true)
                       : at::zeros({7}, at::TensorOptions(at::kDouble).device(group.device()));
  if (group.size() > 1) group.all_reduce(all);
  return all;
}

/// None if there are no pairs.
LogValues means_of(const at::Tensor& sums) {
  const at::Tensor host = sums.to(at::kCPU);
  const auto* const values = host.const_data_ptr<double>();
  LogValues means;
  if (values[6] == 0) return means;
  for (std::size_t i = 0; i < std::size(kPreferenceNames); ++i)
    means.emplace_back(kPreferenceNames[i], values[i] / values[6]);
  return means;
}

class PreferenceMetrics final : public EvaluationMetrics {
 public:
  void reset() override { sums_ = at::Tensor(); }
  void update(const Batch& outputs, const Batch& /*batch*/) override {
    const at::Tensor more = sums_of(outputs);
    sums_ = sums_.defined() ? sums_ + more.to(sums_.device()) : more;
  }
  Metrics compute(const ProcessGroup& group) override { return means_of(sums_of_all(group, sums_)); }
  std::vector<std::string> names() const override {
    return {std::begin(kPreferenceNames), std::end(kPreferenceNames)};
  }

 private:
  at::Tensor sums_;
};

TrainingArguments with_labels(TrainingArguments args) {
  if (args.label_smoothing_factor > 0)
    throw UsageError(
        "DpoTrainer: label_smoothing_factor smooths the labels of tokens: for pairs whose order is "
        "uncertain, set "
        "DpoOptions::label_smoothing");
  if (args.cuda_graphs == CudaGraphs::on)
    throw UsageError(
        "DpoTrainer: cuda_graphs is on, but steps cannot be recorded: their sums would stay the same");
  args.cuda_graphs = CudaGraphs::off;
  if (args.label_names.empty()) args.label_names = {"chosen_labels", "rejected_labels"};
  return args;
}

}  // namespace

ComputeMetrics dpo_metrics() { return std::make_shared<PreferenceMetrics>(); }

/// The sums over the steps since the last log: of this rank, or, in a job that replaces lost ranks, of all
/// ranks, so that nothing is lost with one. A recovery goes back to the end of a step, and may log it again,
/// so they are cleared by the next step that is made.
class DpoTrainer::Sums final : public Checkpointable {
 public:
  explicit Sums(ProcessGroup group)
      : group_(std::move(group)), is_shared_(is_elastic() && group_.size() > 1 && group_.device().is_cpu()) {}

  void reset() {
    sums_ = step_ = at::Tensor();
    is_logged_ = false;
  }
  void begin_step() { step_ = at::Tensor(); }
  void add(const Batch& outputs) {
    const at::Tensor more = sums_of(outputs);
    step_ = step_.defined() ? step_ + more : more;
  }
  /// Before the optimizer steps.
  void share_step() {
    if (is_shared_) step_ = sums_of_all(group_, step_);
  }
  /// After the optimizer has stepped.
  void keep_step() {
    const bool begins = std::exchange(is_logged_, false) || !sums_.defined();
    if (step_.defined()) sums_ = begins ? step_ : sums_ + step_;
  }
  LogValues log() {
    is_logged_ = true;
    return means_of(total());
  }

  SafeTensors state_dict() const override {
    SafeTensors state;
    state.tensors.emplace("sums", total().to(at::kCPU));
    if (is_logged_) state.metadata.emplace(kLogged, "true");
    return state;
  }
  /// The sum over the ranks is one rank's from now on, unless each rank has it.
  void load_state_dict(const SafeTensors& state) override {
    const auto found = state.tensors.find("sums");
    if (found == state.tensors.end() || found->second.sizes() != at::IntArrayRef(7))
      throw DataError("the checkpoint's sums for the log of DPO do not fit");
    const bool has_it = is_shared_ || group_.rank() == 0;
    sums_ = has_it ? found->second.to(group_.device(), at::kDouble) : at::Tensor();
    is_logged_ = state.metadata.contains(kLogged);
  }

 private:
  static constexpr const char* kLogged = "logged";

  /// On a rank that replaces another one they are empty. *Collective*, unless each rank has the sums of all.
  at::Tensor total() const {
    if (!is_shared_) return sums_of_all(group_, sums_);
    return sums_.defined() ? sums_.clone()
                           : at::zeros({7}, at::TensorOptions(at::kDouble).device(group_.device()));
  }

  ProcessGroup group_;
  bool is_shared_;
  at::Tensor sums_, step_;
  bool is_logged_ = false;
};

/// Registers the sums once the training is prepared, and tells them of its steps.
class DpoTrainer::Registration final : public TrainerCallback {
 public:
  explicit Registration(std::shared_ptr<Sums> sums) : sums_(std::move(sums)) {}
  void on_prepare(CallbackContext& event) override {
    sums_->reset();
    event.trainer.accelerator().register_for_checkpointing("dpo", *sums_);
  }
  void on_step_begin(CallbackContext& /*event*/) override { sums_->begin_step(); }
  void on_pre_optimizer_step(CallbackContext& /*event*/) override { sums_->share_step(); }
  void on_optimizer_step(CallbackContext& /*event*/) override { sums_->keep_step(); }

 private:
  std::shared_ptr<Sums> sums_;
};

DpoTrainer::DpoTrainer(const Accelerator& accelerator, TrainingArguments args, TrainerComponents parts)
    : Trainer(accelerator, with_labels(std::move(args)), std::move(parts)),
      sums_(std::make_shared<Sums>(accelerator.process_group())) {
  add_callback(std::make_shared<Registration>(sums_));
}

Loss DpoTrainer::compute_loss(const Batch& outputs, const Batch& batch) {
  if (at::GradMode::is_enabled()) sums_->add(outputs);
  return Trainer::compute_loss(outputs, batch);
}

double DpoTrainer::floating_point_operations(const Batch& batch) {
  double operations = 0;
  for (const char* name : {"chosen_ids", "rejected_ids"}) {
    if (batch.contains(name))
      operations += Trainer::floating_point_operations(Batch{{"input_ids", batch[name]}});
  }
  return operations;
}

void DpoTrainer::log(LogValues values) {
  const bool is_of_steps =
      std::any_of(values.begin(), values.end(), [](const auto& value) { return value.first == "loss"; });
  if (is_of_steps)
    for (auto& mean : sums_->log()) values.push_back(std::move(mean));
  Trainer::log(std::move(values));
}

}  // namespace lockstep::models
