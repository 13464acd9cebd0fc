#include <ATen/ATen.h>
#include <fmt/core.h>
#include <torch/version.h>
#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "broadcast_tensors.hpp"
#include "checkpoint_writer.hpp"
#include "core/json.hpp"
#include "core/json_text.hpp"
#include "host_copies.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/train/consolidated_optimizer.hpp"
#include "model_content.hpp"
#include "training_state.hpp"

namespace lockstep::train {

using nlohmann::json;

namespace {

/// Reads the older format, in which the position counted batches of one rank of `batch_size` samples.
DataLoaderState older_state_from(const json& document) {
  const auto length = document.at("length").get<std::int64_t>();
  // Computed in floating point, so that a damaged file cannot cause an overflow.
  const double consumed = document.at("position").get<double>() * document.at("batch_size").get<double>() *
                          document.at("num_replicas").get<double>();
  const bool whole = consumed >= static_cast<double>(length);
  return {.samples = whole ? length : static_cast<std::int64_t>(consumed),
          .dataset = fmt::format("{} samples", length)};
}

}  // namespace

json to_json(const DataLoaderState& state) {
  json document{{"seed", state.seed},
                {"epoch", state.epoch},
                {"samples", state.samples},
                {"dataset", state.dataset},
                {"order", state.order}};
  if (!state.parts.empty()) document["parts"] = state.parts;
  return document;
}

DataLoaderState loader_state_from(const json& document) {
  DataLoaderState state;
  if (document.contains("position")) {
    state = older_state_from(document);
  } else {
    state.samples = document.at("samples").get<std::int64_t>();
    state.dataset = document.at("dataset").get<std::string>();
    state.order = document.at("order").get<std::string>();
    state.parts = document.value("parts", std::vector<std::string>());
  }
  state.seed = document.at("seed").get<std::uint64_t>();
  state.epoch = document.at("epoch").get<std::int64_t>();
  return state;
}

FileDigest write_json(const std::filesystem::path& path, const json& document) {
  return write_atomically(path, json_text(document, 2) + "\n");
}

namespace {

namespace fs = std::filesystem;

/// Accelerate's names: the first of a kind has no number, the others count from 1.
std::string numbered(const std::string& stem, std::size_t index, const std::string& ending) {
  return index == 0 ? stem + ending : fmt::format("{}_{}{}", stem, index, ending);
}

std::string optimizer_file(std::size_t index, const char* ending) {
  return numbered("optimizer", index, ending);
}
std::string scheduler_file(std::size_t index) { return numbered("scheduler", index, ".json"); }
std::string sampler_file(std::size_t index) { return numbered("sampler", index, ".json"); }
std::string object_file(const std::string& name) { return "custom_checkpoint_" + name + ".safetensors"; }
std::string random_file(std::size_t rank) { return fmt::format("random_states_{}.safetensors", rank); }

constexpr const char* kScalerFile = "scaler.json";
constexpr const char* kBucketsFile = "buckets.json";

/// A program with fewer or more models than the checkpoint is a different program.
void check_count(const fs::path& checkpoint, const char* what, const std::string& last,
                 const std::string& one_more, bool wants_any) {
  if (wants_any && !fs::exists(checkpoint / last)) {
    throw DataError("'" + checkpoint.string() + "' has no " + last + ": it was written with fewer " + what +
                    " than the program has prepared.");
  }
  if (fs::exists(checkpoint / one_more)) {
    throw DataError("'" + checkpoint.string() + "' has " + one_more + ": it was written with more " + what +
                    " than the program has prepared. Call prepare() for all before loading.");
  }
}

/// Null for an optimizer whose state is not sharded over ranks.
optim::ZeroRedundancyOptimizer* divided(torch::optim::Optimizer* optimizer) {
  return dynamic_cast<optim::ZeroRedundancyOptimizer*>(optimizer);
}

/// The optimizer that a file describes.
const torch::optim::Optimizer& described(torch::optim::Optimizer& optimizer) {
  const auto* const zero = divided(&optimizer);
  return zero != nullptr ? zero->local_optimizer() : optimizer;
}

std::vector<BucketLayout> read_buckets(const fs::path& path, std::size_t models) {
  try {
    auto buckets = read_json_document(path).get<std::vector<BucketLayout>>();
    buckets.resize(models);
    return buckets;
  } catch (const json::exception& error) {
    throw DataError("'" + path.string() + "' is not the layout of gradients: " + error.what());
  }
}

std::size_t size_of(const BucketLayout& layout) {
  std::size_t count = 0;
  for (const auto& bucket : layout) count += bucket.size();
  return count;
}

/// Between two epochs nothing of the next one has been read: its data may be other ones, as a validation set
/// that has grown.
void accept_other_data(std::size_t number, DataLoaderState& saved, const DataLoaderState& now,
                       const Accelerator& accelerator) {
  if (saved.samples > 0 || saved.dataset == now.dataset) return;
  if (accelerator.is_main_process()) {
    std::cerr
        << fmt::format(
               "lockstep: loader #{} reads another data set than when the checkpoint was written ({}; it "
               "was {}): it was between two epochs, so it continues with the new one\n",
               number, now.dataset, saved.dataset)
        << std::flush;
  }
  saved.dataset = now.dataset;
}

DataLoaderState read_position(const fs::path& path) {
  try {
    return loader_state_from(read_json_document(path));
  } catch (const json::exception& error) {
    throw DataError("'" + path.string() + "' is not the position of a loader: " + error.what());
  }
}

}  // namespace

std::string checkpoint_model_file(std::size_t index) { return numbered("model", index, ".safetensors"); }

struct TrainingState::Content {
  /// Replaces tensors that training changes with copies.
  void copy_tensors();
  FileDigests write(const fs::path& folder, const std::vector<std::string>& object_names, int threads);

