#include "parallel/fsdp/sharded_parameter_registry.hpp"

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

void ShardedParameterRegistry::add(const at::Tensor& parameter) {
  auto& [mutex, known] = registry();
  const std::lock_guard lock(mutex);
  known.insert_or_assign(parameter.unsafeGetTensorImpl(), parameter.getIntrusivePtr());
}

void ShardedParameterRegistry::remove(const at::Tensor& parameter) {
  auto& [mutex, known] = registry();
  const std::lock_guard lock(mutex);
  known.erase(parameter.unsafeGetTensorImpl());
}

bool ShardedParameterRegistry::contain(const at::Tensor& tensor) {
  auto& [mutex, known] = registry();
  const std::lock_guard lock(mutex);
  // The address of a destroyed tensor may be reused.
  std::erase_if(known, [](const auto& entry) { return entry.second.expired(); });
  return known.contains(tensor.unsafeGetTensorImpl());
}

}  // namespace lockstep::parallel
