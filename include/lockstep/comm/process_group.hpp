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

class ProcessGroup;
struct ProcessGroupOptions;
namespace comm {
class GroupObserver;
ProcessGroup join_generation(int rank, int size, const Store& store, std::uint64_t generation,
                             const ProcessGroupOptions& options);
void observe(const ProcessGroup& group, const std::shared_ptr<GroupObserver>& observer);
bool is_newcomer(const ProcessGroup& group) noexcept;
void take_part(const ProcessGroup& group) noexcept;
}  // namespace comm

/// The backend that communicates the tensors. `automatic`: for CPU tensors, shared memory between the ranks
/// of the group that share it and Gloo between the others; for CUDA tensors, if the group has a CUDA device,
/// NCCL. `shm` requires shared memory and supports only CPU tensors; `gloo` supports both; `nccl` requires a
/// CUDA device and supports only CUDA tensors.
enum class CommBackend { automatic, gloo, nccl, shm };

/// Parses "auto", "shm", "gloo" or "nccl". Throws UsageError for any other name.
CommBackend comm_backend_from(const std::string& name);

struct ProcessGroupOptions {
  CommBackend backend = CommBackend::automatic;

  /// The device of this rank's tensors: the CPU, or a CUDA device with its index.
  at::Device device = at::Device(at::kCPU);

  /// An operation or barrier that takes longer than this fails. The default is PyTorch's for Gloo.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);

  /// Time limit for all ranks to connect when the group is created.
  std::chrono::milliseconds join_timeout = std::chrono::minutes(5);

  /// The network interface for Gloo ("eth0"), or several separated by commas. Empty: GLOO_SOCKET_IFNAME if
  /// set, otherwise the interface through which the store's host is reached (loopback if the store serves
  /// only this host). Not used by a single rank.
  std::string network_interface = {};

  /// Run NCCL's operations on high-priority streams, so that they are not queued behind computation.
  bool nccl_high_priority_streams = false;

  /// new_group() splits NCCL's communicator instead of creating a new one: faster, and shares resources.
  bool nccl_split = true;

  /// Diagnostics of the group. Unset: DiagnosticsOptions::from_environment(). `check` must be the same on all
  /// ranks. Groups made by new_group() use the settings of their parent.
  std::optional<DiagnosticsOptions> diagnostics = {};
};

/// One message of ProcessGroup::batch_isend_irecv(): `tensor` is sent to, or received from, rank `peer`.
struct P2POp {
  enum class Op { isend, irecv };

  Op op;
  at::Tensor tensor;
  int peer;
  int tag = 0;
};

/// A group of ranks that exchange tensors, as torch.distributed's process group. A cheap handle; copies refer
/// to the same group.
///
/// Methods marked *Collective* must be called by every rank of the group, in the same order, with tensors of
/// the same shape and dtype unless stated otherwise. Only one thread of a rank may call them at a time.
/// Tensors must be on a device that the group supports and occupy one block of memory: contiguous or, if a
/// single tensor is changed in place, non-overlapping and dense. Others are rejected. Elements correspond by
/// their indices, whatever the strides on each rank: a tensor that is not contiguous is copied. The `_async`
/// form returns immediately; the plain form waits. Failures throw: UsageError for a wrong argument,
/// TimeoutError, CommunicationError if a peer is lost. NCCL is the exception: its operations run
/// asynchronously to the host, and if one fails or times out, LibTorch's watchdog logs it and ends the
/// process (TORCH_NCCL_ASYNC_ERROR_HANDLING and TORCH_NCCL_BLOCKING_WAIT change that).
///
/// Destroying the last handle of a group with NCCL and of its subgroups shuts NCCL down. This is
/// *Collective*: it waits for queued work on the device, and up to `timeout` for all ranks. While an
/// exception ends a rank, it waits for no other rank.
class ProcessGroup {
 public:
  /// Joins the world: connects to its store (rank 0 hosts it unless the launcher does) and waits for every
  /// rank. A world of size 1 needs no address and no network. *Collective*. Throws TimeoutError naming the
  /// ranks that did not arrive within `join_timeout`, and CommunicationError on every rank if two processes
  /// claim the same rank or the ranks disagree on the world size. A process may call it again, for example
  /// for one training after another: each call makes a new group, in the same order on every rank. The
  /// connection to the store, and on rank 0 the store itself, stays until the process ends.
  static ProcessGroup init(const World& world, const ProcessGroupOptions& options = {});

  /// For programs with their own `main`: `size` ranks that share `store`; ranks may be threads of one
  /// process, but not on one GPU: autograd runs their backwards in one thread. *Collective*.
  ProcessGroup(int rank, int size, const Store& store, const ProcessGroupOptions& options = {});

  int rank() const noexcept;
  int size() const noexcept;
  const at::Device& device() const noexcept;
  std::chrono::milliseconds timeout() const noexcept;
  /// Device through which objects are communicated, and the cheapest one for other small tensors: the CPU, or
  /// the group's device if the group supports only that. *Local*.
  at::Device object_device() const;

