#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/diagnostics.hpp"
#include "lockstep/comm/reduce_op.hpp"
#include "lockstep/comm/store.hpp"
#include "lockstep/comm/work.hpp"
#include "lockstep/core/world.hpp"

namespace c10d {
class ProcessGroup;
}

namespace lockstep {

/// What carries the tensors. `automatic`: for CPU tensors shared memory between the ranks of the group that
/// share it, Gloo between those that do not; for CUDA tensors, when the group has a CUDA device, NCCL. `shm`
/// insists on shared memory and carries CPU tensors only; `gloo` carries both kinds; `nccl` needs a CUDA
/// device and carries CUDA tensors only.
enum class CommBackend { automatic, gloo, nccl, shm };

/// "auto", "shm", "gloo" or "nccl" as a CommBackend; throws UsageError for anything else.
CommBackend comm_backend_from(const std::string& name);

struct ProcessGroupOptions {
  CommBackend backend = CommBackend::automatic;

  /// The device whose tensors this rank will send: the CPU, or one CUDA device with its index.
  at::Device device = at::Device(at::kCPU);

  /// After this long an operation, or a barrier, fails instead of waiting on. As PyTorch's default for Gloo.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);

  /// How long the ranks may take to find each other at the start.
  std::chrono::milliseconds join_timeout = std::chrono::minutes(5);

  /// The network interface for Gloo ("eth0"), or several with commas between. Empty: GLOO_SOCKET_IFNAME, else
  /// the interface by which the store's host is reached; loopback when the store is on this host alone. Not
  /// used alone.
  std::string network_interface = {};

  /// NCCL's operations on streams of high priority, so that they need not queue behind computation.
  bool nccl_high_priority_streams = false;

  /// new_group() splits NCCL's communicator instead of making one anew: quicker, and with shared resources.
  bool nccl_split = true;

  /// What the group watches about itself. Nothing: DiagnosticsOptions::from_environment(). All ranks must
  /// agree on `check`. Parts of a group have what the group has.
  std::optional<DiagnosticsOptions> diagnostics = {};
};

/// One message of ProcessGroup::batch_isend_irecv(): `tensor` goes to rank `peer`, or comes from it.
struct P2POp {
  enum class Op { isend, irecv };

  Op op;
  at::Tensor tensor;
  int peer;
  int tag = 0;
};

/// A group of ranks that exchange tensors: torch.distributed's process group. A cheap handle; copies are the
/// same group.
///
/// Methods marked *Collective* must be called by every rank of the group, in the same order, with tensors of
/// the same shape and dtype unless said otherwise. One thread of a rank at a time. Tensors must lie on a
/// device that the group carries and be one piece of memory: contiguous, or, where one tensor is changed in
/// place, non-overlapping and dense with the same strides on every rank; others are refused. The form with
/// `_async` returns at once; the plain form waits. Failures throw: UsageError for a wrong argument,
/// TimeoutError, CommunicationError when a peer is lost. NCCL is the exception: its operations run behind the
/// host's back, and when one fails or times out, LibTorch's watchdog logs it and ends the process
/// (TORCH_NCCL_ASYNC_ERROR_HANDLING, TORCH_NCCL_BLOCKING_WAIT change that).
///
/// A group with NCCL ends cleanly when its last handle and those of its parts have gone, which is
/// *Collective*: it waits for what is queued on the device, and up to `timeout` for all ranks. While an
/// exception ends a rank it waits for nobody.
class ProcessGroup {
 public:
  /// Joins the world: connects to its store (hosting it on rank 0 where the launcher does not) and waits for
  /// every rank. A world of one needs no address and no network. *Collective*. Throws TimeoutError naming the
  /// ranks that did not come within `join_timeout`, and CommunicationError on every rank when two processes
  /// claim one rank or the ranks disagree on the size of the world.
  static ProcessGroup init(const World& world, const ProcessGroupOptions& options = {});

