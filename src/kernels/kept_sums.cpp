#include "kernels/kept_sums.hpp"

#include <c10/core/UndefinedTensorImpl.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace lockstep::kernels {
namespace {

struct KeptSums {
  c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl> gradient;
  std::int64_t version;
  at::Tensor sums;
};

struct AllKeptSums {
  std::mutex mutex;
  std::map<const at::TensorImpl*, KeptSums> of_gradients;
};

AllKeptSums& kept_sums() {
  // Not destroyed: CUDA may end before it.
  static auto& kept = *new AllKeptSums;
  return kept;
}

}  // namespace

void keep_column_sums(const at::Tensor& gradient, const at::Tensor& sums) {
  AllKeptSums& kept = kept_sums();
  const std::lock_guard lock(kept.mutex);
  std::erase_if(kept.of_gradients, [](const auto& entry) { return entry.second.gradient.expired(); });
  kept.of_gradients.insert_or_assign(
      gradient.unsafeGetTensorImpl(),
      KeptSums{.gradient = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>(
                   gradient.getIntrusivePtr()),
               .version = gradient._version(),
               .sums = sums});
}

at::Tensor take_column_sums(const at::Tensor& gradient) {
  AllKeptSums& kept = kept_sums();
  const std::lock_guard lock(kept.mutex);
  const auto found = kept.of_gradients.find(gradient.unsafeGetTensorImpl());
  if (found == kept.of_gradients.end()) return {};
  const KeptSums own = std::move(found->second);
  kept.of_gradients.erase(found);
  return !own.gradient.expired() && own.version == gradient._version() ? own.sums : at::Tensor();
}

}  // namespace lockstep::kernels
