#include "comm/transport/gloo_connection.hpp"

#include <ATen/ops/from_blob.h>
#include <gloo/common/error.h>
#include <gloo/context.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <signal.h>

#include <mutex>
#include <sstream>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "comm/backend/operation_queue.hpp"
#include "comm/c10d_handles.hpp"
#include "comm/errors.hpp"
#include "comm/transport/tensor_memory.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "net/address.hpp"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Devices = std::vector<std::shared_ptr<::gloo::transport::Device>>;
using Milliseconds = GlooConnection::Milliseconds;
using Tensors = std::vector<at::Tensor>;
using shm::Dtype;
using shm::Elements;
using shm::Reduction;

/// c10d's Gloo does not let go of its connections before it is destroyed, which waits for its operations, and
/// LibTorch 2.11 has no public way to close them: ProcessGroupGloo overrides neither abort() nor shutdown(),
/// setTimeout() does not reach an operation that waits, and a Device's shutdown() stops its thread and leaves
/// the connections open. So this derived class implements Backend::abort() itself.
class ClosableGloo final : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;
  void abort() override {
    for (const auto& context : contexts_) context->closeConnections();
  }
};

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
      "it, and use a network that others do not reach, or an encrypted one (WireGuard, IPsec)");
}

/// Gloo writes to its connections in a way (writev) that ends the process by SIGPIPE, without a word, where
/// the other end has just gone; without the signal it is an error like any other. What the program itself has
/// chosen for the signal stays.
///
/// A handler that does nothing, for programs that this one starts: they would inherit it if the signal were
/// ignored.
void make_broken_connections_errors() {
  struct sigaction action {};
  if (sigaction(SIGPIPE, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;
  sigaction(SIGPIPE, &action, nullptr);
}

/// Gloo has one type for all of its failures.
template <class Body>
void with_typed_timeout(Milliseconds timeout, const Body& body) {
  const auto begun = Clock::now();
  try {
    body();
  } catch (const ::gloo::Exception& error) {
    if (Clock::now() - begun < timeout) throw;
    throw LibraryTimeout(error.what());
  }
}

/// LibTorch 2.11 enters every operation into one flight recorder, whose table of groups it changes without a
/// lock (FlightRecorder::recordWithResetEnabled), so that two groups used in two threads can crash. Starting
/// an operation never waits for a peer: one lock of the whole process is held briefly.
template <class Start>
GlooConnection::WorkPointer started(const Start& start) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return start();
}

c10d::ReduceOp c10d_op(Reduction reduction, Dtype dtype) {
  if (reduction == Reduction::avg) reduction = Reduction::sum;  // Divided afterwards.
  if (dtype != Dtype::boolean) return static_cast<c10d::ReduceOp::RedOpType>(reduction);
  // Of bytes of 0 and 1 a sum would be 2.
  if (reduction == Reduction::sum) reduction = Reduction::max;
  if (reduction == Reduction::product) reduction = Reduction::min;
  return static_cast<c10d::ReduceOp::RedOpType>(reduction);
}

at::Tensor bytes_of(const void* data, std::size_t bytes) { return view_of(data, {bytes, Dtype::bytes}); }

template <class Buffers>
Tensors bytes_of_each(const Buffers& buffers, std::size_t bytes) {
  Tensors views;
  for (const void* buffer : buffers) views.push_back(bytes_of(buffer, bytes));
  return views;
}

/// c10d's options of an operation; 0 keeps its own default, which is the connection's.
template <class Options>
Options within(Milliseconds timeout) {
  Options options;
  if (timeout > Milliseconds(0)) options.timeout = timeout;
  return options;
}

}  // namespace

at::Tensor view_of(const void* data, Elements elements) {
  return at::from_blob(const_cast<void*>(data), {static_cast<std::int64_t>(elements.count)},
                       at::TensorOptions().dtype(scalar_type_of(elements.dtype)));
}

std::string offered_address(const Store& store, const ProcessGroupOptions& options, int size) {
  std::istringstream names(chosen_interfaces(options, size));
  std::string wanted;
  ifaddrs* first = nullptr;
  if (!std::getline(names, wanted, ',') || getifaddrs(&first) != 0) return store.local_address();
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> all(first, &freeifaddrs);
  for (const ifaddrs* one = all.get(); one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || wanted != one->ifa_name) continue;
    const int family = one->ifa_addr->sa_family;
    if (family == AF_INET) return net::Address(one->ifa_addr, sizeof(sockaddr_in)).host();
    if (family == AF_INET6) return net::Address(one->ifa_addr, sizeof(sockaddr_in6)).host();
  }
  return store.local_address();
}

GlooConnection::GlooConnection(const Store& store, int rank, int size, const ProcessGroupOptions& options)
    : timeout_(options.timeout) {
  refuse_false_encryption();
  if (size > 1) make_broken_connections_errors();
  auto settings = c10d::ProcessGroupGloo::Options::create(options.timeout);
  settings->devices = make_devices(chosen_interfaces(options, size), store.local_address());
  with_typed_timeout(timeout_, [&] {
    gloo_ = c10::make_intrusive<ClosableGloo>(to_intrusive(store.c10d_store()), rank, size, settings);
  });
}

