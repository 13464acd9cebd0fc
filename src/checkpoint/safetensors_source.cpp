#include "checkpoint/safetensors_source.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <memory>

#include "checkpoint/safetensors_file.hpp"
#include "checkpoint/tensor_dtypes.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian and tensors are written as they lie");

namespace lockstep {
namespace {

using safetensors::Entry;
using safetensors::Header;

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw UsageError(fmt::format("cannot write tensor '{}' into a safetensors file: {}", name, why));
}

std::string dtype_name(const std::string& name, const at::Tensor& tensor) {
  const char* dtype = safetensors::name_of_dtype(tensor.scalar_type());
  if (dtype != nullptr) return dtype;
  refuse(name,
         fmt::format("the format has no name for its dtype, {}. Convert it first.", tensor.dtype().name()));
}

Entry entry_of(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined()) refuse(name, "it is undefined.");
  if (tensor.layout() != at::kStrided) refuse(name, "it is not dense. Call to_dense() first.");
  return {.name = name, .dtype = dtype_name(name, tensor), .shape = tensor.sizes().vec()};
}

Header header_of(const TensorMap& forms, const TensorMetadata& metadata = {}) {
  Header header{.entries = {}, .metadata = metadata};
  for (const auto& [name, form] : forms) header.entries.push_back(entry_of(name, form));
  return header;
}

/// How much of a GPU's tensor is in host memory at a time.
constexpr std::int64_t kStagedBytes = std::int64_t{1} << 24;

/// Tensors of a GPU pass through `staged`, which is page-locked and made for the first of them: it costs
/// neither the memory of whole copies nor the time that their new pages take.
void write(AtomicFile& file, const at::Tensor& tensor, at::Tensor& staged) {
  const at::Tensor values = tensor.detach().resolve_conj().resolve_neg();
  if (!values.is_cuda() || !values.is_contiguous()) {
    const at::Tensor data = values.to(at::kCPU).contiguous();
    return file.write(data.const_data_ptr(), data.nbytes());
  }
  const at::Tensor bytes = values.view(-1).view(at::kByte);
  if (!staged.defined()) staged = at::empty({kStagedBytes}, at::TensorOptions(at::kByte).pinned_memory(true));
  for (std::int64_t begin = 0; begin < bytes.numel(); begin += kStagedBytes) {
    const auto count = std::min(kStagedBytes, bytes.numel() - begin);
    staged.narrow(0, 0, count).copy_(bytes.narrow(0, begin, count));
    file.write(staged.const_data_ptr(), static_cast<std::size_t>(count));
  }
}

}  // namespace

std::vector<std::string> names_in_file_order(const TensorMap& forms) {
  Header header = header_of(forms);
  safetensors::make_header(header);
  std::vector<std::string> names;
  for (const auto& entry : header.entries) names.push_back(entry.name);
  return names;
}

FileDigest save_file_from(const TensorSource& source, const std::filesystem::path& path) {
  Header header = header_of(source.forms, source.metadata);
  const auto head = safetensors::make_header(header);
  AtomicFile file(path);
  file.write(head);
  at::Tensor staged;
  for (const auto& entry : header.entries) write(file, source.get_tensor(entry.name), staged);
  return file.commit();
}

TensorSource safe_open(const std::filesystem::path& path) {
  const auto file = std::make_shared<const safetensors::File>(path);
  TensorSource source{.forms = {}, .get_tensor = {}, .metadata = file->header().metadata};
  std::map<std::string, Entry> entries;
  for (const auto& entry : file->header().entries) {
    const auto options = at::TensorOptions(at::kMeta).dtype(safetensors::scalar_type_of(entry.dtype));
    source.forms.emplace(entry.name, at::empty(entry.shape, options));
    entries.emplace(entry.name, entry);
  }
  source.get_tensor = [file, entries = std::move(entries)](const std::string& name) {
    const Entry& entry = entries.at(name);
    at::Tensor tensor =
        at::empty(entry.shape, at::TensorOptions().dtype(safetensors::scalar_type_of(entry.dtype)));
    file->read(entry, 0, tensor.mutable_data_ptr(), entry.end - entry.begin);
    return tensor;
  };
  return source;
}

}  // namespace lockstep
