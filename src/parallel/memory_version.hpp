#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <optional>

namespace lockstep::parallel {

/// The memory of a tensor and how often it had been changed in place, without keeping it.
class MemoryVersion {
 public:
  explicit MemoryVersion(const at::Tensor& tensor) {
    counter_ = torch::autograd::impl::version_counter(tensor);
    version_ = now();
    if (tensor.has_storage()) storage_.emplace(tensor.storage().getWeakStorageImpl());
  }

  bool is_that_of(const at::Tensor& tensor) const {
    if (!storage_ || !tensor.has_storage()) return false;
    const auto storage = storage_->lock();
    return storage != nullptr && storage.get() == tensor.storage().unsafeGetStorageImpl();
  }
  std::int64_t now() const { return counter_.enabled() ? counter_.current_version() : 0; }
  bool has_changed() const { return now() != version_; }

 private:
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> storage_;
  c10::VariableVersion counter_;
  std::int64_t version_ = 0;
};

}  // namespace lockstep::parallel
