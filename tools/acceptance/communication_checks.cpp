#include <ATen/ATen.h>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

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
  const bool same_shape = mine.sizes() == theirs.sizes();
  if (same_shape && at::allclose(mine, theirs, tolerance, tolerance)) return;
  if (!same_shape) throw lockstep::Error(what + " have another shape");
  throw lockstep::Error(
      fmt::format("{} differ by up to {:.6f}", what, (mine - theirs).abs().max().item<double>()));
}

namespace {

/// Rank 0 writes under a key prefix of its own before anybody else reads.
void main_goes_first(Accelerator& accelerator) {
  const auto store = accelerator.process_group().new_namespace();
  accelerator.main_process_first([&] {
    if (accelerator.is_main_process()) store.set("prepared", "yes");
    require(store.contains("prepared"), "a rank ran before the main process had finished");
  });
}

void results_reach_all(Accelerator& accelerator) {
  require(accelerator.on_main_process([] { return std::string("found"); }) == "found", "a text got lost");
  const auto there = accelerator.on_last_process([&] { return accelerator.process_index(); });
  require(there.has_value() == accelerator.is_last_process(), "on_last_process ran on the wrong ranks");
}

void errors_reach_all(Accelerator& accelerator) {
  bool caught = false;
  try {
    accelerator.on_main_process([] { throw lockstep::Error("on purpose"); });
  } catch (const lockstep::Error& error) {
    caught = std::string(error.what()).find("on purpose") != std::string::npos;
  }
  require(caught, "an exception of the main process did not reach this rank");
}

void triggers_are_agreed(Accelerator& accelerator) {
  require(!accelerator.check_trigger(), "a trigger that nobody has set");
  if (accelerator.is_last_process()) accelerator.set_trigger();
  require(accelerator.check_trigger(), "the last rank's trigger was not seen");
  require(!accelerator.check_trigger(), "a trigger was seen twice");
}

/// 1 to W on rank 0, W + 1 to 2 W on rank 1, and so on.
at::Tensor numbers_of(Accelerator& accelerator) {
  const int size = accelerator.num_processes();
  return at::arange(1, size + 1, at::TensorOptions(at::kFloat).device(accelerator.device())) +
         size * accelerator.process_index();
}

void gathers_in_order(Accelerator& accelerator) {
  const int size = accelerator.num_processes();
  require_close(accelerator.gather(numbers_of(accelerator)), at::arange(1, size * size + 1, at::kFloat), 0,
                "gathered tensors");
}

void gathers_uneven_rows(Accelerator& accelerator) {
  const int rank = accelerator.process_index();
  const at::Tensor rows =
      at::full({rank + 1, 2}, rank, at::TensorOptions(at::kFloat).device(accelerator.device()));
  const at::Tensor all = accelerator.gather(rows).cpu();
  const std::int64_t size = accelerator.num_processes();
  require(all.size(0) == size * (size + 1) / 2, "rows of different ranks got lost");
  require(all[-1][0].item<double>() == static_cast<double>(size - 1), "rows are not in rank order");
}

void reduces(Accelerator& accelerator) {
  const int size = accelerator.num_processes();
  const at::Tensor wanted = (at::arange(1, size + 1, at::kFloat) + size * (size - 1) / 2.0) * size;
  require_close(accelerator.reduce(numbers_of(accelerator)), wanted, 0, "sums over all ranks");
}

/// An epoch has every sample, and each rank its share.
void shards_the_data(Accelerator& accelerator) {
  for (const std::int64_t samples : {24, 7, 97}) {
    const auto data =
        std::make_shared<lockstep::TensorDataset>(lockstep::Batch{{"number", at::arange(samples)}});
    auto loader = accelerator.prepare(lockstep::DataLoader(data, {.batch_size = 3, .shuffle = true}));
    std::vector<at::Tensor> seen;
    for (auto& batch : loader) seen.push_back(batch["number"]);
    const at::Tensor all = accelerator.gather(at::cat(seen)).cpu();
    const at::Tensor unique = std::get<0>(at::_unique(all));
    require(unique.size(0) == samples,
            fmt::format("an epoch of {} samples had only {} of them", samples, unique.size(0)));
  }
  accelerator.free_memory();
}

}  // namespace

std::vector<Check> communication_checks() {
  return {{"the main process goes first", main_goes_first},
          {"results of one rank reach all", results_reach_all},
          {"errors of one rank reach all", errors_reach_all},
          {"triggers are agreed", triggers_are_agreed},
          {"gather keeps the order of ranks", gathers_in_order},
          {"gather takes different numbers of rows", gathers_uneven_rows},
          {"reduce adds up", reduces},
          {"loaders divide the data", shards_the_data}};
}

}  // namespace acceptance
