#pragma once

#include <filesystem>
#include <string>

#include "../checkpoint/tensor_source.hpp"
#include "lockstep/train/model_files.hpp"

namespace lockstep {

/// The file that a path means: a folder's model, in one file or by its index.
std::filesystem::path model_file_of(const std::filesystem::path& path);

/// The tensors of such a file, for an index those of all its files. Throws DataError, also where a tensor is
/// in two files.
TensorSource open_model_file(const std::filesystem::path& file);

/// As load_for_model, of tensors that are read when they are asked for. `tensors` may be meta tensors.
TensorSource open_for_model(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors);

/// As write_model() and write_model_file(), of tensors that are made when they are asked for; `forms` may be
/// meta tensors. They are asked for in the order of model_file_order().
using GetTensor = std::function<at::Tensor(const std::string& name)>;
void write_model(const std::filesystem::path& folder, const std::vector<NamedTensor>& forms,
                 const GetTensor& get_tensor, std::uint64_t max_shard_bytes);
FileDigest write_model_file(const std::filesystem::path& path, const std::vector<NamedTensor>& forms,
                            const GetTensor& get_tensor);
std::vector<std::string> model_file_order(const std::vector<NamedTensor>& forms,
                                          std::uint64_t max_shard_bytes = kMaxShardBytes);

/// A tensor's dtype and shape, for messages.
std::string tensor_form(const at::Tensor& tensor);

/// What does not fit, as one text that stays readable.
class MismatchReport {
 public:
  void add(const std::string& text);
  /// Throws DataError, naming the file, when there is any.
  void throw_if_any(const std::filesystem::path& file) const;

 private:
  int count_ = 0;
  std::string text_;
};

}  // namespace lockstep
