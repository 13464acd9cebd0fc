#include "lockstep/checkpoint/safetensors.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <bit>
#include <sstream>

#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"
#include "safetensors_file.hpp"

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian and tensors are written as they lie");

namespace lockstep {
namespace {

using safetensors::Entry;
using safetensors::Header;

struct NamedType {
  const char* name;
  at::ScalarType type;
};

constexpr std::array kTypes = {
    NamedType{"F64", at::kDouble},
    NamedType{"F32", at::kFloat},
    NamedType{"F16", at::kHalf},
    NamedType{"BF16", at::kBFloat16},
    NamedType{"I64", at::kLong},
    NamedType{"I32", at::kInt},
    NamedType{"I16", at::kShort},
    NamedType{"I8", at::kChar},
    NamedType{"U8", at::kByte},
    NamedType{"U16", at::kUInt16},
    NamedType{"U32", at::kUInt32},
    NamedType{"U64", at::kUInt64},
    NamedType{"BOOL", at::kBool},
    NamedType{"C64", at::kComplexFloat},
    NamedType{"F8_E5M2", at::kFloat8_e5m2},
    NamedType{"F8_E5M2FNUZ", at::kFloat8_e5m2fnuz},
    NamedType{"F8_E4M3", at::kFloat8_e4m3fn},
    NamedType{"F8_E4M3FNUZ", at::kFloat8_e4m3fnuz},
    NamedType{"F8_E8M0", at::kFloat8_e8m0fnu},
};

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw UsageError("cannot write tensor '" + name + "' into a safetensors file: " + why);
}

std::string dtype_name(const std::string& name, const at::Tensor& tensor) {
  const auto found = std::find_if(kTypes.begin(), kTypes.end(),
                                  [&](const auto& known) { return known.type == tensor.scalar_type(); });
  if (found != kTypes.end()) return found->name;
  std::ostringstream why;
  why << "the format has no name for its dtype, " << tensor.dtype() << ". Convert it first.";
  refuse(name, why.str());
}

Entry entry_of(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined()) refuse(name, "it is undefined.");
  if (tensor.layout() != at::kStrided) refuse(name, "it is not dense. Call to_dense() first.");
  if (tensor.is_meta()) refuse(name, "it is a meta tensor, which has no data.");
  return {.name = name, .dtype = dtype_name(name, tensor), .shape = tensor.sizes().vec()};
}

/// The tensor's elements one after another in this host's memory; the same storage where that is so already.
at::Tensor plain(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU).resolve_conj().resolve_neg().contiguous();
}

at::ScalarType scalar_type(const std::string& dtype) {
  // The header was checked: every dtype that it knows is in the table.
  return std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& known) { return known.name == dtype; })
      ->type;
}

}  // namespace

FileDigest save_file(const TensorMap& tensors, const std::filesystem::path& path,
                     const TensorMetadata& metadata) {
  Header header{.entries = {}, .metadata = metadata};
  for (const auto& [name, tensor] : tensors) header.entries.push_back(entry_of(name, tensor));
  const auto head = safetensors::make_header(header);
  AtomicFile file(path);
  file.write(head);
  for (const auto& entry : header.entries) {
    const auto data = plain(tensors.at(entry.name));
    file.write(data.const_data_ptr(), data.nbytes());
  }
  return file.commit();
}

SafeTensors load_file(const std::filesystem::path& path) {
  InputFile file(path);
  auto header = safetensors::read_header(file, path.string());
  SafeTensors loaded{.tensors = {}, .metadata = std::move(header.metadata)};
  for (const auto& entry : header.entries) {
    auto tensor = at::empty(entry.shape, at::TensorOptions().dtype(scalar_type(entry.dtype)));
    file.read(tensor.mutable_data_ptr(), entry.end - entry.begin);
    loaded.tensors.emplace(entry.name, std::move(tensor));
  }
  return loaded;
}

}  // namespace lockstep
