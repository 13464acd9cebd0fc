#include "lockstep/train/accelerator.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <nlohmann/json.hpp>

#include "accelerator_state.hpp"
#include "broadcast_tensors.hpp"
#include "gradients.hpp"
#include "lockstep/comm/cuda.hpp"
#include "lockstep/core/cluster_environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/memory.hpp"

namespace lockstep {
namespace {

using nlohmann::json;

at::Device cuda_device(const std::string& name, int index) {
  const int count = cuda_device_count();
  if (index >= 0 && index < count) return {at::kCUDA, static_cast<at::DeviceIndex>(index)};
  throw UsageError(
      "device '" + name + "' means CUDA device " + std::to_string(index) + ", but this process can use " +
      std::to_string(count) + (count == 1 ? " CUDA device" : " CUDA devices") +
      (count == 0 ? ": no driver, or a build without Lockstep's CUDA library. Ask for the CPU with 'cpu'"
                  : ": start fewer ranks on this host, or ask for the CPU with 'cpu'"));
}

/// Which of the devices that this process sees is this rank's, where the options leave it open.
int device_number(const World& world, const std::string& device) {
  const bool open = device == "auto" || device == "cuda";
  if (!open || !world.own_devices || cuda_device_count() == 0) return world.local_rank;
  return world.local_rank % cuda_device_count();
}

/// Before the first large tensors are made.
const World& with_memory_kept(const World& world, const AcceleratorOptions& options) {
  if (options.keep_memory) keep_memory(process_environment());
  return world;
}

World world_or_warning() {
  const Environment environment = process_environment();
  if (const auto warning = lonely_process_warning(environment))
    std::cerr << "lockstep: warning: " + *warning + "\n" << std::flush;
  return World::from_environment(environment);
}

ProcessGroupOptions group_options(const World& world, const AcceleratorOptions& options) {
  return {.backend = options.backend,
          .device = choose_device(options.device, device_number(world, options.device)),
          .timeout = options.timeout,
          .join_timeout = options.join_timeout};
}

json form_of(const at::Tensor& tensor) {
  return {{"dtype", c10::toString(tensor.scalar_type())},
          {"device", c10::DeviceTypeName(tensor.device().type(), /*lower_case=*/true)},
          {"sizes", tensor.sizes().vec()}};
}

std::string to_text(const json& form) {
  const std::string device = form.at("device");
  return form.at("dtype").get<std::string>() + " " + form.at("sizes").dump() +
         (device == "cpu" ? "" : " on " + device);
}

/// Throws, with each rank's form, unless all forms are equal after `relevant` took out what may differ.
template <class Relevant>
void check_forms(const char* operation, int rank, const std::vector<json>& forms, const Relevant& relevant) {
  const auto same = [&](const json& form) { return relevant(form) == relevant(forms.front()); };
  if (std::all_of(forms.begin(), forms.end(), same)) return;
  std::string text;
  for (std::size_t r = 0; r < forms.size(); ++r) {
    text += (r == 0 ? "" : "; ") + ("rank " + std::to_string(r)) + " has " + to_text(forms[r]);
  }
  throw CommunicationError("rank " + std::to_string(rank) + ": " + operation +
                           " of tensors that do not fit: " + text);
}

at::Tensor padded(const at::Tensor& tensor, std::int64_t rows) {
  if (tensor.size(0) == rows) return tensor.contiguous();
  auto sizes = tensor.sizes().vec();
  sizes[0] = rows;
  at::Tensor result = at::zeros(sizes, tensor.options());
  result.narrow(0, 0, tensor.size(0)).copy_(tensor);
  return result;
}

}  // namespace

at::Device choose_device(const std::string& name, int local_rank) {
  if (name == "cpu") return at::kCPU;
  if (name == "auto") return cuda_device_count() > 0 ? cuda_device(name, local_rank) : at::Device(at::kCPU);
  if (name == "cuda") return cuda_device(name, local_rank);
  const std::string prefix = "cuda:";
  int index = -1;
  const char* end = name.data() + name.size();
  const bool numbered =
      name.starts_with(prefix) && std::from_chars(name.data() + prefix.size(), end, index).ptr == end;
  if (!numbered || index < 0) {
    throw UsageError("'" + name +
                     "' is no device: expected auto, cpu, cuda, or cuda and a number as in cuda:0");
  }
  return cuda_device(name, index);
}

Accelerator::Accelerator(const AcceleratorOptions& options) : Accelerator(world_or_warning(), options) {}

Accelerator::Accelerator(const World& world, const AcceleratorOptions& options)
    : Accelerator(world, ProcessGroup::init(with_memory_kept(world, options), group_options(world, options)),
                  options) {}

Accelerator::Accelerator(const World& world, const ProcessGroup& group, const AcceleratorOptions& options)
    : ProcessControl(world, group, options.barrier_warning),
      GradientControl(group, options.gradients),
      Tracking(group.rank() == 0),
      state_(std::make_shared<State>(world, group, options)) {
  state_->training.set_scaler(gradients()->scaler());
  if (world.rank != group.rank() || world.world_size != group.size()) {
    throw UsageError("the world says rank " + std::to_string(world.rank) + " of " +
                     std::to_string(world.world_size) + ", but the process group says rank " +
                     std::to_string(group.rank()) + " of " + std::to_string(group.size()));
  }
}

const World& Accelerator::world() const noexcept { return state_->world; }
const ProcessGroup& Accelerator::process_group() const noexcept { return state_->group; }
const at::Device& Accelerator::device() const noexcept { return state_->group.device(); }
const DistributedDataParallelOptions& Accelerator::ddp_options() const noexcept {
  return state_->options.ddp;
}

void Accelerator::wait_for_everyone() const { state_->group.barrier(); }

MainProcessFirst Accelerator::main_process_first() const {
  return {state_->store,
          {.name = "main_process_first #" + std::to_string(++state_->main_first),
           .rank = world().rank,
           .main_rank = 0,
           .members = world().world_size,
           .timeout = process_group().timeout()}};
}

MainProcessFirst Accelerator::local_main_process_first() const {
  return {state_->store,
          {.name = "local_main_process_first #" + std::to_string(++state_->local_main_first) + " on node " +
                   std::to_string(world().group_rank),
           .rank = world().rank,
           .main_rank = world().local_main_rank(),
           .members = world().local_world_size,
           .timeout = process_group().timeout()}};
}

void Accelerator::write_line(const std::string& line) { std::cout << line << std::flush; }

at::Tensor Accelerator::gather(const at::Tensor& tensor) const {
  const at::Tensor rows = tensor.dim() == 0 ? tensor.reshape({1}) : tensor;
  if (num_processes() == 1) return rows.detach().clone();
  const auto forms = process_group().all_gather_object(form_of(rows));
  check_forms("gather", process_group().rank(), forms, [](json form) {
    form["sizes"].erase(0);
    return form;
  });
  std::int64_t most = 0;
  for (const auto& form : forms) most = std::max(most, form.at("sizes").at(0).get<std::int64_t>());
  if (most == 0) return rows.detach().clone();
  auto parts = process_group().all_gather(padded(rows.detach(), most));
  for (std::size_t r = 0; r < parts.size(); ++r) {
    parts[r] = parts[r].narrow(0, 0, forms[r].at("sizes").at(0).get<std::int64_t>());
  }
  return at::cat(parts);
}

at::Tensor Accelerator::reduce(const at::Tensor& tensor, ReduceOp op) const {
  if (num_processes() == 1) return tensor.detach().clone();
  const auto forms = process_group().all_gather_object(form_of(tensor));
  check_forms("reduce", process_group().rank(), forms, [](const json& form) { return form; });
  at::Tensor result = tensor.detach().clone(at::MemoryFormat::Contiguous);
  process_group().all_reduce(result, op);
  return result;
}

DataLoader Accelerator::shard(const DataLoader& loader) const {
  DataLoader part = loader.shard(num_processes(), process_index(), device());
  gradients()->add_loader(part.position_handle(), part.batch_size());
  state_->training.add_loader(part.position_handle());
  return part;
}

void Accelerator::save(const TensorMap& tensors, const std::filesystem::path& path) const {
  on_main_process([&] { save_file(tensors, path); });
}

void Accelerator::broadcast_from_main(const std::vector<NamedTensor>& tensors) const {
  train::broadcast_values(process_group(), tensors);
}

}  // namespace lockstep