template <class Start>
void GlooConnection::run(Milliseconds timeout, const Start& start) {
  with_typed_timeout(timeout > Milliseconds(0) ? timeout : timeout_, [&] {
    const WorkPointer work = started(start);
    OperationQueue::let_next_begin();
    work->wait();
  });
}

template <class Carry>
void GlooConnection::reduced(void* data, Elements elements, const Carry& carry) {
  if (elements.dtype == Dtype::bytes)
    throw UsageError("Gloo cannot reduce this dtype: use integers or floating point numbers");
  const at::Tensor own = view_of(data, elements);
  const bool widened = elements.dtype == Dtype::i16;
  Tensors tensors{widened ? own.to(at::kInt) : own};
  carry(tensors);
  if (widened) own.copy_(tensors.front());
}

void GlooConnection::all_reduce(void* data, Elements elements, Reduction reduction, Milliseconds timeout) {
  auto options = within<c10d::AllreduceOptions>(timeout);
  options.reduceOp = c10d_op(reduction, elements.dtype);
  reduced(data, elements,
          [&](Tensors& tensors) { run(timeout, [&] { return gloo_->allreduce(tensors, options); }); });
}

void GlooConnection::reduce(void* data, Elements elements, Reduction reduction, int root,
                            Milliseconds timeout) {
  auto options = within<c10d::ReduceOptions>(timeout);
  options.reduceOp = c10d_op(reduction, elements.dtype);
  options.rootRank = root;
  reduced(data, elements,
          [&](Tensors& tensors) { run(timeout, [&] { return gloo_->reduce(tensors, options); }); });
}

void GlooConnection::broadcast(void* data, std::size_t bytes, int root, Milliseconds timeout) {
  auto options = within<c10d::BroadcastOptions>(timeout);
  options.rootRank = root;
  Tensors tensors{bytes_of(data, bytes)};
  run(timeout, [&] { return gloo_->broadcast(tensors, options); });
}

void GlooConnection::all_gather(const void* input, shm::Buffers outputs, std::size_t bytes,
                                Milliseconds timeout) {
  std::vector<Tensors> lists{bytes_of_each(outputs, bytes)};
  Tensors inputs{bytes_of(input, bytes)};
  run(timeout, [&] { return gloo_->allgather(lists, inputs, within<c10d::AllgatherOptions>(timeout)); });
}

void GlooConnection::all_gather(const void* input, void* output, std::size_t bytes, Milliseconds timeout) {
  at::Tensor from = bytes_of(input, bytes);
  at::Tensor to = bytes_of(output, bytes * static_cast<std::size_t>(size()));
  run(timeout, [&] { return gloo_->_allgather_base(to, from, within<c10d::AllgatherOptions>(timeout)); });
}

void GlooConnection::gather(const void* input, shm::Buffers outputs, std::size_t bytes, int root,
                            Milliseconds timeout) {
  auto options = within<c10d::GatherOptions>(timeout);
  options.rootRank = root;
  std::vector<Tensors> lists;
  if (rank() == root) lists.push_back(bytes_of_each(outputs, bytes));
  Tensors inputs{bytes_of(input, bytes)};
  run(timeout, [&] { return gloo_->gather(lists, inputs, options); });
}

void GlooConnection::scatter(shm::ConstBuffers inputs, void* output, std::size_t bytes, int root,
                             Milliseconds timeout) {
  auto options = within<c10d::ScatterOptions>(timeout);
  options.rootRank = root;
  std::vector<Tensors> lists;
  if (rank() == root) lists.push_back(bytes_of_each(inputs, bytes));
  Tensors outputs{bytes_of(output, bytes)};
  run(timeout, [&] { return gloo_->scatter(outputs, lists, options); });
}

void GlooConnection::all_to_all(const void* input, void* output, std::vector<std::int64_t> input_sizes,
                                std::vector<std::int64_t> output_sizes, Milliseconds timeout) {
  const auto whole = [](const void* data, const std::vector<std::int64_t>& sizes) {
    std::size_t bytes = 0;
    for (const auto size : sizes) bytes += static_cast<std::size_t>(size);
    return bytes_of(data, bytes);
  };
  at::Tensor from = whole(input, input_sizes), to = whole(output, output_sizes);
  run(timeout, [&] {
    return gloo_->alltoall_base(to, from, output_sizes, input_sizes, within<c10d::AllToAllOptions>(timeout));
  });
}

void GlooConnection::barrier(Milliseconds timeout) {
  run(timeout, [&] { return gloo_->barrier(within<c10d::BarrierOptions>(timeout)); });
}

GlooConnection::WorkPointer GlooConnection::send(const at::Tensor& tensor, int destination, int tag) {
  Tensors tensors{tensor};
  return started([&] { return gloo_->send(tensors, destination, tag); });
}

GlooConnection::WorkPointer GlooConnection::recv(const at::Tensor& tensor, int source, int tag) {
  Tensors tensors{tensor};
  return started(
      [&] { return source < 0 ? gloo_->recvAnysource(tensors, tag) : gloo_->recv(tensors, source, tag); });
}

void GlooConnection::wait(c10d::Work& message, Milliseconds timeout) const {
  with_typed_timeout(timeout > Milliseconds(0) ? timeout : timeout_, [&] { message.wait(timeout); });
}

void GlooConnection::close() { gloo_->abort(); }

}  // namespace lockstep::comm
