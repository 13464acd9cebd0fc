#include "pairs.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/cuda.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/datasets/map.hpp"
#include "lockstep/datasets/preferences.hpp"
#include "lockstep/models/dpo.hpp"
#include "text/chats.hpp"
#include "text/files.hpp"

namespace {

using lockstep::ArrowDataset;
using lockstep::ArrowTensorDataset;
namespace fs = std::filesystem;
namespace models = lockstep::models;

std::shared_ptr<const ArrowTensorDataset> tensors_of(const ArrowDataset& rows) {
  return std::make_shared<const ArrowTensorDataset>(
      rows, lockstep::ArrowTensorOptions{.columns = rows.column_names()});
}

std::shared_ptr<const ArrowTensorDataset> pairs_of(const std::string& flag, const std::string& path,
                                                   const Options& options, std::int64_t max_length,
                                                   const lockstep::DistributedContext& ranks) {
  return tensors_of(
      lockstep::tokenize_preferences(texts::read_table(flag, path, "chats"),
                                     {.tokenizer = options.tokenizer,
                                      .chat_template = texts::read_chat_template(options.chat_template_path),
                                      .max_length = max_length,
                                      .keep_end = options.truncation_mode == "keep_end"},
                                     texts::map_options(ranks, options.cache_dir, !options.disable_tqdm)));
}

/// The files that decide what a model computes; a folder may have checkpoints as well.
std::vector<fs::path> files_of_models(const std::vector<std::string>& folders) {
  std::vector<fs::path> files;
  for (const auto& folder : folders) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      const auto name = entry.path().filename().string();
      const bool has_weights = name.ends_with(".safetensors") || name.ends_with(".bin");
      const bool is_form = name.ends_with("config.json") || name.ends_with(".index.json");
      if (entry.is_regular_file() && (has_weights || is_form)) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// What else can change the bits of the result, beside the builds of Lockstep and of this program. The device
/// is that of the first rank, so that all have one key. *Collective*.
std::string precision_of(const Options& options, const lockstep::Accelerator& accelerator) {
  const auto& device = accelerator.device();
  const auto name_of_first = [&] {
    const std::vector<std::string> own{lockstep::cuda_device_name(device.index())};
    return accelerator.gather_object(own).front();
  };
  const nlohmann::json parameters{
      {"dtype", options.dtype},
      {"quantization", options.quantization},
      {"bf16", options.bf16},
      {"fp16", options.fp16},
      {"tf32", options.tf32 ? nlohmann::json(*options.tf32) : nlohmann::json()},
      {"fused_kernels", options.fused_kernels},
      {"fused_kernels_of_environment",
       lockstep::find_variable(lockstep::process_environment(), "LOCKSTEP_FUSED_KERNELS").value_or("auto")},
      {"full_determinism", options.full_determinism},
      {"device", device.is_cuda() ? name_of_first() : "cpu"}};
  return parameters.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

lockstep::MapOptions map_of_reference(const ArrowDataset& pairs, const ReferenceOfPairs& reference,
                                      const Options& options, const lockstep::Accelerator& accelerator,
                                      std::int64_t batch_size) {
  auto map =
      texts::map_options(lockstep::distributed_context(accelerator.world(), accelerator.process_group()),
                         options.cache_dir, !options.disable_tqdm);
  map.name = "reference_log_probs";
  map.parameters = precision_of(options, accelerator);
  map.input_files = files_of_models(reference.folders);
  map.batch_size = options.precompute_ref_batch_size > 0 ? options.precompute_ref_batch_size : batch_size;
  map.num_proc = 1;
  map.shard_rows = std::max(8 * map.batch_size, pairs.num_rows() / 64);
  map.desc = "reference";
  return map;
}

std::vector<float> floats_of(const at::Tensor& values) {
  const at::Tensor here = values.cpu().contiguous();
  const auto* first = here.const_data_ptr<float>();
  return {first, first + here.numel()};
}

}  // namespace

Pairs load_pairs(const Options& options, std::int64_t max_length, const lockstep::DistributedContext& ranks) {
  Pairs pairs;
  pairs.train = pairs_of("--train-file", options.train_file, options, max_length, ranks);
  if (!options.validation_file.empty())
    pairs.validation = pairs_of("--validation-file", options.validation_file, options, max_length, ranks);
  return pairs;
}

Pairs with_reference(const Pairs& pairs, const ReferenceOfPairs& reference, const Options& options,
                     const lockstep::Accelerator& accelerator) {
  const auto load = [&](const lockstep::Worker&) {
    auto model = reference.load();
    model.ptr()->eval();
    model->to(accelerator.device());
    return model;
  };
  const auto compute = [&](const lockstep::MapBatch& batch,
                           const models::CausalLM& model) -> lockstep::Columns {
    const auto rows = tensors_of(batch.rows);
    std::vector<lockstep::Example> examples;
    for (std::int64_t i = 0; i < batch.size(); ++i) examples.push_back(rows->get(i, {}));
    const auto cast = accelerator.autocast();
    const auto found =
        models::completion_log_probs(model, reference.collate(std::move(examples)).to(accelerator.device()));
    return {{models::kReferenceChosen, lockstep::make_column(floats_of(found.chosen))},
            {models::kReferenceRejected, lockstep::make_column(floats_of(found.rejected))}};
  };
  const auto add = [&](const std::shared_ptr<const ArrowTensorDataset>& samples, std::int64_t batch_size) {
    if (!samples) return samples;
    return tensors_of(
        lockstep::map(samples->data(), load, compute,
                      map_of_reference(samples->data(), reference, options, accelerator, batch_size)));
  };
  return {.train = add(pairs.train, options.per_device_train_batch_size),
          .validation = add(pairs.validation, options.per_device_eval_batch_size)};
}
