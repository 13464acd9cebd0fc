#include "parallel/fsdp/parameter_group.hpp"

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kernels/scaled_copies.hpp"
#include "kernels/weight_copies.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::parallel {
namespace {

constexpr std::int64_t kAlignmentBytes = 64;

ShardLayout layout_of(const std::vector<NamedTensor>& parameters, int ranks) {
  std::vector<std::int64_t> sizes;
  for (const auto& entry : parameters) sizes.push_back(entry.tensor.numel());
  return ShardLayout(sizes, kAlignmentBytes / parameters.front().tensor.element_size(), ranks);
}

at::Tensor part(const at::Tensor& tensor, Range range) { return tensor.narrow(0, range.begin, range.size); }

/// Makes `flat` use the memory of `buffer`, or none. Does not increment the version, so that tensors saved by
/// autograd count as unchanged.
void set_memory(const at::Tensor& flat, const at::Tensor& buffer) {
  void* const memory = buffer.defined() ? buffer.data_ptr() : nullptr;
  flat.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(memory, flat.device()));
}

/// 1 / ranks, in the form in which c10d's Reducer multiplies by it.
at::Tensor mean_factor(int ranks) {
  at::Tensor factor = c10::scalar_to_tensor(1.0 / ranks);
  factor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return factor;
}

/// The gradients, divided by the number of ranks and freed one after the other, or by one kernel for all.
void write_mean_shares(std::vector<at::Tensor> gradients, const std::vector<at::Tensor>& places, int ranks) {
  if (kernels::takes_scaled_copies(gradients, places)) {
    kernels::write_scaled_copies(gradients, places, 1.0 / ranks);
    return;
  }
  const at::Tensor factor = mean_factor(ranks);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    at::Tensor place = places[i];
    at::mul_out(place, gradients[i].to(place.scalar_type()), factor);
    gradients[i].reset();
  }
}

}  // namespace

ParameterGroup::ParameterGroup(std::vector<NamedTensor> parameters, const ShardGroups& groups,
                               const MixedPrecisionPolicy& policy, BufferPool& pool)
    : parameters_(std::move(parameters)),
      group_(groups.shard),
      replicas_(groups.replica),
      all_ranks_(groups.all.size()),
      compute_dtype_(parameters_.front().tensor.is_floating_point() && policy.param_dtype
                         ? *policy.param_dtype
                         : parameters_.front().tensor.scalar_type()),
      reduce_dtype_(policy.reduce_dtype.value_or(compute_dtype_)),
      pool_(pool),
      layout_(layout_of(parameters_, group_.size())),
      hidden_gradients_(parameters_.size()) {
  const at::NoGradGuard no_grad;
  const auto options = parameters_.front().tensor.detach().options();
  shard_ = at::zeros({layout_.shard_size()}, options);
  flat_ = at::empty({layout_.size()}, options.dtype(compute_dtype_));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].tensor;
    unsharded_parameters_.push_back(part(flat_, layout_.tensor(i)).view(parameter.sizes()));
    sharded_parameters_.push_back(part(shard_, layout_.in_shard(i, group_.rank())));
    sharded_parameters_.back().copy_(
        part(parameter.detach().reshape(-1), layout_.in_tensor(i, group_.rank())));
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].tensor.mutable_grad().reset();
    parameters_[i].tensor.set_data(sharded_parameters_[i]);
    kernels::copy_never(parameters_[i].tensor);
  }
  set_memory(flat_, {});
}

void ParameterGroup::check_sharded_storage() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, tensor] = parameters_[i];
    if (is_unsharded_ || tensor.unsafeGetTensorImpl()->storage().is_alias_of(shard_.storage())) continue;
    throw UsageError(
        "fully_shard: the parameter '" + name +
        "' was replaced or moved after sharding: move or convert a module (to()) before sharding it, and "
        "load values (torch::load, set_data) inside full_parameters()");
  }
}

void ParameterGroup::start_unshard() {
  if (buffer_.defined()) return;
  const at::NoGradGuard no_grad;
  buffer_ = pool_.take(layout_.size(), flat_.options());
  cast_shard_ = shard_.to(compute_dtype_);
  all_gather_work_ = group_.all_gather_into_tensor_async(buffer_, cast_shard_);
}

void ParameterGroup::wait_for_all_gather() {
  if (all_gather_work_) all_gather_work_->wait();
  all_gather_work_.reset();
  cast_shard_.reset();
}

void ParameterGroup::unshard() {
  if (is_unsharded_) return;
  start_unshard();
  wait_for_all_gather();
  set_memory(flat_, buffer_);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    exchange_gradient(parameters_[i].tensor, hidden_gradients_[i]);
    parameters_[i].tensor.set_data(unsharded_parameters_[i]);
  }
  is_unsharded_ = true;
}

void ParameterGroup::unshard_in_original_dtype() {
  const at::NoGradGuard no_grad;
  free_unsharded();
  originals_ = at::empty({layout_.size()}, shard_.options());
  group_.all_gather_into_tensor(originals_, shard_);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    exchange_gradient(parameters_[i].tensor, hidden_gradients_[i]);
    parameters_[i].tensor.set_data(
        part(originals_, layout_.tensor(i)).view(unsharded_parameters_[i].sizes()));
  }
  is_unsharded_ = true;
}

