#include "comm/transport/gloo_transport.hpp"

#include <ATen/ops/from_blob.h>
#include <gloo/common/error.h>
#include <gloo/common/logging.h>
#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <signal.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <mutex>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "comm/backend/operation_queue.hpp"
#include "comm/c10d_handles.hpp"
#include "comm/errors.hpp"
#include "comm/transport/tensor_memory.hpp"
#include "core/text.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "net/address.hpp"

namespace lockstep::comm {
namespace {

using Devices = std::vector<std::shared_ptr<::gloo::transport::Device>>;
using Milliseconds = std::chrono::milliseconds;
using Tensors = std::vector<at::Tensor>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;
using shm::Collective;
using shm::Dtype;
using shm::Elements;
using shm::Operation;
using shm::Reduction;

/// c10d's Gloo keeps its connections until it is destroyed, and its destructor waits for its operations.
/// LibTorch 2.11 has no public way to close them: ProcessGroupGloo overrides neither abort() nor shutdown(),
/// setTimeout() does not affect an operation that waits, and a Device's shutdown() stops its thread but
/// leaves the connections open. This derived class therefore implements Backend::abort() itself.
class ClosableGloo final : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;
  void abort() override {
    for (const auto& context : contexts_) {
      fail_waits(*context);
      context->closeConnections();
    }
  }

 private:
  /// Closing the connections ends the waits of the peers, but not this rank's own. Gloo has one way to end
  /// those: when one wait of a context times out, all others fail with it. So one times out here.
  static void fail_waits(::gloo::Context& context) noexcept {
    if (context.size == 1) return;
    try {
      char byte = 0;
      context.createUnboundBuffer(&byte, sizeof byte)->waitRecv(nullptr, Milliseconds(1));
    } catch (const std::exception&) {
      // That it timed out.
    }
  }
};

/// Binds to one address or to the given interfaces, not to every interface and not to the address that the
/// host's own name resolves to. `interfaces` is a comma-separated list, as in PyTorch.
Devices make_devices(const std::string& interfaces, const std::string& address) {
  Devices devices;
  for (const auto name : split_at_commas(interfaces)) {
    if (!name.empty()) devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(std::string(name)));
  }
  if (devices.empty()) {
    devices.push_back(
        c10d::ProcessGroupGloo::createDeviceForHostname(address.empty() ? "127.0.0.1" : address));
  }
  return devices;
}

std::string chosen_interfaces(const ProcessGroupOptions& options, int size) {
  if (size == 1) return "";  // A world of size 1 needs no network.
  if (!options.network_interface.empty()) return options.network_interface;
  return find_variable(process_environment(), "GLOO_SOCKET_IFNAME").value_or("");
}

/// Gloo reads the certificates but opens unencrypted connections.
void refuse_false_encryption() {
  const auto transport = find_variable(process_environment(), "GLOO_DEVICE_TRANSPORT");
  if (!transport || *transport != "TCP_TLS") return;
  throw UsageError(
      "GLOO_DEVICE_TRANSPORT=TCP_TLS does not encrypt: LibTorch's Gloo sends plain text all the same. Unset "
      "it, and use a network that others do not reach, or an encrypted one (WireGuard, IPsec)");
}