  /// For programs that own their `main`: `size` ranks that share `store`; ranks may be threads of one
  /// process. *Collective*.
  ProcessGroup(int rank, int size, const Store& store, const ProcessGroupOptions& options = {});

  int rank() const noexcept;
  int size() const noexcept;
  const at::Device& device() const noexcept;
  std::chrono::milliseconds timeout() const noexcept;
  /// Where objects travel, and where other small tensors do so at the least cost: the CPU, or the group's
  /// device where the group carries nothing else. *Local*.
  at::Device object_device() const;

  // ---- Tensors

  /// Combines `tensor` over all ranks, in place: afterwards every rank has the same bits. *Collective*.
  void all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum) const;
  [[nodiscard]] Work all_reduce_async(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum) const;

  /// Copies `tensor` of rank `root` into every other rank's. *Collective*.
  void broadcast(const at::Tensor& tensor, int root = 0) const;
  [[nodiscard]] Work broadcast_async(const at::Tensor& tensor, int root = 0) const;

  /// Combines over all ranks into `tensor` of rank `root`. The tensors of other ranks may be overwritten.
  /// *Collective*.
  void reduce(const at::Tensor& tensor, int root = 0, ReduceOp op = ReduceOp::sum) const;
  [[nodiscard]] Work reduce_async(const at::Tensor& tensor, int root = 0, ReduceOp op = ReduceOp::sum) const;