void ParameterGroup::reshard(bool keep) {
  if (is_unsharded_) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      parameters_[i].tensor.set_data(sharded_parameters_[i]);
      exchange_gradient(parameters_[i].tensor, hidden_gradients_[i]);
    }
    is_unsharded_ = false;
    originals_.reset();
  }
  if (!keep) free_unsharded();
}

void ParameterGroup::free_unsharded() {
  if (!buffer_.defined()) return;
  wait_for_all_gather();
  set_memory(flat_, {});
  pool_.give_back(buffer_);
}

std::string ParameterGroup::write_back_originals() {
  const at::NoGradGuard no_grad;
  std::string complaint;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, tensor] = parameters_[i];
    if (tensor.unsafeGetTensorImpl()->storage().is_alias_of(originals_.storage())) continue;
    if (tensor.sizes() == unsharded_parameters_[i].sizes()) {
      part(originals_, layout_.tensor(i)).view(unsharded_parameters_[i].sizes()).copy_(tensor);
    } else {
      complaint =
          fmt::format("parameter '{}' has the shape [{}], but was given values of the shape [{}]", name,
                      fmt::join(unsharded_parameters_[i].sizes(), ", "), fmt::join(tensor.sizes(), ", "));
    }
  }
  shard_.copy_(part(originals_, {layout_.shard_size() * group_.rank(), layout_.shard_size()}));
  return complaint;
}

at::Tensor ParameterGroup::gather(std::size_t number, const at::Tensor& part_of_rank) const {
  const at::NoGradGuard no_grad;
  const at::Tensor whole = at::zeros({layout_.tensor(number).size}, part_of_rank.options());
  part(whole, layout_.in_tensor(number, group_.rank())).copy_(part_of_rank);
  // All ranks but one have zeros there. The maximum of bytes also keeps the sign of zeros.
  if (whole.numel() > 0) group_.all_reduce(whole.view(at::kByte), ReduceOp::max);
  return whole.view(unsharded_parameters_[number].sizes());
}

at::Tensor ParameterGroup::take_part(std::size_t number, const at::Tensor& whole) const {
  if (whole.sizes() != unsharded_parameters_[number].sizes()) {
    throw DataError(fmt::format("parameter '{}' has the shape [{}], not [{}]", parameters_[number].name,
                                fmt::join(unsharded_parameters_[number].sizes(), ", "),
                                fmt::join(whole.sizes(), ", ")));
  }
  return part(whole.reshape(-1), layout_.in_tensor(number, group_.rank())).clone();
}

void ParameterGroup::keep_unsharded_gradients() {
  const at::NoGradGuard no_grad;
  for (auto& gradient : hidden_gradients_) {
    if (gradient.defined()) gradient = gradient.to(reduce_dtype_);
  }
}

void ParameterGroup::drop_unsharded_gradients() {
  for (auto& gradient : hidden_gradients_) gradient.reset();
}

bool ParameterGroup::has_gradients() const {
  return std::any_of(hidden_gradients_.begin(), hidden_gradients_.end(),
                     [](const at::Tensor& gradient) { return gradient.defined(); });
}

void ParameterGroup::start_reduce_scatter() {
  wait_for_reduce_scatter();
  const at::NoGradGuard no_grad;
  had_gradient_.resize(parameters_.size());
  gradient_buffer_ = pool_.take(layout_.size(), shard_.options().dtype(reduce_dtype_));
  std::vector<at::Tensor> gradients, places;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = hidden_gradients_[i];
    at::Tensor place = part(gradient_buffer_, layout_.tensor(i));
    if (!gradient.defined()) {
      place.zero_();
      continue;
    }
    if (gradient.layout() != at::kStrided) {
      throw UsageError("fully_shard: parameter '" + parameters_[i].name +
                       "' has a sparse gradient. Make its embedding without `sparse`");
    }
    had_gradient_[i] = 1;
    gradients.push_back(gradient.detach().reshape(-1));
    places.push_back(place);
    gradient.reset();
  }
  write_mean_shares(std::move(gradients), places, all_ranks_);
  for (const auto& gap : layout_.gaps()) part(gradient_buffer_, gap).zero_();
  reduced_ = at::empty({layout_.shard_size()}, gradient_buffer_.options());
  reduce_scatter_work_ = group_.reduce_scatter_tensor_async(reduced_, gradient_buffer_);
}

void ParameterGroup::wait_for_reduce_scatter() {
  if (!reduce_scatter_work_) return;
  reduce_scatter_work_->wait();
  reduce_scatter_work_.reset();
  pool_.give_back(gradient_buffer_);
  if (replicas_) replicas_->all_reduce(reduced_);
  if (sum_.defined()) {
    sum_.add_(reduced_);
  } else {
    sum_ = reduced_.to(shard_.scalar_type());
  }
  reduced_.reset();
}

void ParameterGroup::accumulate_sharded_gradients(std::span<const std::uint8_t> use) {
  const at::NoGradGuard no_grad;
  wait_for_reduce_scatter();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (use[i] == 0) continue;
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    const at::Tensor mine = part(sum_, layout_.in_shard(i, group_.rank()));
    if (gradient.defined()) {
      gradient.add_(mine);
    } else {
      gradient = mine;
    }
  }
  sum_.reset();
  had_gradient_.clear();
}

}  // namespace lockstep::parallel