  /// For sharded models and optimizers, `weights` and `optimizers` have only forms; `gathered` has the
  /// tensors, first the optimizers', then the models'.
  GatheredTensors gathered = {};
  std::vector<std::vector<NamedTensor>> weights = {};
  std::vector<TensorSource> models = {};
  std::vector<BucketLayout> buckets = {};
  std::vector<OptimizerState> optimizers = {};
  /// Tensors of sharded optimizers, which are read while they are distributed.
  std::vector<TensorSource> optimizer_tensors = {};
  std::vector<std::string> schedulers = {};
  std::string scaler = {};
  std::vector<DataLoaderState> loaders = {};
  /// DataLoaderState::parts of all ranks, per loader; empty except for streams.
  std::vector<std::vector<std::string>> parts = {};
  std::vector<SafeTensors> objects = {};
  std::vector<RandomState> random = {};
};

/// The models' parameters. If two models use the same name, the later one's gets the model's number as a
/// prefix.
std::vector<NamedTensor> TrainingState::parameter_names() const {
  std::vector<NamedTensor> names;
  std::map<std::string, const void*> taken;
  for (std::size_t model = 0; model < models_.size(); ++model) {
    for (const auto& entry : models_[model].tensors()) {
      const auto [place, is_new] = taken.emplace(entry.name, entry.tensor.unsafeGetTensorImpl());
      const bool clash = !is_new && place->second != entry.tensor.unsafeGetTensorImpl();
      names.push_back({clash ? fmt::format("model_{}.{}", model, entry.name) : entry.name, entry.tensor});
    }
  }
  return names;
}

ShardedModels TrainingState::sharded_models() const {
  ShardedModels result;
  for (const auto& model : models_) {
    if (model.wrapped.fsdp() != nullptr) result.push_back(model.wrapped.fsdp());
  }
  return result;
}

std::vector<std::string> TrainingState::object_names() const {
  std::vector<std::string> names;
  for (const auto& entry : objects_) names.push_back(entry.first);
  return names;
}

TrainingState::Content TrainingState::gather(const ProcessGroup& group, bool writes, bool at_once) const {
  Content content;
  const auto names = parameter_names();
  const auto sharded = sharded_models();
  for (auto* optimizer : optimizers_) {
    auto& state = content.optimizers.emplace_back();
    if (const auto* zero = divided(optimizer)) {
      state = consolidate_optimizer_state(*zero, names, writes);
    } else if (!sharded.empty() && at_once) {
      state = consolidate_optimizer_state({sharded.begin(), sharded.end()}, *optimizer, names, writes);
    } else if (!sharded.empty()) {
      state = queue_optimizer_state(content.gathered, sharded, *optimizer, names);
    }
  }
  for (const auto& model : models_) {
    if (sharded.empty()) break;
    const auto tensors = model.tensors();
    if (!at_once) queue_model(content.gathered, sharded, tensors);
    content.weights.push_back(at_once ? gather_whole(sharded, tensors, writes)
                                      : whole_forms(sharded, tensors));
  }
  for (const auto& [name, object] : objects_) content.objects.push_back(object->state_dict());
  for (const auto& model : models_) {
    auto* const ddp = model.wrapped.ddp();
    content.buckets.push_back(ddp == nullptr ? BucketLayout{} : ddp->bucket_layout());
  }
  for (const auto& loader : loaders_) {
    auto& parts = content.parts.emplace_back();
    if (loader.is_stream()) parts = group.all_gather_object(loader.state().parts.front());
  }
  content.random = gather_random_states(group);
  return content;
}

void TrainingState::add_own(Content& content) const {
  const auto names = parameter_names();
  for (std::size_t i = content.weights.size(); i < models_.size(); ++i)
    content.weights.push_back(models_[i].tensors());
  for (std::size_t i = 0; i < optimizers_.size(); ++i) {
    auto& state = content.optimizers[i];
    if (state.options.empty()) state = optimizer_state(*optimizers_[i], names);
  }
  for (const auto* scheduler : schedulers_) content.schedulers.push_back(scheduler->state_dict());
  for (std::size_t i = 0; i < loaders_.size(); ++i) {
    content.loaders.push_back(loaders_[i].state());
    content.loaders.back().parts = content.parts[i];
  }
  if (scaling_ != nullptr) content.scaler = scaling_->state_dict();
}

void TrainingState::Content::copy_tensors() {
  HostCopies host;
  const at::NoGradGuard no_grad;
  for (auto& model : weights) {
    // A tensor with several names stays one tensor.
    std::map<const void*, at::Tensor> copies;
    for (auto& entry : model) {
      auto& copy = copies[entry.tensor.unsafeGetTensorImpl()];
      if (!copy.defined()) copy = host.copy(entry.tensor);
      entry.tensor = copy;
    }
  }
  for (auto& optimizer : optimizers) {
    for (auto& entry : optimizer.tensors) entry.second = host.copy(entry.second);
  }
  for (auto& object : objects) {
    for (auto& entry : object.tensors) entry.second = host.copy(entry.second);
  }
  host.wait();
}

void TrainingState::save(const Accelerator& accelerator, const fs::path& path, CheckpointInfo info,
                         const SaveStateOptions& options, CheckpointWriter& writer) const {
  const bool may_write = options.save_on_each_node || accelerator.is_main_process();
  // An asynchronous save gathers now: what it writes must not change during training.
  auto content =
      std::make_shared<Content>(gather(accelerator.process_group(), may_write, options.asynchronous));
  info.world_size = accelerator.num_processes();
  info.lockstep_version = version();
  info.libtorch_version = TORCH_VERSION;
  if (!loaders_.empty()) info.epoch = loaders_.front().state().epoch;
  // One thread if training continues meanwhile; otherwise more cores are free.
  const int threads = options.asynchronous ? 1 : 2;
  const auto write = [content, path, info, threads, names = object_names(), add = options.add_files,
                      done = options.when_written] {
    write_checkpoint(path, info, [&](const fs::path& folder) {
      auto known = content->write(folder, names, threads);
      if (add) add(folder);
      return known;
    });
    if (done) done();
  };
  const auto save = [&] {
    content->gathered.during([&] {
      writer.wait();
      add_own(*content);
      if (!options.asynchronous) return write();
      content->copy_tensors();
      writer.start(write);
    });
  };
  const bool writes = options.save_on_each_node ? writes_for_its_node(accelerator, path.parent_path())
                                                : accelerator.is_main_process();
  if (!writes) content->gathered.drop_rest();
  if (!options.save_on_each_node) return accelerator.on_main_process(save);
  run_on_writers(accelerator, writes, save);
}

FileDigests TrainingState::Content::write(const fs::path& folder, const std::vector<std::string>& names,
                                          int threads) {
  FileDigests known;
  ParallelFileWriter jobs;
  const auto get = [&](const std::string& name) { return gathered.get(name); };
  const bool is_gathered_now = !gathered.empty();
  const auto add_json = [&](const std::string& name, const json& document) {
    jobs.add(name, [document](const fs::path& path) { return write_json(path, document); });
  };
  // The largest files first.
  const auto add = [&](const std::string& name, const auto& write) {
    // All ranks gather in the same order.
    if (is_gathered_now) return void(known[name] = write(folder / name));
    jobs.add(name, write);
  };
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    add(optimizer_file(i, ".safetensors"), [this, i, is_gathered_now, get](const fs::path& path) {
      TensorSource tensors = source_of(optimizers[i].tensors);
      if (is_gathered_now) tensors.get_tensor = get;
      tensors.metadata = {{"format", "pt"}};
      return save_file_from(tensors, path);
    });
    add_json(optimizer_file(i, ".json"), json::parse(optimizers[i].options));
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    add(checkpoint_model_file(i), [this, i, is_gathered_now, get](const fs::path& path) {
      return is_gathered_now ? write_model_file(path, weights[i], get) : write_model_file(path, weights[i]);
    });
  }
  for (std::size_t i = 0; i < schedulers.size(); ++i) add_json(scheduler_file(i), json::parse(schedulers[i]));
  if (!scaler.empty()) add_json(kScalerFile, json::parse(scaler));
  for (std::size_t i = 0; i < loaders.size(); ++i) add_json(sampler_file(i), to_json(loaders[i]));
  for (std::size_t i = 0; i < objects.size(); ++i)
    jobs.add(object_file(names[i]), [this, i](const fs::path& path) {
      return save_file(objects[i].tensors, path, objects[i].metadata);
    });
  for (std::size_t r = 0; r < random.size(); ++r)
    jobs.add(random_file(r), [this, r](const fs::path& path) { return write_random_state(path, random[r]); });
  add_json(kBucketsFile, buckets);
  known.merge(jobs.run(folder, threads));
  return known;
}

