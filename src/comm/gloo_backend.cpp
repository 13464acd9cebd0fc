#include "gloo_backend.hpp"

#include <gloo/context.h>
#include <signal.h>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <mutex>
#include <sstream>

#include "list_all_to_all.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

using c10d::Work;
using WorkPointer = c10::intrusive_ptr<Work>;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;

/// Gloo, with the start of an operation guarded by a lock of the whole process. LibTorch 2.11 enters every
/// operation into one flight recorder, whose table of groups it changes without a lock
/// (FlightRecorder::recordWithResetEnabled), so that two groups used in two threads can crash. Starting an
/// operation never waits for a peer, so the lock is held briefly.
class GuardedGloo final : public c10d::ProcessGroupGloo {
 public:
  using Base = c10d::ProcessGroupGloo;
  using Base::Base;

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return guarded([&] { return Base::broadcast(tensors, options); });
  }
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return guarded([&] { return Base::allreduce(tensors, options); });
  }
  WorkPointer allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return guarded([&] { return Base::allreduce_sparse(tensors, options); });
  }
  WorkPointer allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return guarded([&] { return Base::allreduce_coalesced(tensors, options); });
  }
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return guarded([&] { return Base::reduce(tensors, options); });
  }
  WorkPointer allgather(TensorLists& outputs, Tensors& inputs,
                        const c10d::AllgatherOptions& options) override {
    return guarded([&] { return Base::allgather(outputs, inputs, options); });
  }
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& options) override {
    return guarded([&] { return Base::_allgather_base(output, input, options); });
  }
  WorkPointer allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& options) override {
    return guarded([&] { return Base::allgather_coalesced(outputs, inputs, options); });
  }
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) override {
    return guarded([&] { return Base::allgather_into_tensor_coalesced(outputs, inputs, options); });
  }
  WorkPointer gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    return guarded([&] { return Base::gather(outputs, inputs, options); });
  }
  WorkPointer scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override {
    return guarded([&] { return Base::scatter(outputs, inputs, options); });
  }
  WorkPointer reduce_scatter(Tensors& outputs, TensorLists& inputs,
                             const c10d::ReduceScatterOptions& options) override {
    return guarded([&] { return Base::reduce_scatter(outputs, inputs, options); });
  }
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override {
    return guarded([&] { return Base::_reduce_scatter_base(output, input, options); });
  }
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& options) override {
    return guarded([&] { return Base::reduce_scatter_tensor_coalesced(outputs, inputs, options); });
  }
  WorkPointer barrier(const c10d::BarrierOptions& options) override {
    return guarded([&] { return Base::barrier(options); });
  }
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                            std::vector<std::int64_t>& input_splits,
                            const c10d::AllToAllOptions& options) override {
    return guarded([&] { return Base::alltoall_base(output, input, output_splits, input_splits, options); });
  }
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    return list_all_to_all(*this, outputs, inputs, options);  // c10d's Gloo has none.
  }
  WorkPointer send(Tensors& tensors, int destination, int tag) override {
    return guarded([&] { return Base::send(tensors, destination, tag); });
  }
  WorkPointer recv(Tensors& tensors, int source, int tag) override {
    return guarded([&] { return Base::recv(tensors, source, tag); });
  }
  WorkPointer recvAnysource(Tensors& tensors, int tag) override {
    return guarded([&] { return Base::recvAnysource(tensors, tag); });
  }

  /// Of c10d's Gloo it does nothing; here it closes the connections, so that the others' operations fail.
  void abort() override {
    for (const auto& context : contexts_) context->closeConnections();
  }

 private:
  template <class Start>
  static WorkPointer guarded(const Start& start) {
    const std::lock_guard lock(mutex_);
    return start();
  }

  inline static std::recursive_mutex mutex_;  // Recursive: some of Gloo's operations are made of others.
};

using Devices = std::vector<std::shared_ptr<::gloo::transport::Device>>;

/// Bound to one address, or to the interfaces named: not to every interface, and not to whatever the host's
/// own name happens to resolve to. `interfaces` is a comma-separated list, as in PyTorch.
Devices make_devices(const std::string& interfaces, const std::string& address) {
  Devices devices;
  std::istringstream names(interfaces);
  for (std::string name; std::getline(names, name, ',');) {
    if (!name.empty()) devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(name));
  }
  if (devices.empty()) {
    devices.push_back(
        c10d::ProcessGroupGloo::createDeviceForHostname(address.empty() ? "127.0.0.1" : address));
  }
  return devices;
}

std::string chosen_interfaces(const ProcessGroupOptions& options, int size) {
  if (size == 1) return "";  // A world of one needs no network.
  if (!options.network_interface.empty()) return options.network_interface;
  return find_variable(process_environment(), "GLOO_SOCKET_IFNAME").value_or("");
}

/// Gloo takes the certificates, and then opens connections that use none of them.
void refuse_false_encryption() {
  const auto transport = find_variable(process_environment(), "GLOO_DEVICE_TRANSPORT");
  if (!transport || *transport != "TCP_TLS") return;
  throw UsageError(
      "GLOO_DEVICE_TRANSPORT=TCP_TLS does not encrypt: LibTorch's Gloo sends plain text all the same. Unset "
      "it, "
      "and use a network that others do not reach, or an encrypted one (WireGuard, IPsec)");
}

/// Gloo writes to its connections in a way (writev) that ends the process by SIGPIPE, without a word, where
/// the other end has just gone; without the signal it is an error like any other. What the program itself has
/// chosen for the signal stays.
void make_broken_connections_errors() {
  struct sigaction action {};
  if (sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) signal(SIGPIPE, SIG_IGN);
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                    int size, const ProcessGroupOptions& options,
                                                    const std::string& address) {
  refuse_false_encryption();
  if (size > 1) make_broken_connections_errors();
  auto gloo = c10d::ProcessGroupGloo::Options::create(options.timeout);
  gloo->devices = make_devices(chosen_interfaces(options, size), address);
  return c10::make_intrusive<GuardedGloo>(store, rank, size, gloo);
}

}  // namespace lockstep::comm
