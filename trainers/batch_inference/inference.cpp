#include "inference.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "generation.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/class_names.hpp"
#include "lockstep/models/compiled_model.hpp"
#include "lockstep/models/lora.hpp"
#include "lockstep/models/model_file.hpp"
#include "lockstep/models/script_model.hpp"
#include "lockstep/models/sentence_encoder.hpp"
#include "texts.hpp"

namespace {

namespace models = lockstep::models;

template <class T>
std::vector<T> values_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.cpu().contiguous();
  return {flat.data_ptr<T>(), flat.data_ptr<T>() + flat.numel()};
}

template <class Model>
Model on(Model model, const std::string& device) {
  model->to(at::Device(device));
  model->eval();
  return model;
}

/// With the adapter of --adapter, if there is one.
template <class Model>
Model adapted(Model model, const Options& options) {
  if (!options.adapter.empty()) models::load_adapter(model, options.adapter);
  return model;
}

/// A model's function of tokens: hidden states [rows, tokens, width], vectors [rows, width], or scores [rows,
/// classes].
struct Network {
  std::function<at::Tensor(const Tokens&)> run;
  /// Any token will do, because the mask hides it.
  std::int64_t padding = 0;
  /// The names of the classes by number; empty if the model has none.
  std::vector<std::string> classes = {};
};

/// A model compiled or scripted in Python, which takes ids and mask.
Network program_of(const Options& options, const std::string& device) {
  if (models::model_file_kind(options.model) == models::ModelFileKind::aot_inductor) {
    auto compiled = std::make_shared<models::CompiledModel>(options.model);
    return {[compiled](const Tokens& tokens) { return (*compiled)({tokens.ids, tokens.mask}).front(); }};
  }
  auto script = std::make_shared<models::ScriptModel>(options.model, at::Device(device));
  script->eval();
  return {[script](const Tokens& tokens) { return script->forward(tokens.ids, tokens.mask); }};
}

/// A vector for each text: as the folder of a sentence encoder says; otherwise the mean of its tokens' last
/// hidden states, normalized.
Network vectors_of(const Options& options, const std::string& device) {
  if (is_program(options)) {
    auto program = program_of(options, device);
    program.run = [states = std::move(program.run)](const Tokens& tokens) {
      const at::Tensor mean = models::pool(states(tokens), tokens.mask, {models::PoolingMode::mean});
      return mean / mean.norm(2, -1, true).clamp_min(1e-12);
    };
    return program;
  }
  auto encoder = on(models::load_sentence_encoder(options.model, {.add_pooling_layer = false}), device);
  return {[encoder](const Tokens& tokens) mutable { return encoder(tokens.ids, tokens.mask, tokens.types); },
          encoder->encoder()->model_config().pad_token_id.value_or(0)};
}

/// Throws if a layer is missing in the model's files and in those of its adapter. It was initialized at
/// random, differently on each worker: the classes would be meaningless.
void check_trained(torch::nn::Module& classifier, std::vector<std::string> missing, const Options& options) {
  const bool has_adapter = !options.adapter.empty();
  if (has_adapter) {
    for (const auto& entry : models::adapter_state(classifier)) {
      std::string name = entry.name.substr(std::string(models::kAdapterPrefix).size());
      const std::string inner = "base_layer.";
      if (const auto at = name.find(inner); at != std::string::npos) name.erase(at, inner.size());
      std::erase(missing, name);
    }
  }
  if (missing.empty()) return;
  throw lockstep::DataError("the model in " + options.model + " has no '" + missing.front() + "'" +
                            (has_adapter ? ", and neither has the adapter in " + options.adapter : "") +
                            ": --task text-classification needs one that was trained for it");
}

Network scores_of(const Options& options, const std::string& device) {
  if (is_program(options)) return program_of(options, device);
  models::PretrainedReport report;
  auto classifier = on(
      adapted(models::AutoModelForSequenceClassification::from_pretrained(options.model, {.report = &report}),
              options),
      device);
  check_trained(*classifier, report.initialized, options);
  const auto config = classifier->model_config();
  return {[classifier](const Tokens& tokens) mutable {
            return classifier(tokens.ids, tokens.mask, tokens.types);
          },
          config.pad_token_id.value_or(0),
          models::are_class_names(config.id2label) ? config.id2label : std::vector<std::string>()};
}

class Embedding : public Inference {
 public:
  Embedding(const Options& options, const std::string& device)
      : vectors_(vectors_of(options, device)), texts_(options, vectors_.padding, device) {}

  lockstep::Column operator()(const lockstep::MapBatch& batch) override {
    const at::Tensor vectors = vectors_.run(texts_.encode(batch));
    std::vector<std::vector<float>> rows;
    for (const auto& row : vectors.unbind(0)) rows.push_back(values_of<float>(row));
    return lockstep::make_column(rows);
  }

 private:
  Network vectors_;
  Texts texts_;
};

