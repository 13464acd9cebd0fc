#include "kernels/weight_copies.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/Stream.h>
#include <c10/core/UndefinedTensorImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/graph_task.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "comm/cuda/graph_replays.hpp"

namespace lockstep::kernels {
namespace {

using WeakTensor = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;

std::optional<c10::Stream> stream_of(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
}

/// A forward of this thread; 0 outside.
struct Forward {
  int depth = 0;
  std::uint64_t number = 0;
};
thread_local Forward forward;

std::uint64_t next_forward() {
  static std::atomic<std::uint64_t> count{0};
  return ++count;
}

/// The values that a parameter had: which memory, and how often it had been changed in place.
struct Values {
  const void* memory = nullptr;
  std::int64_t version = -1;

  static Values of(const at::Tensor& parameter) { return {parameter.const_data_ptr(), parameter._version()}; }
  bool operator==(const Values&) const = default;
};

/// The memory of a copy: of one object, and of the graphs that write there.
using Memory = std::shared_ptr<const at::Tensor>;

struct WeightCopy {
  WeakTensor parameter;
  Memory memory;
  /// What was copied, and in which forward.
  Values values = {};
  std::uint64_t forward = 0;
  /// The forward in which it was made: those of a model have the same.
  std::uint64_t group = 0;
  std::optional<c10::Stream> stream = {};
  /// Of the graph for which the copying was recorded; null if it was done.
  const comm::GraphReplays* replays = nullptr;

  const at::Tensor& copy() const { return *memory; }
  bool fits(const at::Tensor& tensor) const {
    const at::Tensor& copy = *memory;
    return copy.sizes() == tensor.sizes() && copy.strides() == tensor.strides() &&
           copy.device() == tensor.device() && stream == stream_of(tensor);
  }
};

bool is_unused(const at::Tensor& copy) { return copy.use_count() == 1 && copy.storage().use_count() == 1; }

/// A replay is about to write to these. Whoever else has one, such as the graph of a forward that was not
/// recorded, learns by its version that the values are no longer its own.
void mark_written(const std::vector<Memory>& written) {
  for (const auto& memory : written) {
    if (!is_unused(*memory)) memory->unsafeGetTensorImpl()->bump_version();
  }
}

/// What the current stream is recorded for: nothing, a graph whose replays are known, or another one.
struct Recording {
  bool is_on = false;
  comm::GraphReplays* replays = nullptr;

  static Recording of(const at::Tensor& tensor) {
    comm::GraphRecorder* const recorder = comm::GraphRecorder::of(tensor.device());
    if (recorder == nullptr || !recorder->is_recording()) return {};
    return {.is_on = true, .replays = comm::GraphReplays::current()};
  }
};

/// Of this process. The memory of a copy is never written while something else holds it: a graph that waits
/// for its backward has the weights of its forward, as with the casts of autocast, which are made anew in
/// each forward. While a CUDA graph is recorded no copy is made that should outlive it, since its memory
/// would be the graph's; copies that exist are written inside of the graph, which then keeps them.
class WeightCopies {
 public:
  at::Tensor get(const at::Tensor& parameter, at::ScalarType dtype) {
    const std::lock_guard lock(mutex_);
    if (!may_keep(parameter)) return parameter.to(dtype);
    const Recording recording = Recording::of(parameter);
    WeightCopy* found = find(parameter, dtype);
    if (forward.depth == 0) {
      // A backward that computes a part of its forward again has the copy of that.
      const bool is_again = torch::autograd::get_current_graph_task_id() != -1 && found != nullptr;
      return is_again && found->replays == recording.replays && has_values_of(*found, parameter)
                 ? found->copy()
                 : parameter.to(dtype);
    }
    if (recording.is_on && (found == nullptr || recording.replays == nullptr)) return parameter.to(dtype);
    if (found == nullptr) found = &make(parameter, dtype);
    if (!is_current(*found, parameter)) refresh(*found, parameter, recording);
    return is_current(*found, parameter) ? found->copy() : parameter.to(dtype);
  }

  void copy_never(const at::Tensor& parameter) {
    const std::lock_guard lock(mutex_);
    drop_dead();
    never_.insert_or_assign(parameter.unsafeGetTensorImpl(), WeakTensor(parameter.getIntrusivePtr()));
    std::erase_if(copies_,
                  [&](const auto& entry) { return entry.first.first == parameter.unsafeGetTensorImpl(); });
  }

  void drop() {
    const std::lock_guard lock(mutex_);
    drop_dead();
  }

  std::size_t count() {
    const std::lock_guard lock(mutex_);
    drop_dead();
    return copies_.size();
  }