/// If the other end of a connection has just closed, Gloo's writev() raises SIGPIPE, which would end the
/// process without a message. Without the signal it is an ordinary error. The program's own setting is kept.
///
/// Installs an empty handler instead of SIG_IGN, which child processes would inherit.
void make_broken_connections_errors() {
  struct sigaction action {};
  if (sigaction(SIGPIPE, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;
  sigaction(SIGPIPE, &action, nullptr);
}

/// The terminate handler before explain_gloo_abort().
std::terminate_handler next_terminate = nullptr;

/// Gloo's own thread throws if more bytes arrive than this rank expects, which ends the process before any
/// operation fails.
[[noreturn]] void explain_gloo_abort() {
  try {
    if (const auto failure = std::current_exception()) std::rethrow_exception(failure);
  } catch (const ::gloo::EnforceNotMet&) {
    std::cerr
        << "lockstep: Gloo ends this process: ranks called different collectives. LOCKSTEP_DEBUG=detail "
           "says which calls differ\n"
        << std::flush;
  } catch (...) {
  }
  if (next_terminate != nullptr) next_terminate();
  std::abort();
}

void explain_aborts() {
  static std::once_flag once;
  std::call_once(once, [] { next_terminate = std::set_terminate(explain_gloo_abort); });
}

/// Gloo has a single exception type for all failures; a timeout is detected by the elapsed time.
template <class Body>
void with_typed_timeout(Milliseconds timeout, const Body& body) {
  // Gloo's own clock.
  const auto begun = std::chrono::steady_clock::now();
  try {
    body();
  } catch (const ::gloo::Exception& error) {
    if (std::chrono::steady_clock::now() - begun < timeout) throw;
    throw LibraryTimeout(error.what());
  }
}

/// LibTorch 2.11 records every operation in one flight recorder and changes its table of groups without a
/// lock (FlightRecorder::recordWithResetEnabled), so that two groups used in two threads can crash. Starting
/// an operation never waits for a peer, so one lock per process, held briefly, is enough.
template <class Start>
WorkPointer started(const Start& start) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return start();
}

c10d::ReduceOp c10d_op(Reduction reduction, Dtype dtype) {
  if (reduction == Reduction::avg) reduction = Reduction::sum;  // Divided afterwards.
  if (dtype != Dtype::boolean) return static_cast<c10d::ReduceOp::RedOpType>(reduction);
  // Booleans are bytes of 0 and 1, of which a sum could be 2.
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

bool are_consecutive(shm::Buffers buffers, std::size_t bytes) {
  for (std::size_t i = 1; i < buffers.size(); ++i) {
    if (static_cast<std::byte*>(buffers[i - 1]) + bytes != buffers[i]) return false;
  }
  return !buffers.empty();
}

/// Gloo's messages end only in a wait, and only once: a second thread that waits does so for the first.
class GlooMessage final : public Message {
 public:
  GlooMessage(c10::intrusive_ptr<c10d::Backend> gloo, WorkPointer work, Milliseconds timeout)
      : gloo_(std::move(gloo)), work_(std::move(work)), timeout_(timeout) {}

  bool is_done() override {
    const std::lock_guard lock(result_mutex_);
    return ended_;
  }
  void wait(Milliseconds timeout) override {
    const std::lock_guard one_waits(wait_mutex_);
    if (!is_done()) {
      std::exception_ptr failure;
      try {
        with_typed_timeout(timeout > Milliseconds(0) ? timeout : timeout_, [&] { work_->wait(timeout); });
      } catch (...) {
        failure = std::current_exception();
      }
      const std::lock_guard lock(result_mutex_);
      failure_ = failure;
      ended_ = true;
    }
    if (const auto failure = this->failure()) std::rethrow_exception(failure);
  }
  std::exception_ptr failure() const override {
    const std::lock_guard lock(result_mutex_);
    return failure_;
  }
  int source() const override { return work_->sourceRank(); }

 private:
  c10::intrusive_ptr<c10d::Backend> gloo_;  // Kept alive while a message is in flight.
  WorkPointer work_;
  Milliseconds timeout_;
  std::mutex wait_mutex_;
  mutable std::mutex result_mutex_;
  std::exception_ptr failure_;
  bool ended_ = false;  // Successfully or not.
};

/// Parts of an all_to_all as slices of one block of memory: their own, or a copy.
class Slices {
 public:
  Slices(shm::Parts parts, std::size_t element_size) : parts_(parts) {
    for (const auto& part : parts) {
      in_one_piece_ = in_one_piece_ && static_cast<std::byte*>(parts.front().data) + bytes_ == part.data;
      sizes_.push_back(static_cast<std::int64_t>(part.count * element_size));
      bytes_ += part.count * element_size;
    }
    if (!in_one_piece_) copy_.resize(bytes_);
  }

  at::Tensor tensor() { return bytes_of(in_one_piece_ ? parts_.front().data : copy_.data(), bytes_); }
  const std::vector<std::int64_t>& sizes() const { return sizes_; }

  /// Copies from the parts (`in`) or back to them, if there is a copy.
  void copy(bool in) {
    if (in_one_piece_) return;
    std::byte* place = copy_.data();
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const auto bytes = static_cast<std::size_t>(sizes_[i]);
      if (bytes > 0) std::memcpy(in ? place : parts_[i].data, in ? parts_[i].data : place, bytes);
      place += bytes;
    }
  }

 private:
  shm::Parts parts_;
  std::vector<std::int64_t> sizes_;
  std::size_t bytes_ = 0;
  bool in_one_piece_ = true;
  std::vector<std::byte> copy_;
};

/// The address at which other ranks reach this one: that of the interface chosen for Gloo, otherwise that of
/// the store. Empty: all ranks are on this host.
std::string offered_address(const Store& store, const ProcessGroupOptions& options, int size) {
  const std::string chosen = chosen_interfaces(options, size);
  const std::string_view wanted = split_at_commas(chosen).front();
  ifaddrs* first = nullptr;
  if (wanted.empty() || getifaddrs(&first) != 0) return store.local_address();
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> all(first, &freeifaddrs);
  for (const ifaddrs* one = all.get(); one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || wanted != one->ifa_name) continue;
    const int family = one->ifa_addr->sa_family;
    if (family == AF_INET) return net::Address(one->ifa_addr, sizeof(sockaddr_in)).host();
    if (family == AF_INET6) return net::Address(one->ifa_addr, sizeof(sockaddr_in6)).host();
  }
  return store.local_address();
}

