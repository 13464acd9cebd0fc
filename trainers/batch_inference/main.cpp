// Applies a pretrained model to every row of a data set, on the threads of one process or on all ranks of a
// job.

#include <chrono>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "checks.hpp"
#include "generation.hpp"
#include "inference.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/train/accelerator.hpp"
#include "options.hpp"

namespace {

/// The names of columns are any bytes.
std::string text_of(const nlohmann::json& parameters) {
  return parameters.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// The options that determine the results, besides the texts and the model's files.
std::string parameters_of(const Options& options) {
  const auto or_null = [](const auto& option) { return option ? nlohmann::json(*option) : nlohmann::json(); };
  nlohmann::json parameters{{"task", options.task},
                            {"column", options.column},
                            {"output_column", output_column(options)},
                            {"max_length", options.max_length},
                            {"max_new_tokens", 32},
                            {"num_beams", 1}};
  // The folder itself is one of the input files.
  if (!options.adapter.empty()) parameters["has_adapter"] = true;
  if (!is_generation(options)) return text_of(parameters);
  parameters["max_new_tokens"] = or_null(options.max_new_tokens);
  parameters["num_beams"] = or_null(options.num_beams);
  parameters["src_lang"] = options.src_lang;
  parameters["tgt_lang"] = options.tgt_lang;
  parameters["forced_bos_token"] = options.forced_bos_token;
  // Without sampling these have no effect: results computed with another seed are found.
  if (draws_tokens(options)) {
    parameters["do_sample"] = true;
    parameters["temperature"] = or_null(options.temperature);
    parameters["top_k"] = or_null(options.top_k);
    parameters["top_p"] = or_null(options.top_p);
    parameters["seed"] = options.seed;
  }
  return text_of(parameters);
}

/// Increased when a task's results for the same inputs change, so that older cached results are not used.
std::string version_of(const Options& options) { return is_generation(options) ? "4" : "3"; }

std::vector<std::filesystem::path> input_files(const Options& options) {
  std::vector<std::filesystem::path> files = {options.model};
  for (const std::string& folder : {options.tokenizer, options.adapter})
    if (!folder.empty()) files.emplace_back(folder);
  return files;
}

lockstep::ArrowDataset infer(const lockstep::Accelerator& accelerator, const lockstep::ArrowDataset& rows,
                             const Options& options) {
  auto ranks = lockstep::distributed_context(accelerator.world(), accelerator.process_group());
  ranks.device = accelerator.device().str();
  return lockstep::map(
      rows, [&](const lockstep::Worker& worker) { return make_inference(options, worker); },
      [&](const lockstep::MapBatch& batch, std::unique_ptr<Inference>& inference) -> lockstep::Columns {
        return {{output_column(options), (*inference)(batch)}};
      },
      {.name = options.task,
       .version = version_of(options),
       .parameters = parameters_of(options),
       .input_files = input_files(options),
       .batch_size = options.batch_size,
       .ranks = ranks,
       .num_proc = options.num_proc,
       .shard_rows = 8 * options.batch_size,
       .cache_folder = options.cache_dir,
       .progress = options.progress});
}

void write(const lockstep::ArrowDataset& data, const std::filesystem::path& path) {
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  if (path.extension() == ".jsonl") {
    data.to_json(path);
  } else if (path.extension() == ".csv") {
    data.to_csv(path);
  } else if (path.extension() == ".arrow") {
    data.to_arrow(path);
  } else {
    data.save_to_disk(path);
  }
}

int run(int argc, char** argv) {
  const auto parsed = option_table().parse(argc, argv);
  if (parsed.help) {
    std::cout << option_table().help();
    return 0;
  }
  const Options& options = parsed.options;
  check_options(parsed);
  const lockstep::ArrowDataset rows = load_rows(options);
  check_model(options);
  const lockstep::Accelerator accelerator(
      {.device = options.device, .join_timeout = std::chrono::seconds(options.timeout)});
  const auto begin = std::chrono::steady_clock::now();
  const auto results = infer(accelerator, rows, options);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  accelerator.on_main_process([&] { write(results, options.output); });
  accelerator.print(options.task, ": ", results.num_rows(), " rows in ", took.count(), " s, written to ",
                    options.output);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("batch_inference", [&] { return run(argc, argv); });
}