void TrainingState::load(const Accelerator& accelerator, const Checkpoint& checkpoint) const {
  Content content;
  accelerator.on_main_process([&] { content = read_files(checkpoint); });
  take_positions(accelerator, content);
  take_models(accelerator, content);
  take_optimizers(accelerator, content);
  take_schedulers(accelerator, content);
  take_objects(accelerator, content);
  if (checkpoint.info.world_size == accelerator.num_processes()) {
    scatter_random_states(accelerator.process_group(), content.random);
  } else {
    begin_new_random_states(accelerator.process_group(), content.random);
  }
}

TrainingState::Content TrainingState::read_files(const Checkpoint& checkpoint) const {
  const auto& path = checkpoint.path;
  Content content;
  const auto names = parameter_names();
  const auto last = [](std::size_t count) { return count == 0 ? 0 : count - 1; };
  check_count(path, "models", checkpoint_model_file(last(models_.size())),
              checkpoint_model_file(models_.size()), !models_.empty());
  check_count(path, "optimizers", optimizer_file(last(optimizers_.size()), ".json"),
              optimizer_file(optimizers_.size(), ".json"), !optimizers_.empty());
  check_count(path, "schedulers", scheduler_file(last(schedulers_.size())),
              scheduler_file(schedulers_.size()), !schedulers_.empty());
  check_count(path, "loaders", sampler_file(last(loaders_.size())), sampler_file(loaders_.size()),
              !loaders_.empty());
  for (std::size_t i = 0; i < models_.size(); ++i) {
    content.models.push_back(
        open_state(sharded_models(), path / checkpoint_model_file(i), models_[i].tensors()));
  }
  for (std::size_t i = 0; i < optimizers_.size(); ++i) {
    const auto file = path / optimizer_file(i, ".safetensors");
    TensorSource tensors = safe_open(file);
    content.optimizers.push_back(
        {tensors.forms, json_text(read_json_document(path / optimizer_file(i, ".json")))});
    check_optimizer_state(described(*optimizers_[i]), names, content.optimizers[i], "'" + file.string() + "'",
                          whole_forms(sharded_models(), names));
    // Without sharded models, the state is read immediately, so that an unreadable file changes nothing.
    if (sharded_models().empty()) {
      content.optimizers[i].tensors = get_tensors(tensors);
    } else {
      content.optimizer_tensors.push_back(std::move(tensors));
    }
  }
  for (std::size_t i = 0; i < schedulers_.size(); ++i)
    content.schedulers.push_back(json_text(read_json_document(path / scheduler_file(i))));
  if (scaling_ != nullptr && fs::exists(path / kScalerFile)) {
    content.scaler = json_text(read_json_document(path / kScalerFile));
  }
  for (std::size_t i = 0; i < loaders_.size(); ++i) {
    content.loaders.push_back(read_position(path / sampler_file(i)));
  }
  for (const auto& [name, object] : objects_) content.objects.push_back(load_file(path / object_file(name)));
  content.buckets = read_buckets(path / kBucketsFile, models_.size());
  for (std::size_t r = 0; r < static_cast<std::size_t>(checkpoint.info.world_size); ++r) {
    content.random.push_back(read_random_state(path / random_file(r)));
  }
  return content;
}

