#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.hpp"
#include "lockstep/parallel/adapter_layer.hpp"
#include "lockstep/train/model_files.hpp"

namespace lockstep {

/// The file that a path means: for a folder, its index if there is one, otherwise its model file.
std::filesystem::path model_file_of(const std::filesystem::path& path);

/// The tensors of such a file; for an index, those of all its files. Throws DataError, also if a tensor is in
/// two files.
TensorSource open_model_file(const std::filesystem::path& file);

/// Like load_for_model, but tensors are read when they are requested. `tensors` may be meta tensors.
TensorSource open_for_model(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors);

/// The content's entry of each tensor, found by any of the tensor's names; the keys are the TensorImpls.
/// *Local*.
std::map<const void*, const at::Tensor*> match_tensors(const TensorMap& content,
                                                       const std::vector<NamedTensor>& tensors);

/// Like write_model() and write_model_file(), but tensors are created when they are requested, in the order
/// of model_file_order(); `forms` may be meta tensors.
using GetTensor = std::function<at::Tensor(const std::string& name)>;
/// Finds tensors by name among these.
GetTensor get_from(const std::vector<NamedTensor>& tensors);
void write_model(const std::filesystem::path& folder, const std::vector<NamedTensor>& forms,
                 const GetTensor& get_tensor, std::uint64_t max_shard_bytes);
FileDigest write_model_file(const std::filesystem::path& path, const std::vector<NamedTensor>& forms,
                            const GetTensor& get_tensor);
std::vector<std::string> model_file_order(const std::vector<NamedTensor>& forms,
                                          std::uint64_t max_shard_bytes = kMaxShardBytes);

/// Writes `folder`/adapter_model.safetensors and adapter_config.json, which comes last, as PEFT does. Creates
/// the folder if needed. `forms`: the adapter's tensors or their forms.
void write_adapter(const std::filesystem::path& folder, const parallel::AdapterForm& adapter,
                   const std::vector<NamedTensor>& forms, const GetTensor& get_tensor);
/// Whether a path means an adapter: its file, or a folder that has one and no whole model.
bool is_adapter_file(const std::filesystem::path& path);

/// A tensor's dtype and shape, for messages.
std::string tensor_form(const at::Tensor& tensor);

/// Collects mismatches into one text of limited length.
class MismatchReport {
 public:
  void add(const std::string& text);
  /// Throws DataError with the file's name if there are any.
  void throw_if_any(const std::filesystem::path& file) const;

 private:
  int count_ = 0;
  std::string text_;
};

}  // namespace lockstep
