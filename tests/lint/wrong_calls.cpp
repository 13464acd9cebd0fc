// Wrong calls of the training API, for compile_errors.py: each is one error of the compiler's, which says
// what was expected.
#include <torch/nn/modules/linear.h>

#include "lockstep/data/data_loader.hpp"
#include "lockstep/datasets/map.hpp"
#include "lockstep/train/accelerator.hpp"
#include "lockstep/train/model_adapter.hpp"

void wrong(lockstep::Accelerator& accelerator, const lockstep::Batch& batch, torch::nn::Linear net) {
  accelerator.prepare(3);                                         // prepare() takes modules, optimizers
  accelerator.gather_for_metrics(std::vector<int>{1, 2}, batch);  // expected tensors: a tensor, a Batch, or
  accelerator.gather_for_metrics(std::vector<at::Tensor>{});      // gather_for_metrics(tensors, batch) needs
  accelerator.split_between_processes(std::string("text"));       // split_between_processes() takes vectors
  accelerator.on_main_process([&] { return &batch; });            // on_main_process() passes on a number, a
  lockstep::wrap_model(net,
                       [](torch::nn::Linear& model, const lockstep::Batch& one) {  // expected [](auto& model
                         return lockstep::Batch{{"logits", model(one["x"])}};
                       });
}

void wrong(const lockstep::DataLoader& loader) {
  loader.shard(2, 0);  // ignoring return value of
}

void wrong(const lockstep::ArrowDataset& data, std::int64_t limit) {
  map(data, [limit](const lockstep::MapBatch& batch) {  // a function with captured values needs MapOptions
    return lockstep::Columns{{"n", lockstep::make_column(std::vector<std::int64_t>(batch.size(), limit))}};
  });
  map(data, [](const lockstep::MapBatch&) { return lockstep::Columns(); });
}