/// Called first: every rank rejects a position that does not fit this number of ranks before anything except
/// positions has changed.
void TrainingState::take_positions(const Accelerator& accelerator, const Content& content) const {
  json positions = json::array();
  for (const auto& state : content.loaders) positions.push_back(to_json(state));
  positions = accelerator.process_group().broadcast_object(positions);
  for (std::size_t i = 0; i < loaders_.size(); ++i) {
    auto saved = loader_state_from(positions[i]);
    if (!loaders_[i].is_stream()) accept_other_data(i + 1, saved, loaders_[i].state(), accelerator);
    loaders_[i].load_state(saved);
  }
}

void TrainingState::take_models(const Accelerator& accelerator, const Content& content) const {
  for (std::size_t i = 0; i < models_.size(); ++i) {
    scatter_whole(sharded_models(), accelerator.process_group(),
                  accelerator.is_main_process() ? content.models[i] : TensorSource{}, models_[i].tensors());
  }
  const json buckets = accelerator.process_group().broadcast_object(json(content.buckets));
  for (std::size_t i = 0; i < models_.size(); ++i) {
    const auto layout = buckets[i].get<BucketLayout>();
    auto* const ddp = models_[i].wrapped.ddp();
    // If other parameters are trained now, the model's own layout stays.
    if (ddp != nullptr && size_of(layout) == size_of(ddp->bucket_layout())) ddp->set_bucket_layout(layout);
  }
}