/// The timeout of the collective that this thread has begun, and its transport.
struct BegunCall {
  const GlooTransport* transport = nullptr;
  Milliseconds timeout{0};
};
thread_local BegunCall begun_call;

}  // namespace

at::Tensor view_of(const void* data, Elements elements) {
  return at::from_blob(const_cast<void*>(data), {static_cast<std::int64_t>(elements.count)},
                       at::TensorOptions().dtype(scalar_type_of(elements.dtype)));
}

std::unique_ptr<FingerprintExchange> fingerprint_exchange(const Store& store, const GroupInfo& members,
                                                          const ProcessGroupOptions& options) {
  if (members.size() == 1) return nullptr;
  return std::make_unique<FingerprintExchange>(store.with_prefix("fingerprints"), members,
                                               offered_address(store, options, members.size()), options);
}

void GlooTransport::abort(const std::string&) {
  if (fingerprints_) fingerprints_->close();
  close();
}

GlooTransport::GlooTransport(const Store& store, const GroupInfo& members, const ProcessGroupOptions& options)
    : timeout_(options.timeout) {
  refuse_false_encryption();
  if (members.size() > 1) {
    make_broken_connections_errors();
    explain_aborts();
  }
  auto settings = c10d::ProcessGroupGloo::Options::create(options.timeout);
  settings->devices = make_devices(chosen_interfaces(options, members.size()), store.local_address());
  with_typed_timeout(timeout_, [&] {
    gloo_ = c10::make_intrusive<ClosableGloo>(to_intrusive(store.c10d_store()), members.rank, members.size(),
                                              settings);
  });
}

void GlooTransport::begin(const CollectiveCall& call) {
  begun_call = {this, call.timeout};
  if (!fingerprints_ || call.label.view().empty()) return;
  fingerprints_->announce(call.text(), call.timeout);
  fingerprints_->agree(call.timeout);
}

Milliseconds GlooTransport::call_timeout() const {
  return begun_call.transport == this ? begun_call.timeout : Milliseconds(0);
}

/// Sets the call's timeout; otherwise c10d's default, which is the connection's, applies.
template <class Options>
Options GlooTransport::timed(Options options) const {
  if (call_timeout() > Milliseconds(0)) options.timeout = call_timeout();
  return options;
}

template <class Start>
void GlooTransport::wait_for(const Start& start) {
  with_typed_timeout(call_timeout() > Milliseconds(0) ? call_timeout() : timeout_, [&] {
    const WorkPointer work = started(start);
    OperationQueue::let_next_begin();
    work->wait();
  });
}

void GlooTransport::run(const Collective& collective) {
  switch (collective.operation) {
    case Operation::all_reduce:
      return all_reduce(collective);
    case Operation::reduce:
      return reduce(collective);
    case Operation::reduce_scatter:
      return reduce_scatter(collective);
    case Operation::broadcast:
      return broadcast(collective);
    case Operation::all_gather:
      return all_gather(collective);
    case Operation::gather:
      return gather(collective);
    case Operation::scatter:
      return scatter(collective);
    case Operation::all_to_all:
      return all_to_all(collective);
    case Operation::barrier:
      return barrier();
  }
}

template <class Transfer>
void GlooTransport::reduce_with(const Collective& collective, const Transfer& transfer) {
  if (collective.elements.dtype == Dtype::bytes)
    throw UsageError("Gloo cannot reduce this dtype: use integers or floating point numbers");
  const at::Tensor own = view_of(collective.own, collective.elements);
  const bool widened = collective.elements.dtype == Dtype::i16;
  Tensors tensors{widened ? own.to(at::kInt) : own};
  wait_for([&] { return transfer(tensors); });
  if (widened) own.copy_(tensors.front());
}

void GlooTransport::all_reduce(const Collective& collective) {
  const auto how =
      timed(c10d::AllreduceOptions{.reduceOp = c10d_op(collective.reduction, collective.elements.dtype)});
  reduce_with(collective, [&](Tensors& tensors) { return gloo_->allreduce(tensors, how); });
}

