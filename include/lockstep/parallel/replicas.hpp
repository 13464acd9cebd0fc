#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep::parallel {

/// Keeps the tensors of replicas equal to those of a source module, and adds the replicas' gradients to it.
/// Use it through Replicas.
class ReplicaLinks {
 public:
  struct Tensors {
    std::vector<NamedTensor> parameters;
    std::vector<NamedTensor> buffers;
  };

  ReplicaLinks();
  ~ReplicaLinks();
  ReplicaLinks(ReplicaLinks&&) noexcept;
  ReplicaLinks& operator=(ReplicaLinks&&) noexcept;

  /// Throws UsageError, which names the first one, if a tensor of the source is not on `device`.
  static void check_device(const Tensors& source, const at::Device& device);

  /// Copies the parameters that have changed since the last call, and all buffers, to replica number
  /// `replica` (from 0, the source not counted). A parameter counts as changed if its version differs, or if
  /// it has or had a gradient: LibTorch's SGD and batch norm change tensors without incrementing versions.
  /// Throws UsageError if names, shapes or dtypes differ.
  void refresh(std::size_t replica, const Tensors& source, const Tensors& own);

  /// Makes the gradients of the source's parameters the sum over the replicas. Call it after refresh() of
  /// each.
  void link(const Tensors& source, const std::vector<Tensors>& replicas);

  /// The next refresh() copies everything.
  void forget();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Throws UsageError: a module without its own clone() needs a function that creates replicas.
[[noreturn]] void refuse_clone(const std::exception& reason);

template <class Module>
ReplicaLinks::Tensors tensors_of(Module& module) {
  return {named_parameters_of(module), named_buffers_of(module)};
}

/// A copy of `source`: clone() of a `torch::nn::Cloneable` on `device`, deepcopy() of TorchScript. *Local*.
/// Throws UsageError for a module that has neither.
template <class Module>
Module copy_module(Module& source, const at::Device& device) {
  auto& object = module_of(source);
  if constexpr (requires { object.deepcopy(); }) {
    return object.deepcopy();  // With a device it would share what is already on that device.
  } else {
    try {
      return Module(
          std::dynamic_pointer_cast<std::remove_reference_t<decltype(object)>>(object.clone(device)));
    } catch (const std::exception& error) {
      refuse_clone(error);
    }
  }
}

/// Copies training or evaluation mode, submodule by submodule, from `source`. A frozen TorchScript module has
/// no modes.
template <class Module>
void copy_modes(Module& source, Module& replica) {
  auto& from = module_of(source);
  auto& to = module_of(replica);
  if (to.is_training() != from.is_training()) to.train(from.is_training());
  if constexpr (requires { from.modules(false); }) {
    const auto parts = from.modules(false), copies = to.modules(false);
    for (std::size_t i = 0; i < parts.size() && i < copies.size(); ++i)
      copies[i]->train(parts[i]->is_training());
  }
}

/// Copies of a module on several devices, which are kept and updated instead of created in each step. The
/// first is the module itself, which gets the gradients of the others. One thread at a time.
template <class Module>
class Replicas {
 public:
  /// Creates a replica, with any values, on any device; called once per device except the first.
  using Make = std::function<Module()>;

  /// `devices` may contain a device several times. Without `make`, copy_module creates the replicas. *Local*.
  /// Throws UsageError if there are no devices, and as copy_module.
  Replicas(Module source, const std::vector<at::Device>& devices, const Make& make = {})
      : devices_(devices), modules_{std::move(source)} {
    for (std::size_t i = 1; i < devices.size(); ++i) {
      modules_.push_back(make ? make() : copy_module(modules_.front(), devices[i]));
      module_of(modules_.back()).to(devices[i]);
    }
  }

  /// The replicas; the first `count` of them have the source's current values and modes. Copies all buffers,
  /// and the parameters that may have changed since the last time (see ReplicaLinks::refresh); several are
  /// combined into one transfer between devices. *Local*. Throws UsageError if the source is no longer on its
  /// device or has other tensors than before.
  std::vector<Module>& ready(std::size_t count) {
    const auto source = tensors_of(modules_.front());
    ReplicaLinks::check_device(source, devices_.front());
    std::vector<ReplicaLinks::Tensors> others;
    for (std::size_t i = 1; i < count; ++i) {
      others.push_back(tensors_of(modules_[i]));
      links_.refresh(i - 1, source, others.back());
      copy_modes(modules_.front(), modules_[i]);
    }
    links_.link(source, others);
    return modules_;
  }

  /// Call it if the source has changed without a gradient and without incrementing versions (memory written
  /// through data() or a pointer): the next ready() copies everything. *Local*.
  void forget() { links_.forget(); }

  Module& source() { return modules_.front(); }
  const Module& source() const { return modules_.front(); }

 private:
  std::vector<at::Device> devices_;
  std::vector<Module> modules_;
  ReplicaLinks links_;
};

/// `module` and copies of it on the other devices: torch.nn.parallel.replicate, but kept. See Replicas.
template <class Module>
Replicas<Module> replicate(Module module, const std::vector<at::Device>& devices,
                           const typename Replicas<Module>::Make& make = {}) {
  return Replicas<Module>(std::move(module), devices, make);
}

}  // namespace lockstep::parallel
