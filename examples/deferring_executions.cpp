// What one process does first while the others wait: each case of Hugging Face Accelerate's page "Deferring
// Executions". A single process does not wait.

#include <torch/nn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

#include "lockstep/core/options.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/datasets/map.hpp"
#include "lockstep/train/accelerator.hpp"

namespace {

namespace fs = std::filesystem;
using lockstep::Accelerator;
using lockstep::ArrowDataset;

struct Options {
  std::string folder = "out/deferring";
};

/// What this process has done itself instead of finding it done.
struct Work {
  int downloads = 0;
  std::int64_t mapped_rows = 0;
};

/// Downloads on the first call, like from a server that must not be accessed twice.
ArrowDataset load_dataset(const fs::path& file, Work& work) {
  if (!fs::exists(file)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    std::ofstream(file)
        << "sentence1,sentence2,label\nHe said so.,So he said.,1\nIt rains.,The sun shines.,0\n"
           "She left early.,She did not stay.,1\nNo.,Yes.,0\n";
    ++work.downloads;
  }
  return ArrowDataset::load(file);
}

/// The main process downloads a data set; the others read the file.
ArrowDataset download(const Accelerator& accelerator, const fs::path& folder, Work& work) {
  const auto guard = accelerator.main_process_first();
  return load_dataset(folder / "mrpc.csv", work);
}

/// The same without a guard.
ArrowDataset download_by_hand(const Accelerator& accelerator, const fs::path& folder, Work& work) {
  std::optional<ArrowDataset> data;
  if (accelerator.is_main_process()) data = load_dataset(folder / "by_hand.csv", work);
  accelerator.wait_for_everyone();
  if (!accelerator.is_main_process()) data = load_dataset(folder / "by_hand.csv", work);
  accelerator.wait_for_everyone();
  return *data;
}

/// The main process computes a map over the data set; the others read the result from its cache.
ArrowDataset count_words(const Accelerator& accelerator, const ArrowDataset& data, const fs::path& folder,
                         Work& work) {
  const auto guard = accelerator.main_process_first();
  std::atomic<std::int64_t> rows = 0;
  lockstep::MapOptions options{.name = "count_words", .version = "1", .progress = false};
  options.remove_columns = {"sentence1", "sentence2"};
  options.cache_folder = folder / "cache";
  const auto count = [&rows](const lockstep::MapBatch& batch) -> lockstep::Columns {
    rows += batch.size();
    std::vector<std::int64_t> words;
    const auto texts = batch.column<std::string_view>("sentence1");
    for (std::int64_t i = 0; i < batch.size(); ++i)
      words.push_back(1 + std::count(texts[i].begin(), texts[i].end(), ' '));
    return {{"words", lockstep::make_column(words)}};
  };
  auto result = lockstep::map(data, count, options);
  work.mapped_rows = rows;
  return result;
}

/// The main process writes the state dictionary when all processes have finished training.
template <class Model>
void save_state_dict(const Accelerator& accelerator, Model& model, const fs::path& file) {
  accelerator.wait_for_everyone();
  if (!accelerator.is_main_process()) return;
  lockstep::TensorMap state;
  for (const auto& entry : accelerator.unwrap_model(model)->named_parameters())
    state.emplace(entry.key(), entry.value());
  lockstep::save_file(state, file);
}

/// Every process has loaded the weights before any process continues.
template <class Model>
void load_state_dict(const Accelerator& accelerator, Model& model, const fs::path& file) {
  {
    const auto guard = accelerator.main_process_first();
    const torch::NoGradGuard no_grad;
    const auto state = lockstep::load_file(file).tensors;
    for (auto& entry : accelerator.unwrap_model(model)->named_parameters())
      entry.value().copy_(state.at(entry.key()));
  }
  accelerator.wait_for_everyone();
}

void report(const Accelerator& accelerator, const Work& work, const at::Tensor& weight) {
  const at::Tensor own = torch::tensor({std::int64_t{work.downloads}, work.mapped_rows}).unsqueeze(0);
  const at::Tensor all = accelerator.gather(own), weights = accelerator.gather(weight.detach().unsqueeze(0));
  const at::Tensor others = all.sum(0) - all[0];
  const auto number = [](const at::Tensor& tensor) { return tensor.item<std::int64_t>(); };
  accelerator.print("downloads: ", number(all[0][0]), " by the main process, ", number(others[0]),
                    " by the others");
  accelerator.print("mapped rows: ", number(all[0][1]), " by the main process, ", number(others[1]),
                    " by the others");
  accelerator.print("weights: ", (weights == weights[0]).all().item<bool>() ? "the same" : "different",
                    " in ", accelerator.num_processes(), " process(es)");
}

int run(int argc, char** argv) {
  const auto table = lockstep::OptionTable<Options>("deferring_executions", "Who does what first.")
                         .add("folder", &Options::folder, "Folder for all files; emptied at the start.");
  const auto parsed = table.parse(argc, argv);
  if (parsed.help) return std::cout << table.help(), 0;
  const fs::path folder = parsed.options.folder;

  Accelerator accelerator;
  accelerator.on_main_process([&] {
    fs::remove_all(folder);
    fs::create_directories(folder);
  });
  Work work;
  const auto data = download(accelerator, folder, work);
  download_by_hand(accelerator, folder, work);
  count_words(accelerator, data, folder, work);

  torch::nn::Linear net(4, 2);
  auto model = accelerator.prepare(net);
  save_state_dict(accelerator, model, folder / "weights.safetensors");
  {
    const torch::NoGradGuard no_grad;
    net->weight.zero_();  // Restored from the file.
  }
  load_state_dict(accelerator, model, folder / "weights.safetensors");
  report(accelerator, work, net->weight);
  accelerator.wait_for_everyone();
  return net->weight.abs().sum().item<double>() > 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("deferring_executions", [&] { return run(argc, argv); });
}