void GlooTransport::reduce(const Collective& collective) {
  const auto how = timed(c10d::ReduceOptions{
      .reduceOp = c10d_op(collective.reduction, collective.elements.dtype), .rootRank = collective.root});
  reduce_with(collective, [&](Tensors& tensors) { return gloo_->reduce(tensors, how); });
}

void GlooTransport::reduce_scatter(const Collective& collective) {
  const shm::Buffers inputs = collective.of_ranks;
  const std::size_t bytes = collective.elements.bytes();
  std::vector<std::byte> all(inputs.size() * bytes);
  for (std::size_t r = 0; r < inputs.size() && bytes > 0; ++r)
    std::memcpy(all.data() + r * bytes, inputs[r], bytes);
  all_reduce({.operation = Operation::all_reduce,
              .elements = {collective.elements.count * inputs.size(), collective.elements.dtype},
              .reduction = collective.reduction,
              .own = all.data()});
  if (bytes > 0)
    std::memcpy(collective.own, all.data() + static_cast<std::size_t>(gloo_->getRank()) * bytes, bytes);
}

void GlooTransport::broadcast(const Collective& collective) {
  Tensors tensors{bytes_of(collective.own, collective.elements.bytes())};
  const auto how = timed(c10d::BroadcastOptions{.rootRank = collective.root});
  wait_for([&] { return gloo_->broadcast(tensors, how); });
}

/// Outputs that are one block of memory take no copy of c10d's.
void GlooTransport::all_gather(const Collective& collective) {
  const std::size_t bytes = collective.elements.bytes();
  Tensors inputs{bytes_of(collective.own, bytes)};
  const auto how = timed(c10d::AllgatherOptions());
  if (are_consecutive(collective.of_ranks, bytes)) {
    at::Tensor all = bytes_of(collective.of_ranks.front(), bytes * collective.of_ranks.size());
    return wait_for([&] { return gloo_->_allgather_base(all, inputs.front(), how); });
  }
  std::vector<Tensors> lists{bytes_of_each(collective.of_ranks, bytes)};
  wait_for([&] { return gloo_->allgather(lists, inputs, how); });
}

void GlooTransport::gather(const Collective& collective) {
  const std::size_t bytes = collective.elements.bytes();
  std::vector<Tensors> lists;
  if (gloo_->getRank() == collective.root) lists.push_back(bytes_of_each(collective.of_ranks, bytes));
  Tensors inputs{bytes_of(collective.own, bytes)};
  const auto how = timed(c10d::GatherOptions{.rootRank = collective.root});
  wait_for([&] { return gloo_->gather(lists, inputs, how); });
}

void GlooTransport::scatter(const Collective& collective) {
  const std::size_t bytes = collective.elements.bytes();
  std::vector<Tensors> lists;
  if (gloo_->getRank() == collective.root) lists.push_back(bytes_of_each(collective.of_ranks, bytes));
  Tensors outputs{bytes_of(collective.own, bytes)};
  const auto how = timed(c10d::ScatterOptions{.rootRank = collective.root});
  wait_for([&] { return gloo_->scatter(outputs, lists, how); });
}

void GlooTransport::all_to_all(const Collective& collective) {
  const std::size_t size = shm::size_of(collective.elements.dtype);
  Slices from(collective.sent, size), to(collective.received, size);
  from.copy(/*in=*/true);
  at::Tensor sent = from.tensor(), received = to.tensor();
  auto input_sizes = from.sizes(), output_sizes = to.sizes();
  const auto how = timed(c10d::AllToAllOptions());
  wait_for([&] { return gloo_->alltoall_base(received, sent, output_sizes, input_sizes, how); });
  to.copy(/*in=*/false);
}

void GlooTransport::barrier() {
  wait_for([&] { return gloo_->barrier(timed(c10d::BarrierOptions())); });
}

std::unique_ptr<Message> GlooTransport::send(const at::Tensor& tensor, int destination, int tag) {
  // Gloo takes only contiguous tensors, but a dense one in another order is one piece of memory too.
  Tensors tensors{view_of(tensor.data_ptr(), elements_of("send", tensor))};
  auto work = started([&] { return gloo_->send(tensors, destination, tag); });
  return std::make_unique<GlooMessage>(gloo_, std::move(work), timeout_);
}

std::unique_ptr<Message> GlooTransport::recv(const at::Tensor& tensor, int source, int tag) {
  Tensors tensors{view_of(tensor.data_ptr(), elements_of("recv", tensor))};
  auto work = started(
      [&] { return source < 0 ? gloo_->recvAnysource(tensors, tag) : gloo_->recv(tensors, source, tag); });
  return std::make_unique<GlooMessage>(gloo_, std::move(work), timeout_);
}

}  // namespace lockstep::comm