/// The most probable class: its name, or its number if the model has no names.
class Classification : public Inference {
 public:
  Classification(const Options& options, const std::string& device)
      : scores_(scores_of(options, device)), texts_(options, scores_.padding, device) {}

  lockstep::Column operator()(const lockstep::MapBatch& batch) override {
    const auto numbers = values_of<std::int64_t>(scores_.run(texts_.encode(batch)).argmax(-1));
    if (scores_.classes.empty()) return lockstep::make_column(numbers);
    std::vector<std::string> names;
    for (const auto number : numbers) names.push_back(scores_.classes[static_cast<std::size_t>(number)]);
    return lockstep::make_column(names);
  }

 private:
  Network scores_;
  Texts texts_;
};

/// The seed for sampling a row, the same on any worker: one step of SplitMix64 (Steele, Lea and Flood, "Fast
/// splittable pseudorandom number generators", 2014). It mixes all bits of the seed and of the row's number,
/// because LibTorch's generator uses only the lower half of a seed.
std::uint64_t row_seed(std::uint64_t seed, std::int64_t row) {
  std::uint64_t value = seed + (static_cast<std::uint64_t>(row) + 1) * 0x9E3779B97F4A7C15ULL;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

/// A seed for each row of a batch.
std::vector<std::uint64_t> row_seeds(std::uint64_t seed, const lockstep::MapBatch& batch) {
  std::vector<std::uint64_t> seeds;
  for (std::int64_t i = 0; i < batch.size(); ++i) seeds.push_back(row_seed(seed, batch.first_row + i));
  return seeds;
}

/// The continuation of each text.
class Generation : public Inference {
 public:
  Generation(const Options& options, const std::string& device)
      : config_(generation_of(options)),
        seed_(options.seed),
        model_(on(adapted(models::AutoModelForCausalLM::from_pretrained(options.model), options), device)),
        texts_(options, 0, device) {}

  lockstep::Column operator()(const lockstep::MapBatch& batch) override {
    // As in transformers, the continuation of an empty text begins a new one.
    const Tokens tokens = texts_.encode_in_front(batch, [&] { return first_token(); });
    config_.row_seeds = row_seeds(seed_, batch);
    return lockstep::make_column(
        texts_.decode(models::generate(model_, tokens.ids, tokens.mask, config_), tokens.ids.size(1)));
  }

 private:
  std::int64_t first_token() const {
    if (const auto first = model_->model_config().bos_token_id) return *first;
    throw lockstep::DataError("a text is empty, but the model has no bos_token_id to begin one with");
  }

  models::GenerationConfig config_;
  std::uint64_t seed_;
  models::CausalLM model_;
  Texts texts_;
};

/// The output of an encoder-decoder for each text.
class Translation : public Inference {
 public:
  Translation(const Options& options, const std::string& device)
      : config_(generation_of(options)),
        seed_(options.seed),
        model_(on(adapted(models::AutoModelForSeq2SeqLM::from_pretrained(options.model), options), device)),
        texts_(options, model_->model_config().pad_token_id.value_or(0), device) {
    texts::set_languages(*model_, texts_.tokenizer(), options);
  }

  lockstep::Column operator()(const lockstep::MapBatch& batch) override {
    const Tokens tokens = texts_.encode(batch);
    config_.row_seeds = row_seeds(seed_, batch);
    return lockstep::make_column(
        texts_.decode(models::generate(model_, tokens.ids, tokens.mask, config_), 1));
  }

 private:
  models::GenerationConfig config_;
  std::uint64_t seed_;
  models::Seq2SeqLM model_;
  Texts texts_;
};

/// Runs an inference on a worker's thread: one computing thread, no gradients.
class OnWorker : public Inference {
 public:
  explicit OnWorker(std::unique_ptr<Inference> inner) : inner_(std::move(inner)) { at::set_num_threads(1); }

  lockstep::Column operator()(const lockstep::MapBatch& batch) override {
    const at::NoGradGuard no_grad;
    return (*inner_)(batch);
  }

 private:
  std::unique_ptr<Inference> inner_;
};

std::unique_ptr<Inference> inference_of(const Options& options, const std::string& device) {
  if (options.task == "text-classification") return std::make_unique<Classification>(options, device);
  if (options.task == "text-generation") return std::make_unique<Generation>(options, device);
  if (options.task == "translation") return std::make_unique<Translation>(options, device);
  return std::make_unique<Embedding>(options, device);
}

}  // namespace

std::unique_ptr<Inference> make_inference(const Options& options, const lockstep::Worker& worker) {
  return std::make_unique<OnWorker>(inference_of(options, worker.device));
}

std::string output_column(const Options& options) {
  if (!options.output_column.empty()) return options.output_column;
  if (options.task == "feature-extraction") return "embedding";
  return options.task == "text-classification" ? "label" : "generated_text";
}
