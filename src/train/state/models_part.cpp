#include "train/state/models_part.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "core/checksum.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "parallel/module_agreement.hpp"
#include "train/adapter_meaning.hpp"
#include "train/model_content.hpp"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

std::string whole_model_file(std::size_t number) { return numbered_file("model", number, ".safetensors"); }
std::string adapter_file(std::size_t number) {
  return numbered_file("adapter_model", number, ".safetensors");
}
std::string adapter_config_file(std::size_t number) {
  return numbered_file("adapter_config", number, ".json");
}

const void* implementation_of(const NamedTensor& entry) { return entry.tensor.unsafeGetTensorImpl(); }

std::set<const void*> implementations_of(const std::vector<NamedTensor>& tensors) {
  std::set<const void*> all;
  for (const auto& entry : tensors) all.insert(implementation_of(entry));
  return all;
}

/// A model's tensors by their names in the file of its adapter.
std::vector<NamedTensor> by_adapter_names(std::vector<NamedTensor> tensors,
                                          const parallel::AdapterForm& adapter) {
  std::map<const void*, std::string> names;
  for (const auto& entry : adapter.tensors) names.emplace(implementation_of(entry), entry.name);
  for (auto& entry : tensors) {
    const auto found = names.find(implementation_of(entry));
    entry.name = found == names.end() ? adapter.prefix + entry.name : found->second;
  }
  return tensors;
}

std::vector<NamedTensor> without(std::vector<NamedTensor> tensors, const std::vector<NamedTensor>& others) {
  const auto gone = implementations_of(others);
  std::erase_if(tensors, [&](const NamedTensor& entry) { return gone.contains(implementation_of(entry)); });
  return tensors;
}

std::string describe_frozen(const FrozenWeights& frozen) {
  return fmt::format("{}{} frozen parameters, {} bytes, CRC-32C {}",
                     frozen.base.empty() ? "" : fmt::format("'{}': ", frozen.base), frozen.parameters,
                     frozen.bytes, checksum_text(frozen.crc32c));
}

void compare_frozen(const fs::path& checkpoint, const FrozenWeights& saved, const FrozenWeights& own) {
  if (saved.crc32c == own.crc32c && saved.parameters == own.parameters && saved.bytes == own.bytes) return;
  throw DataError(
      fmt::format("'{}' has only what was trained of a model, and belongs to other frozen weights than the "
                  "program's: it was written for {}; the program has {}. Load the model that the training "
                  "began with, in the same dtype",
                  checkpoint.string(), describe_frozen(saved), describe_frozen(own)));
}

TensorMap by_name(const std::vector<NamedTensor>& tensors) {
  TensorMap result;
  for (const auto& entry : tensors) result.emplace(entry.name, entry.tensor.detach());
  return result;
}

}  // namespace

ModelsPart::ModelsPart(std::vector<PreparedModel> models)
    : models_(std::move(models)), numbers_(models_.size()) {
  std::iota(numbers_.begin(), numbers_.end(), std::size_t{0});
}

ModelsPart::ModelsPart(const std::vector<std::pair<std::size_t, PreparedModel>>& models) {
  for (const auto& [number, model] : models) {
    numbers_.push_back(number);
    models_.push_back(model);
  }
}

std::vector<NamedTensor> ModelsPart::parameter_names() const {
  std::vector<NamedTensor> names;
  std::map<std::string, const void*> taken;
  for (std::size_t model = 0; model < models_.size(); ++model) {
    for (const auto& entry : models_[model].contents.state()) {
      const auto [first, is_new] = taken.emplace(entry.name, implementation_of(entry));
      const bool clash = !is_new && first->second != implementation_of(entry);
      names.push_back({clash ? fmt::format("model_{}.{}", model, entry.name) : entry.name, entry.tensor});
    }
  }
  return names;
}

ModelsPart::Content ModelsPart::content_to_save(std::size_t model, const GatherOptions& options) {
  const auto& [contents, wrapped, owner, frozen] = models_[model];
  const auto adapter = contents.adapter();
  Content content{.tensors = contents.state(), .config = adapter ? adapter->config : std::string()};
  if (!options.trained_only.value_or(adapter.has_value())) return content;
  const auto untouched = frozen->untouched(contents.parameters(), options.group);
  FrozenWeights& left_out = frozen_.emplace_back(frozen->digest(untouched, options.group));
  left_out.model = static_cast<std::int64_t>(numbers_[model]);
  content.tensors = without(std::move(content.tensors), untouched);
  if (!adapter) return content;
  left_out.base = adapter->base;
  content.tensors = by_adapter_names(std::move(content.tensors), *adapter);
  content.is_adapter = true;
  return content;
}

void ModelsPart::gather(const GatherOptions& options) {
  const auto sharded = sharded_models();
  for (std::size_t i = 0; i < models_.size(); ++i) {
    Content& content = contents_.emplace_back(content_to_save(i, options));
    if (sharded.empty()) continue;
    if (options.at_once) {
      content.tensors = gather_whole(sharded, content.tensors, options.writes);
    } else {
      queue_model(options.queue, sharded, content.tensors, kOneFile);
      content.tensors = whole_forms(sharded, content.tensors);
    }
  }
}

