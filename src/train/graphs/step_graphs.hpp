#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "comm/cuda/graph_recorder.hpp"
#include "comm/cuda/graph_replays.hpp"

namespace lockstep::train {

struct StepGraphsOptions {
  /// Steps that run as usual before anything is recorded.
  int warmup_steps = 3;
  /// The most shapes of inputs that are recorded; the others run as usual.
  std::size_t shapes = 8;
  /// A part is watched while it runs as usual, and recorded if it has done the same twice. See Rehearsal.
  bool rehearse = true;
  /// A recording that fails is an error, which begins with `who`, instead of the end of recording.
  bool must_record = false;
  std::string who = "cuda_graphs is on";
  /// What the host remembers of the current step. Called before a recording; what it returns puts it back if
  /// the recording fails, and the part runs as usual after all.
  std::function<std::function<void()>()> host_state = {};
  /// Called once with the reason when recording ends.
  std::function<void(const std::string& reason)> on_end = {};
  /// Called once when there are more shapes.
  std::function<void()> on_too_many_shapes = {};
};

/// Runs the parts of a training step, and after a while replays them as CUDA graphs: one for each part, each
/// shape of its inputs, and each place of its gradients.
///
///     warm-up -> rehearsal (as usual, watched; twice) -> recording, its first replay compared -> replay ->
///     ...
///        all of them -> off, with a reason: then every part runs as usual
///
/// All graphs share a pool of memory, because only one runs at a time. What outlives a replay must not be
/// overwritten by the next one: inputs are outside of the pool, and results stay allocated in it, so that no
/// later recording gets their memory. Gradients are the hard part. A graph reads and writes those of the
/// addresses that it was recorded with, so the addresses before it are a part of its key: a graph never runs
/// on others. A part that makes gradients (they were undefined before it) makes them in the pool, for one
/// more part of the same step that reads them, the optimizer's. They stay allocated until end_step() after
/// the recording, and that part is recorded until then, or never. Later replays put tensors over the same
/// memory into the parameters. Parts that only add to gradients leave them where they are.
///
/// Before a recording the part runs as usual, and all that it changed is put back; the first replay must give
/// the same. If it does not, or the recording fails, what the usual run gave stands, and recording ends.
/// A recording that fails runs nothing on the device. The host has run the part half-way, so gradients and
/// `host_state` are put back: the step is made once. One thread at a time.
class StepGraphs {
 public:
  using Tensors = std::vector<at::Tensor>;
  /// A part of the step: its inputs to its results.
  using Function = std::function<Tensors(const Tensors&)>;

  /// How a part is run.
  struct Manner {
    /// Off for one that is known to be repeatable.
    bool rehearses = true;
    /// What it changes besides the gradients of the parameters, in groups that are compared. Null: its first
    /// replay cannot be compared with a usual run.
    std::function<std::vector<Tensors>()> changes = nullptr;
  };

  /// For a device whose work can be recorded: see comm::GraphRecorder.
  StepGraphs(const at::Device& device, StepGraphsOptions options);
  ~StepGraphs();
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  /// The parameters whose gradients a part may read or write. Recordings of others are forgotten.
  void set_parameters(Tensors parameters);

  /// Runs a part: `name` tells it from others. Results have no gradients; those of a replay are overwritten
  /// by the next one. Throws what the function throws, and UsageError with must_record if it cannot be
  /// recorded.
  Tensors run(const std::string& name, const Tensors& inputs, const Function& function, const Manner& manner);

  /// The step is complete, and its gradients are not needed any more.
  void end_step();
  /// Everything is recorded anew, because memory has moved.
  void forget();
  /// From now on everything runs as usual.
  void stop(const std::string& reason);

  bool is_on() const noexcept { return reason_.empty(); }
  const std::string& reason() const noexcept { return reason_; }
  /// Whether the last run() was a replay, the first one after a recording included; and whether it called the
  /// function. Both are true for a recording.
  bool replayed() const noexcept { return replayed_; }
  bool called() const noexcept { return called_; }
  std::int64_t recordings() const noexcept { return recordings_; }

 private:
  struct Recording;
  struct Part;

  Part* part_of(const std::string& key);
  /// Whether gradients may be read by a recording.
  bool can_read_gradients() const;
  std::string gradient_places() const;
  bool has_room_for(const std::string& shape);
  Tensors rehearse(Part& part, const Tensors& inputs, const Function& function);
  /// The state of all that a part changes.
  struct Moment;
  /// False if there is no memory for it.
  bool note(Moment& moment, const std::vector<Tensors>& changes) const;
  void go_back(const Moment& moment, const std::vector<Tensors>& changes);
  std::string difference_between(const Tensors& usual, const Tensors& replayed, const Moment& before,
                                 const Moment& after, const std::vector<Tensors>& changes) const;
  /// A recording and its first replay, compared with a usual run.
  Tensors prove(Part& part, const std::string& shape, const Tensors& inputs, const Function& function,
                const std::vector<Tensors>& changes);
  /// Null if it failed.
  Recording* record(Part& part, const std::string& shape, const Tensors& inputs, const Function& function);
  Tensors replay(Recording& recording, const Tensors& inputs);
  const Tensors& memory_of(const std::string& shape, const Tensors& inputs);
  void set_gradients(const Tensors& gradients);
  /// Gradients in the pool move into memory of their own.
  void rescue_gradients();

  at::Device device_;
  StepGraphsOptions options_;
  comm::GraphRecorder& recorder_;
  comm::GraphPool pool_;
  Tensors parameters_;
  int steps_ = 0;
  std::string reason_;
  bool replayed_ = false;
  bool called_ = false;
  bool said_too_many_ = false;
  std::int64_t recordings_ = 0;
  int invalid_ = 0;
  std::set<std::string> shapes_;
  /// What recordings of a shape read.
  std::map<std::string, Tensors> memory_;
  std::map<std::string, Part> parts_;
  /// The recordings of this step: their gradients are still allocated.
  std::vector<Recording*> fresh_;
  /// Whether the parameters' gradients are in the pool.
  bool gradients_in_pool_ = false;
};

/// "Long [8, 32] on cuda:0; ..."
std::string kinds_of(const std::vector<at::Tensor>& tensors);

}  // namespace lockstep::train
