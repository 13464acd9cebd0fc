#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/process_group_impl.hpp"
#include "comm/set_up_record.hpp"
#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using nlohmann::json;

at::Tensor to_tensor(const std::string& bytes, std::int64_t padded_size, const at::Device& device) {
  at::Tensor tensor = at::empty({padded_size}, at::kByte);
  std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return tensor.to(device);
}

std::string to_string(const at::Tensor& tensor, std::int64_t size) {
  const at::Tensor bytes = tensor.cpu();
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::size_t>(size)};
}

at::Tensor number(std::size_t value, const at::Device& device) {
  return at::full({1}, static_cast<std::int64_t>(value), at::TensorOptions(device).dtype(at::kLong));
}

std::string valid_text(const std::string& text) {
  const auto is_ascii = [](unsigned char letter) { return letter < 0x80; };
  if (std::all_of(text.begin(), text.end(), is_ascii)) return text;
  return json::parse(json_text_with_replacements(json(text))).get<std::string>();
}

/// A copy that can be written as text, which receivers do: with invalid UTF-8 replaced.
json with_valid_texts(const json& object) {
  if (object.is_string()) return valid_text(object.get_ref<const std::string&>());
  if (!object.is_structured()) return object;
  json copy = object.is_array() ? json::array() : json::object();
  for (const auto& [key, value] : object.items()) {
    if (object.is_array()) {
      copy.push_back(with_valid_texts(value));
    } else {
      copy[valid_text(key)] = with_valid_texts(value);
    }
  }
  return copy;
}

/// Binary, because JSON's text has no NaN or infinity.
std::string pack(const json& object) {
  std::string bytes;
  json::to_cbor(with_valid_texts(object), bytes);
  return bytes;
}

json unpack(const std::string& bytes) { return json::from_cbor(bytes); }

std::string send_object(const ProcessGroup& group, const std::string& object, int root) {
  const at::Device device = group.object_device();
  const at::Tensor size_tensor = number(object.size(), device);
  group.broadcast(size_tensor, root);
  const std::int64_t bytes = size_tensor.item<std::int64_t>();
  if (bytes == 0) return "";
  const bool sends = group.rank() == root;
  const at::Tensor payload = sends ? to_tensor(object, bytes, device)
                                   : at::empty({bytes}, at::TensorOptions(device).dtype(at::kByte));
  group.broadcast(payload, root);
  return sends ? object : to_string(payload, bytes);
}

std::vector<std::string> collect_objects(const ProcessGroup& group, const std::string& object) {
  const at::Device device = group.object_device();
  std::vector<std::int64_t> sizes;
  for (const auto& tensor : group.all_gather(number(object.size(), device))) {
    sizes.push_back(tensor.item<std::int64_t>());
  }
  const std::int64_t longest = *std::max_element(sizes.begin(), sizes.end());
  std::vector<std::string> result(sizes.size());
  if (longest == 0) return result;
  const auto payloads = group.all_gather(to_tensor(object, longest, device));
  for (std::size_t r = 0; r < sizes.size(); ++r) result[r] = to_string(payloads[r], sizes[r]);
  return result;
}

std::string deal_objects(const ProcessGroup& group, const std::vector<std::string>& objects, int root) {
  const bool is_root = group.rank() == root;
  const at::Device device = group.object_device();
  std::size_t most = 0;
  std::vector<at::Tensor> sizes;
  for (const auto& object : is_root ? objects : std::vector<std::string>{}) {
    sizes.push_back(number(object.size(), device));
    most = std::max(most, object.size());
  }
  const at::Tensor padded = number(most, device);
  group.broadcast(padded, root);
  const std::int64_t longest = padded.item<std::int64_t>();
  const at::Tensor own_size = number(0, device);
  group.scatter(own_size, sizes, root);
  if (longest == 0) return "";
  std::vector<at::Tensor> payloads;
  for (const auto& object : is_root ? objects : std::vector<std::string>{}) {
    payloads.push_back(to_tensor(object, longest, device));
  }
  const at::Tensor own = at::empty({longest}, at::TensorOptions(device).dtype(at::kByte));
  group.scatter(own, payloads, root);
  return to_string(own, own_size.item<std::int64_t>());
}

}  // namespace

at::Device ProcessGroup::object_device() const {
  return impl_->options.backend == CommBackend::nccl ? impl_->options.device : at::Device(at::kCPU);
}

// In a job that replaces lost ranks, the objects of the set-up are kept for new processes: see SetUpRecord.

std::string ProcessGroup::broadcast_object(const std::string& object, int root) const {
  const auto& set_up = impl_->connections->diagnostics->set_up;
  if (!set_up) return send_object(*this, object, root);
  return set_up
      ->result(impl_->path, fmt::format("broadcast_object of rank {}", root), "", rank() == 0,
               [&] { return std::vector{send_object(*this, object, root)}; })
      .front();
}

std::vector<std::string> ProcessGroup::all_gather_object(const std::string& object) const {
  const auto& set_up = impl_->connections->diagnostics->set_up;
  if (!set_up) return collect_objects(*this, object);
  return set_up->result(impl_->path, "all_gather_object", "", rank() == 0,
                        [&] { return collect_objects(*this, object); });
}

std::string ProcessGroup::scatter_object(const std::vector<std::string>& objects, int root) const {
  if (rank() == root && objects.size() != static_cast<std::size_t>(size())) {
    throw UsageError(
        fmt::format("scatter_object: expected {} objects at the root, one for each rank, but got {}", size(),
                    objects.size()));
  }
  const auto& set_up = impl_->connections->diagnostics->set_up;
  if (!set_up) return deal_objects(*this, objects, root);
  return set_up
      ->result(impl_->path, fmt::format("scatter_object of rank {}", root), std::to_string(rank()), true,
               [&] { return std::vector{deal_objects(*this, objects, root)}; })
      .front();
}

std::string ProcessGroup::broadcast_object(const char* object, int root) const {
  return broadcast_object(std::string(object), root);
}

json ProcessGroup::broadcast_object(const json& object, int root) const {
  return unpack(broadcast_object(rank() == root ? pack(object) : std::string(), root));
}

std::vector<json> ProcessGroup::all_gather_object(const json& object) const {
  std::vector<json> result;
  for (const auto& text : all_gather_object(pack(object))) result.push_back(unpack(text));
  return result;
}

json ProcessGroup::scatter_object(const std::vector<json>& objects, int root) const {
  std::vector<std::string> texts;
  for (const auto& object : objects) texts.push_back(pack(object));
  return unpack(scatter_object(texts, root));
}

}  // namespace lockstep