void ModelsPart::detach(HostCopies& host) {
  models_.clear();
  for (auto& model : contents_) {
    // A tensor with several names stays one tensor.
    std::map<const void*, at::Tensor> copies;
    for (auto& entry : model.tensors) {
      auto& copy = copies[implementation_of(entry)];
      if (!copy.defined()) copy = host.copy(entry.tensor);
      entry.tensor = copy;
    }
  }
}

std::string ModelsPart::file_of(std::size_t model, bool is_adapter) const {
  return is_adapter ? adapter_file(numbers_[model]) : whole_model_file(numbers_[model]);
}

void ModelsPart::write(CheckpointFiles& files) const {
  for (std::size_t i = 0; i < contents_.size(); ++i) {
    const Content& content = contents_[i];
    files.add_tensors(file_of(i, content.is_adapter), [&content](const fs::path& path, const GetTensor& get) {
      return get ? write_model_file(path, content.tensors, get) : write_model_file(path, content.tensors);
    });
    if (!content.config.empty()) {
      files.add(adapter_config_file(numbers_[i]),
                [&content](const fs::path& path) { return write_atomically(path, content.config); });
    }
  }
}

std::string ModelsPart::find_file(const Checkpoint& checkpoint, std::size_t number) const {
  const bool is_adapter = !fs::exists(checkpoint.path / whole_model_file(number)) &&
                          fs::exists(checkpoint.path / adapter_file(number));
  return is_adapter ? adapter_file(number) : whole_model_file(number);
}

void ModelsPart::prepare_reading(const Accelerator& accelerator, const Checkpoint& checkpoint) {
  for (std::size_t i = 0; i < models_.size(); ++i) {
    const auto& [contents, wrapped, owner, frozen] = models_[i];
    wanted_.push_back(contents.state());
    auto& lacking = lacking_.emplace_back();
    const auto adapter = contents.adapter();
    if (adapter) {
      accelerator.on_main_process([&] {
        const auto file = checkpoint.path / find_file(checkpoint, numbers_[i]);
        const auto config = checkpoint.path / adapter_config_file(numbers_[i]);
        // Whole checkpoints of earlier versions have none.
        if (file.filename() == adapter_file(numbers_[i]) || fs::exists(config))
          check_same_adapter(config, adapter->config);
      });
    }
    const auto& saved = checkpoint.info.frozen;
    const bool is_partial = std::any_of(saved.begin(), saved.end(), [&](const FrozenWeights& each) {
      return each.model == static_cast<std::int64_t>(numbers_[i]);
    });
    if (!is_partial) continue;
    const auto parameters = parallel::without_repeats(contents.parameters());
    // Which of them the file lacks, and whether its names are an adapter's: '1' and '0'.
    std::string found;
    accelerator.on_main_process([&] {
      const auto file = checkpoint.path / find_file(checkpoint, numbers_[i]);
      const bool is_adapter = file.filename() == adapter_file(numbers_[i]);
      if (is_adapter && !adapter) {
        throw DataError(fmt::format(
            "'{}' has an adapter, and the program's model has none: add it (models::add_lora) before "
            "prepare()",
            file.string()));
      }
      const auto in_file = open_model_file(file).forms;
      const auto by_name = is_adapter ? by_adapter_names(parameters, *adapter) : parameters;
      found += is_adapter ? '1' : '0';
      for (const auto& entry : by_name) found += in_file.contains(entry.name) ? '1' : '0';
    });
    found = accelerator.process_group().broadcast_object(found);
    std::vector<NamedTensor> absent;
    for (std::size_t number = 0; number < parameters.size(); ++number) {
      // A trained one has to be there.
      if (found.at(number + 1) == '0' && !parameters[number].tensor.requires_grad())
        absent.push_back(parameters[number]);
    }
    lacking = frozen->digest(absent, accelerator.process_group());
    wanted_.back() = without(std::move(wanted_.back()), absent);
    if (adapter) lacking.base = adapter->base;
    if (found.front() == '1') wanted_.back() = by_adapter_names(std::move(wanted_.back()), *adapter);
  }
}

void ModelsPart::read(const Checkpoint& checkpoint) {
  check_file_count(checkpoint.path, "models", models_.size(),
                   [&](std::size_t number) { return find_file(checkpoint, number); });
  read_models(checkpoint);
}

void ModelsPart::read_models(const Checkpoint& checkpoint) {
  for (std::size_t i = 0; i < models_.size(); ++i) {
    const auto file = checkpoint.path / find_file(checkpoint, numbers_[i]);
    read_.push_back(open_state(sharded_models(), file, wanted_.at(i)));
    for (const auto& saved : checkpoint.info.frozen) {
      if (saved.model == static_cast<std::int64_t>(numbers_[i]))
        compare_frozen(checkpoint.path, saved, lacking_.at(i));
    }
  }
}

void ModelsPart::apply(const Accelerator& accelerator, const CheckpointInfo&) {
  read_.resize(models_.size());
  const ProcessGroup& group = accelerator.process_group();
  for (std::size_t i = 0; i < models_.size(); ++i) {
    const auto state = is_given() ? models_[i].contents.state() : wanted_.at(i);
    if (is_giver(group)) read_[i] = source_of(by_name(state));
    scatter_whole(sharded_models(), group, read_[i], state, root());
  }
}

std::string ModelsPart::why_not_given() const {
  return sharded_models().empty() ? "" : "each rank has a shard of its own of a fully sharded model";
}

}  // namespace lockstep::train
