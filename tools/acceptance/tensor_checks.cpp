#include <ATen/ATen.h>

#include "checks.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/dataset.hpp"

namespace acceptance {

using lockstep::Accelerator;

void require(bool holds, const std::string& text) {
  if (!holds) throw lockstep::Error(text);
}

void require_close(const at::Tensor& found, const at::Tensor& wanted, double tolerance,
                   const std::string& what) {
  const at::Tensor mine = found.detach().cpu();
  const at::Tensor theirs = wanted.detach().cpu();
  if (mine.sizes() == theirs.sizes() && at::allclose(mine, theirs, tolerance, tolerance)) return;
  const bool same_shape = mine.sizes() == theirs.sizes();
  throw lockstep::Error(
      what + (same_shape ? " differ by up to " + std::to_string((mine - theirs).abs().max().item<double>())
                         : " have another shape"));
}

namespace {

/// 1 to W on rank 0, W + 1 to 2 W on rank 1, and so on.
at::Tensor numbers_of(const Accelerator& accelerator) {
  const int size = accelerator.num_processes();
  return at::arange(1, size + 1, at::TensorOptions(at::kFloat).device(accelerator.device())) +
         size * accelerator.process_index();
}

void gathers_in_order(const Accelerator& accelerator) {
  const int size = accelerator.num_processes();
  require_close(accelerator.gather(numbers_of(accelerator)), at::arange(1, size * size + 1, at::kFloat), 0,
                "gathered tensors");
}

void gathers_uneven_rows(const Accelerator& accelerator) {
  const int rank = accelerator.process_index();
  const at::Tensor rows =
      at::full({rank + 1, 2}, rank, at::TensorOptions(at::kFloat).device(accelerator.device()));
  const at::Tensor all = accelerator.gather(rows).cpu();
  const std::int64_t size = accelerator.num_processes();
  require(all.size(0) == size * (size + 1) / 2, "rows of different ranks got lost");
  require(all[-1][0].item<double>() == static_cast<double>(size - 1), "rows are not in rank order");
}

void reduces(const Accelerator& accelerator) {
  const int size = accelerator.num_processes();
  const at::Tensor wanted = (at::arange(1, size + 1, at::kFloat) + size * (size - 1) / 2.0) * size;
  require_close(accelerator.reduce(numbers_of(accelerator)), wanted, 0, "sums over all ranks");
}

/// An epoch has every sample, and each rank its share.
void shards_the_data(const Accelerator& accelerator) {
  for (const std::int64_t samples : {24, 7, 97}) {
    const auto data =
        std::make_shared<lockstep::TensorDataset>(lockstep::Batch{{"number", at::arange(samples)}});
    auto loader = accelerator.prepare(lockstep::DataLoader(data, {.batch_size = 3, .shuffle = true}));
    std::vector<at::Tensor> seen;
    for (auto& batch : loader) seen.push_back(batch["number"]);
    const at::Tensor all = accelerator.gather(at::cat(seen)).cpu();
    const at::Tensor unique = std::get<0>(at::_unique(all));
    require(unique.size(0) == samples, "an epoch of " + std::to_string(samples) + " samples had only " +
                                           std::to_string(unique.size(0)) + " of them");
  }
  accelerator.free_memory();
}

}  // namespace

std::vector<Check> tensor_checks() {
  return {{"gather keeps the order of ranks", gathers_in_order},
          {"gather takes different numbers of rows", gathers_uneven_rows},
          {"reduce adds up", reduces},
          {"loaders divide the data", shards_the_data}};
}

}  // namespace acceptance