void TrainingState::take_optimizers(const Accelerator& accelerator, const Content& content) const {
  const bool main = accelerator.is_main_process();
  const auto names = parameter_names();
  for (std::size_t i = 0; i < optimizers_.size(); ++i) {
    OptimizerState state = main ? content.optimizers[i] : OptimizerState{};
    if (auto* const zero = divided(optimizers_[i])) {
      load_consolidated(*zero, names, state, accelerator.process_group(), "rank 0's optimizer state");
      continue;
    }
    if (const auto sharded = sharded_models(); !sharded.empty()) {
      load_consolidated(sharded, *optimizers_[i], names, main ? content.optimizer_tensors[i] : TensorSource{},
                        state.options, accelerator.process_group(), "rank 0's optimizer state");
      continue;
    }
    state.options = accelerator.process_group().broadcast_object(state.options);
    state.tensors = broadcast_tensors(accelerator.process_group(), state.tensors);
    load_optimizer_state(*optimizers_[i], names, state, "rank 0's optimizer state");
  }
}

/// Called after the optimizers: a scheduler sets their learning rates.
void TrainingState::take_schedulers(const Accelerator& accelerator, const Content& content) const {
  const bool main = accelerator.is_main_process();
  for (std::size_t i = 0; i < schedulers_.size(); ++i) {
    const std::string state = main ? content.schedulers[i] : "";
    schedulers_[i]->load_state_dict(accelerator.process_group().broadcast_object(state));
  }
  if (scaling_ == nullptr) return;
  const std::string state = accelerator.process_group().broadcast_object(content.scaler);
  if (!state.empty()) scaling_->load_state_dict(state);
}

void TrainingState::take_objects(const Accelerator& accelerator, const Content& content) const {
  const bool main = accelerator.is_main_process();
  for (std::size_t i = 0; i < objects_.size(); ++i) {
    SafeTensors state = main ? content.objects[i] : SafeTensors{};
    state.metadata = accelerator.process_group().broadcast_object(json(state.metadata)).get<TensorMetadata>();
    state.tensors = broadcast_tensors(accelerator.process_group(), state.tensors);
    for (auto& [name, tensor] : state.tensors) tensor = tensor.cpu();
    objects_[i].second->load_state_dict(state);
  }
}

}  // namespace lockstep::train
