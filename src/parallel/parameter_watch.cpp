#include "parallel/parameter_watch.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lockstep/core/error.hpp"

namespace lockstep::parallel {
namespace {

std::string form_text(at::IntArrayRef sizes, const at::TensorOptions& options) {
  return fmt::format("{} [{}] on {}", c10::toString(c10::typeMetaToScalarType(options.dtype())),
                     fmt::join(sizes, ", "), options.device().str());
}

}  // namespace

ParameterWatch::ParameterWatch(const std::vector<NamedTensor>& all, const std::vector<NamedTensor>& trained)
    : trained_(trained) {
  for (const auto& entry : trained) {
    known_.emplace(entry.tensor.unsafeGetTensorImpl(), true);
    const bool is_dense = entry.tensor.is_non_overlapping_and_dense();
    forms_.push_back({entry.tensor.sizes().vec(),
                      is_dense ? entry.tensor.strides().vec() : std::vector<std::int64_t>(),
                      entry.tensor.options()});
  }
  for (const auto& entry : all) {
    if (!entry.tensor.defined()) continue;
    if (known_.emplace(entry.tensor.unsafeGetTensorImpl(), false).second) untrained_.push_back(entry.tensor);
  }
}

bool ParameterWatch::is_covered(const at::Tensor& parameter) const {
  if (!parameter.defined() || !parameter.requires_grad()) return true;
  const auto found = known_.find(parameter.unsafeGetTensorImpl());
  return found != known_.end() && found->second;
}

void ParameterWatch::check(const std::vector<at::Tensor>& current, const NamesOfParameters& names,
                           TimedReducer& reducer) {
  const auto covered = [this](const at::Tensor& parameter) { return is_covered(parameter); };
  if (!std::all_of(current.begin(), current.end(), covered)) refuse(names());
  check_forms(reducer);
}

void ParameterWatch::refuse(const std::vector<NamedTensor>& now) const {
  std::vector<std::string> unfrozen, fresh;
  for (const auto& entry : now) {
    if (is_covered(entry.tensor)) continue;
    const bool is_known = known_.contains(entry.tensor.unsafeGetTensorImpl());
    (is_known ? unfrozen : fresh).push_back("'" + entry.name + "'");
  }
  std::string text;
  if (!unfrozen.empty())
    text =
        fmt::format("{} did not require a gradient when the module was wrapped", fmt::join(unfrozen, ", "));
  if (!fresh.empty()) {
    text += fmt::format("{}{} {} registered after the module was wrapped", text.empty() ? "" : "; ",
                        fmt::join(fresh, ", "), fresh.size() == 1 ? "was" : "were");
  }
  throw UsageError(
      text +
      ": their gradients would not be averaged, and the ranks' values would diverge. Set requires_grad "
      "before wrapping (or preparing) the module, or wrap it again: make a new "
      "DistributedDataParallel on every rank");
}

void ParameterWatch::check_forms(TimedReducer& reducer) {
  std::size_t frozen = 0;
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    const auto& [name, tensor] = trained_[i];
    const Form& form = forms_[i];
    if (tensor.dtype() != form.options.dtype() || tensor.device() != form.options.device() ||
        tensor.sizes() != at::IntArrayRef(form.sizes)) {
      throw UsageError(fmt::format(
          "parameter '{}' was {} when the module was wrapped, and is {} now. Convert, move or resize a "
          "module "
          "before wrapping it, or wrap it again: make a new DistributedDataParallel on every rank",
          name, form_text(form.sizes, form.options), form_text(tensor.sizes(), tensor.options())));
    }
    const bool has_strides = form.strides.size() == form.sizes.size();
    if (has_strides && tensor.strides() != at::IntArrayRef(form.strides)) {
      const at::NoGradGuard no_grad;
      const at::Tensor values = at::empty_strided(form.sizes, form.strides, tensor.detach().options());
      tensor.set_data(values.copy_(tensor.detach()));
    }
    if (tensor.requires_grad()) {
      reducer.follow(i);
    } else {
      ++frozen;
    }
  }
  frozen_.clear();
  if (frozen == 0 || frozen == trained_.size()) return;
  for (const auto& entry : trained_) {
    if (!entry.tensor.requires_grad())
      frozen_ += fmt::format("{}'{}'", frozen_.empty() ? "" : ", ", entry.name);
  }
}

}  // namespace lockstep::parallel
