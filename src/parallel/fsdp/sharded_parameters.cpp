#include "parallel/fsdp/sharded_parameters.hpp"

#include <mutex>
#include <unordered_map>

namespace lockstep::parallel {
namespace {

struct Registry {
  std::mutex mutex;
  std::unordered_map<const void*, c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> known;
};

Registry& registry() {
  static Registry all;
  return all;
}

}  // namespace

void ShardedParameters::add(const at::Tensor& parameter) {
  auto& [mutex, known] = registry();
  const std::lock_guard lock(mutex);
  known.insert_or_assign(parameter.unsafeGetTensorImpl(), parameter.getIntrusivePtr());
}

void ShardedParameters::remove(const at::Tensor& parameter) {
  auto& [mutex, known] = registry();
  const std::lock_guard lock(mutex);
  known.erase(parameter.unsafeGetTensorImpl());
}

bool ShardedParameters::contain(const at::Tensor& tensor) {
  auto& [mutex, known] = registry();
  const std::lock_guard lock(mutex);
  // The address of a destroyed tensor may be reused.
  std::erase_if(known, [](const auto& entry) { return entry.second.expired(); });
  return known.contains(tensor.unsafeGetTensorImpl());
}

}  // namespace lockstep::parallel