  // ---- Tensors

  /// Reduces `tensor` over all ranks, in place; the result has the same bits on every rank. *Collective*.
  void all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum) const;
  [[nodiscard]] Work all_reduce_async(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum) const;

  /// Copies `tensor` of rank `root` to `tensor` of all other ranks. *Collective*.
  void broadcast(const at::Tensor& tensor, int root = 0) const;
  [[nodiscard]] Work broadcast_async(const at::Tensor& tensor, int root = 0) const;

  /// Reduces over all ranks into `tensor` of rank `root`. The tensors of other ranks may be overwritten.
  /// *Collective*.
  void reduce(const at::Tensor& tensor, int root = 0, ReduceOp op = ReduceOp::sum) const;
  [[nodiscard]] Work reduce_async(const at::Tensor& tensor, int root = 0, ReduceOp op = ReduceOp::sum) const;

  /// Returns every rank's `input` in rank order, on every rank. *Collective*.
  std::vector<at::Tensor> all_gather(const at::Tensor& input) const;
  /// Same, into `outputs`: one tensor per rank.
  [[nodiscard]] Work all_gather_async(const std::vector<at::Tensor>& outputs, const at::Tensor& input) const;
  /// Same, into one tensor with size() times as many elements as `input`.
  void all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) const;
  [[nodiscard]] Work all_gather_into_tensor_async(const at::Tensor& output, const at::Tensor& input) const;

  /// Returns every rank's `input` in rank order on rank `root`; empty on the others. *Collective*.
  std::vector<at::Tensor> gather(const at::Tensor& input, int root = 0) const;
  /// Same, into `outputs`: one tensor per rank on `root`, empty on the others.
  [[nodiscard]] Work gather_async(const std::vector<at::Tensor>& outputs, const at::Tensor& input,
                                  int root = 0) const;

  /// Copies `inputs[r]` of rank `root` into `output` of rank r. `inputs` is empty elsewhere. *Collective*.
  void scatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs, int root = 0) const;
  [[nodiscard]] Work scatter_async(const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                                   int root = 0) const;

  /// Reduces `inputs[r]` of all ranks into `output` of rank r. *Collective*.
  void reduce_scatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                      ReduceOp op = ReduceOp::sum) const;
  [[nodiscard]] Work reduce_scatter_async(const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                                          ReduceOp op = ReduceOp::sum) const;
  /// Same, with the inputs concatenated in one tensor.
  void reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input,
                             ReduceOp op = ReduceOp::sum) const;
  [[nodiscard]] Work reduce_scatter_tensor_async(const at::Tensor& output, const at::Tensor& input,
                                                 ReduceOp op = ReduceOp::sum) const;

  /// Sends `inputs[r]` to rank r and receives from rank r into `outputs[r]`. Shapes may differ between pairs
  /// of ranks, but both sides of a pair must agree. *Collective*.
  void all_to_all(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs) const;
  [[nodiscard]] Work all_to_all_async(const std::vector<at::Tensor>& outputs,
                                      const std::vector<at::Tensor>& inputs) const;
  /// Same, with slices of one tensor along dimension 0; empty split sizes mean equal slices.
  void all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                         const std::vector<std::int64_t>& output_split_sizes = {},
                         const std::vector<std::int64_t>& input_split_sizes = {}) const;
  [[nodiscard]] Work all_to_all_single_async(const at::Tensor& output, const at::Tensor& input,
                                             const std::vector<std::int64_t>& output_split_sizes = {},
                                             const std::vector<std::int64_t>& input_split_sizes = {}) const;

  /// Sends to one rank, or receives from one. Called only by those two ranks; messages with the same `tag`
  /// arrive in order. A rank cannot send to itself. A tag is at most 2147483391; larger ones are reserved for
  /// this library.
  void send(const at::Tensor& tensor, int destination, int tag = 0) const;
  void recv(const at::Tensor& tensor, int source, int tag = 0) const;
  [[nodiscard]] Work send_async(const at::Tensor& tensor, int destination, int tag = 0) const;
  [[nodiscard]] Work recv_async(const at::Tensor& tensor, int source, int tag = 0) const;
  /// Starts several messages at once; the order of each rank's list does not matter. Two ranks may send to
  /// each other, which deadlocks on NCCL with send_async() alone because its messages run one after the other
  /// on the device. Messages with the same pair of ranks and tag match in list order; NCCL ignores tags. All
  /// tensors must be on one device. Returns one Work per message, on NCCL one for all. Called by the ranks
  /// that take part.
  [[nodiscard]] std::vector<Work> batch_isend_irecv(const std::vector<P2POp>& operations) const;
  /// Receives from the first rank that sends, and returns that rank. CPU tensors only.
  int recv_any_source(const at::Tensor& tensor, int tag = 0) const;

  // ---- Barrier

  /// Returns when every rank has called it. Throws TimeoutError naming the ranks that did not arrive within
  /// `timeout` (the group's by default); CommunicationError within seconds if a rank cannot arrive: it ended,
  /// left, or is in a collective. On a CUDA device it first waits for queued work. *Collective*.
  void barrier() const;
  void barrier(std::chrono::milliseconds timeout) const;

  // ---- Objects

  // Arbitrary bytes of any length, different on each rank; in JSON, invalid UTF-8 is replaced. They are
  // communicated as tensors on object_device(). JSON keeps NaN and infinity.

  /// Returns the object of rank `root` on every rank. *Collective*.
  std::string broadcast_object(const std::string& object, int root = 0) const;
  std::string broadcast_object(const char* object, int root = 0) const;
  nlohmann::json broadcast_object(const nlohmann::json& object, int root = 0) const;

  /// Returns every rank's object in rank order, on every rank. *Collective*.
  std::vector<std::string> all_gather_object(const std::string& object) const;
  std::vector<nlohmann::json> all_gather_object(const nlohmann::json& object) const;

  /// Returns the r-th object of rank `root` on rank r. `objects` has one entry per rank on `root` and is
  /// ignored on the others. *Collective*.
  std::string scatter_object(const std::vector<std::string>& objects, int root = 0) const;
  nlohmann::json scatter_object(const std::vector<nlohmann::json>& objects, int root = 0) const;

  // ---- Subgroups

  /// Creates a group of some of this group's ranks, numbered in the order given. Called by *every* rank of
  /// this group with the same list, members or not; returns std::nullopt on ranks that are not members.
  /// *Collective*. Throws UsageError if the list is empty or if a rank is out of range or listed twice,
  /// CommunicationError if the lists differ.
  std::optional<ProcessGroup> new_group(const std::vector<int>& ranks) const;

  /// A namespace of the store that nobody else uses; the n-th call returns the same on all ranks. *Local*.
  Store new_namespace() const;

  /// Writes the last operations of this rank, in the outermost group and all its subgroups, to
  /// `folder/trace-rank-N.json`, and returns that path. `lockstep trace FOLDER` reads it. *Local*; any
  /// thread. Throws Error.
  std::string write_trace(const std::string& folder) const;

  // ---- Failures

  /// Ends all operations of this rank in the group and, called on the outermost group, in its subgroups:
  /// those under way, in any thread, and all later ones, with a CommunicationError that names the reason. It
  /// takes milliseconds; a barrier() notices within a second, and over Gloo an operation of which a message
  /// is just being received may last until the timeout. Other ranks that wait for this one fail as if it had
  /// left. *Local*; any thread; does not wait. The first reason counts.
  void abort(const std::string& reason) const;

  /// Forms the group again after a failure or abort(), without a new process: this handle and its copies, and
  /// those of subgroups, get new connections, and all objects of this library that use them follow.
  /// DistributedDataParallel drops the gradients of an unfinished backward. The states of the ranks stay as
  /// they are: one rank may have applied a step in which another one has failed, so give all of them the same
  /// state before they go on, by a checkpoint for example.
  ///
  ///     } catch (const lockstep::CommunicationError& error) {
  ///       group.abort(error.what());
  ///       group.reform();
  ///       accelerator.load_latest_state(folder);
  ///     }
  ///
  /// *Collective* over all ranks of the outermost group, on which it must be called, outside of backward,
  /// no_sync() and join(). Subgroups are made again in the order of their creation; a Store of
  /// new_namespace() keeps its keys. `generation`: the number of the new generation; 0 means the next one
  /// after the last that was tried, which is the same on all ranks if all of them try as often. Throws
  /// UsageError for a subgroup, a group with NCCL, or a number that was tried before. If it throws anything
  /// else, the group is as after abort(), and may be formed again.
  void reform(std::uint64_t generation = 0) const;

  /// 1 for a new group; the number of its generation after reform(). *Local*.
  std::uint64_t generation() const noexcept;

  /// The c10d object, for internal use and for programs that use c10d directly. Another one after reform().
  const std::shared_ptr<c10d::ProcessGroup>& c10d_process_group() const;

 private:
  friend ProcessGroup comm::join_generation(int rank, int size, const Store& store, std::uint64_t generation,
                                            const ProcessGroupOptions& options);
  friend void comm::observe(const ProcessGroup& group, const std::shared_ptr<comm::GroupObserver>& observer);
  friend bool comm::is_newcomer(const ProcessGroup& group) noexcept;
  friend void comm::take_part(const ProcessGroup& group) noexcept;
  struct Impl;
  explicit ProcessGroup(std::shared_ptr<Impl> impl);
  static ProcessGroup join(int rank, int size, const Store& store, const ProcessGroupOptions& options,
                           std::uint64_t generation);

  std::shared_ptr<Impl> impl_;
};

}  // namespace lockstep
