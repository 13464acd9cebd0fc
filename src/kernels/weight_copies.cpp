#include "kernels/weight_copies.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/Stream.h>
#include <c10/core/UndefinedTensorImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
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

using Tensors = std::vector<at::Tensor>;

struct WeightCopy {
  /// One after another in the copy.
  std::vector<WeakTensor> parameters;
  Memory memory;
  /// What was copied, and in which forward.
  std::vector<Values> values = {};
  std::uint64_t forward = 0;
  /// The forward in which it was made: those of a model have the same.
  std::uint64_t group = 0;
  std::optional<c10::Stream> stream = {};
  /// Of the graph for which the copying was recorded; null if it was done.
  const comm::GraphReplays* replays = nullptr;
  /// It has a multiple of so many rows; those behind the parameters' are 0.
  std::int64_t rows = 1;

  const at::Tensor& copy() const { return *memory; }
  bool fits(const Tensors& all) const {
    const at::Tensor& copy = *memory;
    return copy.device() == all[0].device() && stream == stream_of(all[0]) &&
           sizes_of(all, rows) == copy.sizes() && (all.size() > 1 || copy.strides() == all[0].strides());
  }
  bool is_dead() const {
    return std::any_of(parameters.begin(), parameters.end(), [](const auto& one) { return one.expired(); });
  }
  /// Undefined tensors for those that are no longer.
  Tensors locked() const {
    Tensors all;
    for (const auto& one : parameters) all.emplace_back(one.lock());
    return all;
  }

  static std::vector<std::int64_t> sizes_of(const Tensors& all, std::int64_t rows) {
    auto sizes = all[0].sizes().vec();
    for (std::size_t i = 1; i < all.size(); ++i) sizes[0] += all[i].size(0);
    if (rows > 1) sizes[0] = (sizes[0] + rows - 1) / rows * rows;
    return sizes;
  }
  static std::vector<Values> values_of(const Tensors& all) {
    std::vector<Values> values;
    for (const auto& one : all) values.push_back(Values::of(one));
    return values;
  }
};