  void keep_on_cpu(bool keeps) {
    const std::lock_guard lock(mutex_);
    on_cpu_ = keeps;
    if (!keeps) std::erase_if(copies_, [](const auto& entry) { return entry.second.copy().is_cpu(); });
  }

 private:
  using Key = std::pair<const at::TensorImpl*, at::ScalarType>;

  bool may_keep(const at::Tensor& parameter) const {
    const bool is_there = parameter.is_cuda() || (parameter.is_cpu() && on_cpu_);
    if (!is_there || parameter.scalar_type() != at::kFloat || !parameter.is_leaf()) return false;
    if (parameter.is_inference() || !parameter.is_non_overlapping_and_dense()) return false;
    const auto never = never_.find(parameter.unsafeGetTensorImpl());
    return never == never_.end() || never->second.expired();
  }

  WeightCopy* find(const at::Tensor& parameter, at::ScalarType dtype) {
    const auto found = copies_.find({parameter.unsafeGetTensorImpl(), dtype});
    if (found == copies_.end()) return nullptr;
    if (!found->second.parameter.expired()) return &found->second;
    copies_.erase(found);
    return nullptr;
  }

  WeightCopy& make(const at::Tensor& parameter, at::ScalarType dtype) {
    drop_dead();
    WeightCopy made{.parameter = WeakTensor(parameter.getIntrusivePtr()),
                    .memory = empty_copy(parameter, dtype),
                    .group = forward.number,
                    .stream = stream_of(parameter)};
    return copies_.emplace(Key{parameter.unsafeGetTensorImpl(), dtype}, std::move(made)).first->second;
  }

  static Memory empty_copy(const at::Tensor& parameter, at::ScalarType dtype) {
    return std::make_shared<const at::Tensor>(
        at::empty_like(parameter, parameter.options().dtype(dtype).requires_grad(false)));
  }

  static bool has_values_of(const WeightCopy& entry, const at::Tensor& parameter) {
    return entry.values == Values::of(parameter) && entry.fits(parameter);
  }
  static bool is_current(const WeightCopy& entry, const at::Tensor& parameter) {
    return entry.forward == forward.number && has_values_of(entry, parameter);
  }

  /// With the others that were made in the same forward.
  void refresh(WeightCopy& first, const at::Tensor& parameter, const Recording& recording) {
    std::vector<at::Tensor> parameters, copies;
    std::vector<Memory> written;
    const auto add = [&](WeightCopy& entry, const at::Tensor& one) {
      if (!is_unused(entry.copy()) || !entry.fits(one)) {
        if (recording.is_on) return;
        entry.memory = empty_copy(one, entry.copy().scalar_type());
        entry.stream = stream_of(one);
      }
      entry.values = Values::of(one);
      entry.forward = forward.number;
      entry.replays = recording.replays;
      parameters.push_back(one);
      copies.push_back(entry.copy());
      written.push_back(entry.memory);
    };
    add(first, parameter);
    for (auto& [key, entry] : copies_) {
      if (&entry == &first || entry.group != first.group) continue;
      if (key.second != first.copy().scalar_type() || entry.copy().device() != parameter.device()) continue;
      const at::Tensor other(entry.parameter.lock());
      if (other.defined() && may_keep(other) && other.device() == parameter.device() &&
          !is_current(entry, other))
        add(entry, other);
    }
    if (copies.empty()) return;
    // No version counts it, because nothing else has the memory.
    const at::AutoDispatchBelowADInplaceOrView guard;
    at::_foreach_copy_(copies, parameters);
    if (recording.replays != nullptr) recording.replays->before_each([written] { mark_written(written); });
  }

  void drop_dead() {
    std::erase_if(copies_, [](const auto& entry) { return entry.second.parameter.expired(); });
    std::erase_if(never_, [](const auto& entry) { return entry.second.expired(); });
  }

  std::mutex mutex_;
  bool on_cpu_ = false;
  std::map<Key, WeightCopy> copies_;
  std::map<const at::TensorImpl*, WeakTensor> never_;
};

WeightCopies& weight_copies() {
  // Not destroyed: CUDA may end before it.
  static auto& copies = *new WeightCopies;
  return copies;
}

}  // namespace

at::Tensor low_precision_copy(const at::Tensor& parameter, at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  return weight_copies().get(parameter, dtype);
}

void ForwardOfWeights::begin() {
  if (forward.depth++ > 0) return;
  forward.number = next_forward();
  weight_copies().drop();
}

void ForwardOfWeights::end() {
  if (--forward.depth == 0) forward.number = 0;
}

void copy_never(const at::Tensor& parameter) { weight_copies().copy_never(parameter); }
void keep_copies_on_cpu(bool keeps) { weight_copies().keep_on_cpu(keeps); }
std::size_t count_weight_copies() { return weight_copies().count(); }

}  // namespace lockstep::kernels