  /// Every rank's `input`, in rank order, at every rank. *Collective*.
  std::vector<at::Tensor> all_gather(const at::Tensor& input) const;
  /// Likewise into `outputs`, one tensor for each rank.
  [[nodiscard]] Work all_gather_async(const std::vector<at::Tensor>& outputs, const at::Tensor& input) const;
  /// Likewise into one tensor with size() times as many elements as `input`.
  void all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) const;
  [[nodiscard]] Work all_gather_into_tensor_async(const at::Tensor& output, const at::Tensor& input) const;

  /// Every rank's `input`, in rank order, at rank `root`; an empty vector elsewhere. *Collective*.
  std::vector<at::Tensor> gather(const at::Tensor& input, int root = 0) const;
  /// Likewise into `outputs`: one tensor for each rank at `root`, empty elsewhere.
  [[nodiscard]] Work gather_async(const std::vector<at::Tensor>& outputs, const at::Tensor& input,
                                  int root = 0) const;

  /// Copies `inputs[r]` of rank `root` into `output` of rank r. `inputs` is empty elsewhere. *Collective*.
  void scatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs, int root = 0) const;
  [[nodiscard]] Work scatter_async(const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                                   int root = 0) const;

  /// Combines `inputs[r]` of all ranks into `output` of rank r. *Collective*.
  void reduce_scatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                      ReduceOp op = ReduceOp::sum) const;
  [[nodiscard]] Work reduce_scatter_async(const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                                          ReduceOp op = ReduceOp::sum) const;
  /// Likewise with the inputs lying one after the other in one tensor.
  void reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input,
                             ReduceOp op = ReduceOp::sum) const;
  [[nodiscard]] Work reduce_scatter_tensor_async(const at::Tensor& output, const at::Tensor& input,
                                                 ReduceOp op = ReduceOp::sum) const;

  /// Sends `inputs[r]` to rank r and receives from rank r into `outputs[r]`. Shapes may differ from pair to
  /// pair, but both sides of a pair must agree. *Collective*.
  void all_to_all(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs) const;
  [[nodiscard]] Work all_to_all_async(const std::vector<at::Tensor>& outputs,
                                      const std::vector<at::Tensor>& inputs) const;
  /// Likewise with slices of dimension 0 of one tensor; empty split sizes mean equal slices.
  void all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                         const std::vector<std::int64_t>& output_split_sizes = {},
                         const std::vector<std::int64_t>& input_split_sizes = {}) const;
  [[nodiscard]] Work all_to_all_single_async(const at::Tensor& output, const at::Tensor& input,
                                             const std::vector<std::int64_t>& output_split_sizes = {},
                                             const std::vector<std::int64_t>& input_split_sizes = {}) const;

  /// Sends to one rank, and receives from one. Called by those two ranks only; messages with the same `tag`
  /// arrive in order. A rank cannot send to itself. A tag is at most 2147483391: the others are this
  /// library's own.
  void send(const at::Tensor& tensor, int destination, int tag = 0) const;
  void recv(const at::Tensor& tensor, int source, int tag = 0) const;
  [[nodiscard]] Work send_async(const at::Tensor& tensor, int destination, int tag = 0) const;
  [[nodiscard]] Work recv_async(const at::Tensor& tensor, int source, int tag = 0) const;
  /// Starts several messages at once, in whatever order the ranks name theirs: a rank may send to one that
  /// sends to it, which with send_async() alone deadlocks on NCCL, because its messages run one after the
  /// other on the device. Messages of one pair and tag match in the order of the list; NCCL ignores tags. All
  /// tensors are on one device. The Works that end it: one for each message, on NCCL one for all of them.
  /// Called by the ranks that it names.
  [[nodiscard]] std::vector<Work> batch_isend_irecv(const std::vector<P2POp>& operations) const;
  /// Receives from whoever sends first and returns its rank. CPU tensors only.
  int recv_any_source(const at::Tensor& tensor, int tag = 0) const;

  // ---- Barrier

  /// Returns when every rank has called it. Throws TimeoutError naming the ranks that did not come within
  /// `timeout` (the group's by default); CommunicationError within seconds when one of them cannot: it ended,
  /// left, or is in a collective instead. On a CUDA device it first waits for what is queued. *Collective*.
  void barrier() const;
  void barrier(std::chrono::milliseconds timeout) const;

  // ---- Objects

  // Any bytes, of any length, different on each rank; in JSON, what is no UTF-8 is replaced. They travel as
  // CPU tensors, or through the group's device where the group carries nothing else.

  /// The object of rank `root`, at every rank. *Collective*.
  std::string broadcast_object(const std::string& object, int root = 0) const;
  std::string broadcast_object(const char* object, int root = 0) const;
  nlohmann::json broadcast_object(const nlohmann::json& object, int root = 0) const;

  /// Every rank's object in rank order, at every rank. *Collective*.
  std::vector<std::string> all_gather_object(const std::string& object) const;
  std::vector<nlohmann::json> all_gather_object(const nlohmann::json& object) const;

  /// The r-th object of rank `root`, at rank r. `objects` has one entry a rank at `root` and is ignored
  /// elsewhere. *Collective*.
  std::string scatter_object(const std::vector<std::string>& objects, int root = 0) const;
  nlohmann::json scatter_object(const std::vector<nlohmann::json>& objects, int root = 0) const;

  // ---- Groups made of this one

  /// A group of some of this group's ranks; in it they are numbered in the order given. Called by *every*
  /// rank of this group with the same list, members or not; those outside get nothing. *Collective*. Throws
  /// UsageError for a rank that is out of range or named twice, CommunicationError when the lists differ.
  std::optional<ProcessGroup> new_group(const std::vector<int>& ranks) const;

  /// A namespace of the store that nobody else uses: the same one for all ranks that ask equally often. *Local*.
  Store new_namespace() const;

  /// Writes the last operations of this rank, in all groups made of the outermost one, as
  /// `folder/trace-rank-N.json`, and returns that path. `lockstep trace FOLDER` reads it. *Local*; any
  /// thread. Throws Error.
  std::string write_trace(const std::string& folder) const;

  /// The c10d object, for the library's own use and for programs that speak c10d.
  const std::shared_ptr<c10d::ProcessGroup>& c10d_process_group() const;

 private:
  struct Impl;
  explicit ProcessGroup(std::shared_ptr<Impl> impl);

  std::shared_ptr<Impl> impl_;
};

}  // namespace lockstep
