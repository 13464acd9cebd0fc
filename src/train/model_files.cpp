#include "lockstep/train/model_files.hpp"

#include <algorithm>
#include <map>
#include <sstream>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

const void* identity(const NamedTensor& entry) { return entry.tensor.unsafeGetTensorImpl(); }

std::string form_of(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.scalar_type() << ' ' << tensor.sizes();
  return text.str();
}

bool same_form(const at::Tensor& one, const at::Tensor& other) {
  return one.scalar_type() == other.scalar_type() && one.sizes() == other.sizes();
}

/// Several complaints as one text that stays readable.
class Complaints {
 public:
  void add(const std::string& text) {
    if (++count_ <= kShown) text_ += (count_ == 1 ? "" : "; ") + text;
  }
  void throw_if_any(const std::filesystem::path& path) const {
    if (count_ == 0) return;
    const std::string more = count_ > kShown ? "; and " + std::to_string(count_ - kShown) + " more" : "";
    throw DataError(path.string() + " does not fit the model: " + text_ + more);
  }

 private:
  static constexpr int kShown = 8;
  int count_ = 0;
  std::string text_;
};

/// The file's entry for each tensor, found under any of the tensor's names.
std::map<const void*, const at::Tensor*> match(const TensorMap& file,
                                               const std::vector<NamedTensor>& tensors) {
  std::map<const void*, const at::Tensor*> found;
  for (const auto& entry : tensors) {
    const auto in_file = file.find(entry.name);
    if (in_file != file.end()) found.emplace(identity(entry), &in_file->second);
  }
  return found;
}

bool has_name(const std::vector<NamedTensor>& tensors, const std::string& name) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const NamedTensor& entry) { return entry.name == name; });
}

}  // namespace

void write_model_file(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  TensorMap content;
  std::map<const void*, std::string> seen;
  for (const auto& entry : tensors) {
    if (seen.emplace(identity(entry), entry.name).second) content.emplace(entry.name, entry.tensor);
  }
  save_file(content, path, {{"format", "pt"}});
}

void write_model(const std::filesystem::path& folder, const std::vector<NamedTensor>& tensors) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) throw Error("cannot make the folder " + folder.string() + ": " + failure.message());
  write_model_file(folder / kModelFileName, tensors);
}

SafeTensors load_for_model(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  const auto file = std::filesystem::is_directory(path) ? path / kModelFileName : path;
  SafeTensors content = load_file(file);
  const auto found = match(content.tensors, tensors);
  Complaints complaints;
  for (const auto& entry : tensors) {
    const auto place = found.find(identity(entry));
    if (place == found.end()) {
      complaints.add("'" + entry.name + "' (" + form_of(entry.tensor) + ") is missing");
    } else if (!same_form(*place->second, entry.tensor)) {
      complaints.add("'" + entry.name + "' is " + form_of(*place->second) + ", expected " +
                     form_of(entry.tensor));
    }
  }
  for (const auto& [name, tensor] : content.tensors) {
    if (!has_name(tensors, name))
      complaints.add("'" + name + "' (" + form_of(tensor) + ") is not part of the model");
  }
  complaints.throw_if_any(file);
  return content;
}

void copy_into(const SafeTensors& content, const std::vector<NamedTensor>& tensors) {
  const auto found = match(content.tensors, tensors);
  const at::NoGradGuard no_grad;
  for (const auto& entry : tensors) entry.tensor.detach().copy_(*found.at(identity(entry)));
}

void read_model(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  copy_into(load_for_model(path, tensors), tensors);
}

}  // namespace lockstep