at::Tensor plain_copy(const Tensors& all, at::ScalarType dtype, std::int64_t rows) {
  Tensors copies;
  for (const auto& one : all) copies.push_back(one.to(dtype));
  const at::Tensor copy = copies.size() == 1 ? copies.front() : at::cat(copies, 0);
  const std::int64_t behind = rows > 1 ? WeightCopy::sizes_of(all, rows)[0] - copy.size(0) : 0;
  return behind > 0 ? at::constant_pad_nd(copy, {0, 0, 0, behind}) : copy;
}

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
  at::Tensor get(const Tensors& all, at::ScalarType dtype, std::int64_t rows) {
    const std::lock_guard lock(mutex_);
    if (!may_keep(all) || (rows > 1 && !all[0].is_contiguous())) return plain_copy(all, dtype, rows);
    const Recording recording = Recording::of(all[0]);
    WeightCopy* found = find(all, dtype, rows);
    if (forward.depth == 0) {
      // A backward that computes a part of its forward again has the copy of that.
      const bool is_again = torch::autograd::get_current_graph_task_id() != -1 && found != nullptr;
      return is_again && found->replays == recording.replays && has_values_of(*found, all)
                 ? found->copy()
                 : plain_copy(all, dtype, rows);
    }
    if (recording.is_on && (found == nullptr || recording.replays == nullptr))
      return plain_copy(all, dtype, rows);
    if (found == nullptr) found = &make(all, dtype, rows);
    if (!is_current(*found, all)) refresh(*found, all, recording);
    return is_current(*found, all) ? found->copy() : plain_copy(all, dtype, rows);
  }

  void copy_never(const at::Tensor& parameter) {
    const std::lock_guard lock(mutex_);
    drop_dead();
    never_.insert_or_assign(parameter.unsafeGetTensorImpl(), WeakTensor(parameter.getIntrusivePtr()));
    std::erase_if(copies_, [&](const auto& entry) {
      const auto& all = entry.first.parameters;
      return std::find(all.begin(), all.end(), parameter.unsafeGetTensorImpl()) != all.end();
    });
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
  struct Key {
    std::vector<const at::TensorImpl*> parameters;
    at::ScalarType dtype;
    std::int64_t rows;
    auto operator<=>(const Key&) const = default;
  };

  static Key key_of(const Tensors& all, at::ScalarType dtype, std::int64_t rows) {
    Key key{{}, dtype, rows};
    for (const auto& one : all) key.parameters.push_back(one.unsafeGetTensorImpl());
    return key;
  }

  /// Of several: if they lie in memory as in their copy.
  bool may_keep(const Tensors& all) const {
    return std::all_of(all.begin(), all.end(), [&](const at::Tensor& one) {
      const bool fits = one.device() == all[0].device() && (all.size() == 1 || one.is_contiguous());
      return may_keep(one) && fits;
    });
  }

  bool may_keep(const at::Tensor& parameter) const {
    const bool is_there = parameter.is_cuda() || (parameter.is_cpu() && on_cpu_);
    if (!is_there || parameter.scalar_type() != at::kFloat || !parameter.is_leaf()) return false;
    if (parameter.is_inference() || !parameter.is_non_overlapping_and_dense()) return false;
    const auto never = never_.find(parameter.unsafeGetTensorImpl());
    return never == never_.end() || never->second.expired();
  }

  WeightCopy* find(const Tensors& all, at::ScalarType dtype, std::int64_t rows) {
    const auto found = copies_.find(key_of(all, dtype, rows));
    if (found == copies_.end()) return nullptr;
    if (!found->second.is_dead()) return &found->second;
    copies_.erase(found);
    return nullptr;
  }

  WeightCopy& make(const Tensors& all, at::ScalarType dtype, std::int64_t rows) {
    drop_dead();
    WeightCopy made{.parameters = {},
                    .memory = empty_copy(all, dtype, rows),
                    .group = forward.number,
                    .stream = stream_of(all[0]),
                    .rows = rows};
    for (const auto& one : all) made.parameters.emplace_back(one.getIntrusivePtr());
    return copies_.emplace(key_of(all, dtype, rows), std::move(made)).first->second;
  }

  static Memory empty_copy(const Tensors& all, at::ScalarType dtype, std::int64_t rows) {
    const auto options = all[0].options().dtype(dtype).requires_grad(false);
    const auto sizes = WeightCopy::sizes_of(all, rows);
    if (rows > 1) return std::make_shared<const at::Tensor>(at::zeros(sizes, options));
    return std::make_shared<const at::Tensor>(all.size() == 1 ? at::empty_like(all[0], options)
                                                              : at::empty(sizes, options));
  }

  static bool has_values_of(const WeightCopy& entry, const Tensors& all) {
    return entry.values == WeightCopy::values_of(all) && entry.fits(all);
  }
  static bool is_current(const WeightCopy& entry, const Tensors& all) {
    return entry.forward == forward.number && has_values_of(entry, all);
  }

  /// With the others that were made in the same forward.
  void refresh(WeightCopy& first, const Tensors& own, const Recording& recording) {
    Tensors parameters, copies;
    std::vector<Memory> written;
    const auto add = [&](WeightCopy& entry, const Tensors& all) {
      if (!is_unused(entry.copy()) || !entry.fits(all)) {
        if (recording.is_on) return;
        entry.memory = empty_copy(all, entry.copy().scalar_type(), entry.rows);
        entry.stream = stream_of(all[0]);
      }
      entry.values = WeightCopy::values_of(all);
      entry.forward = forward.number;
      entry.replays = recording.replays;
      parameters.insert(parameters.end(), all.begin(), all.end());
      if (all.size() == 1 && entry.rows == 1) {
        copies.push_back(entry.copy());
      } else {
        std::int64_t begin = 0;
        for (const auto& one : all) {
          copies.push_back(entry.copy().narrow(0, begin, one.size(0)));
          begin += one.size(0);
        }
      }
      written.push_back(entry.memory);
    };
    add(first, own);
    for (auto& [key, entry] : copies_) {
      if (&entry == &first || entry.group != first.group || entry.is_dead()) continue;
      if (key.dtype != first.copy().scalar_type() || entry.copy().device() != own[0].device()) continue;
      const Tensors others = entry.locked();
      const bool is_there = std::all_of(others.begin(), others.end(), [&](const at::Tensor& other) {
        return other.defined() && other.device() == own[0].device();
      });
      if (is_there && may_keep(others) && !is_current(entry, others)) add(entry, others);
    }
    if (copies.empty()) return;
    // No version counts it, because nothing else has the memory.
    const at::AutoDispatchBelowADInplaceOrView guard;
    at::_foreach_copy_(copies, parameters);
    if (recording.replays != nullptr) recording.replays->before_each([written] { mark_written(written); });
  }

  void drop_dead() {
    std::erase_if(copies_, [](const auto& entry) { return entry.second.is_dead(); });
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

at::Tensor low_precision_copy(const at::Tensor& parameter, at::ScalarType dtype, std::int64_t rows) {
  const at::NoGradGuard no_grad;
  return weight_copies().get({parameter}, dtype, rows);
}

at::Tensor low_precision_copy(const std::vector<at::Tensor>& parameters, at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  return weight_copies().get(parameters, dtype, 1);
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
