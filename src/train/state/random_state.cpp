#include "train/state/random_state.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <cstring>
#include <mutex>

#include "core/checksum.hpp"
#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::train {
namespace {

/// A seed and an offset, as at::CUDAGeneratorImpl writes them.
constexpr std::size_t kCudaStateBytes = 2 * sizeof(std::uint64_t);

at::Generator generator_of(const at::Device& device) {
  return device.is_cuda() ? at::globalContext().defaultGenerator(device)
                          : at::detail::getDefaultCPUGenerator();
}

std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.cpu().contiguous();
  return {static_cast<const char*>(plain.const_data_ptr()), plain.nbytes()};
}

at::Tensor tensor_of(const std::string& bytes) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

std::string state_of(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return bytes_of(generator.get_state());
}

void set_state(at::Generator generator, const std::string& bytes) {
  const std::lock_guard lock(generator.mutex());
  generator.set_state(tensor_of(bytes));
}

void seed(at::Generator generator, std::uint64_t value) {
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(value);
}

/// Throws DataError unless the tensor has as many bytes as a generator's state.
void check_size(const std::filesystem::path& path, const char* name, const at::Tensor* tensor,
                std::size_t wanted) {
  if (tensor != nullptr && tensor->nbytes() == wanted) return;
  throw DataError(fmt::format("'{}' has no tensor '{}' with the {} bytes of a random generator{}.",
                              path.string(), name, wanted,
                              tensor == nullptr ? "" : fmt::format(", but one with {}", tensor->nbytes())));
}

std::vector<std::string> parts(const std::vector<RandomState>& states, std::string RandomState::*part) {
  std::vector<std::string> result;
  for (const auto& state : states) result.push_back(state.*part);
  return result;
}

}  // namespace

RandomState random_state(const at::Device& device) {
  return {.cpu = state_of(generator_of(at::kCPU)),
          .cuda = device.is_cuda() ? state_of(generator_of(device)) : ""};
}

std::vector<RandomState> gather_random_states(const ProcessGroup& group) {
  const RandomState own = random_state(group.device());
  const auto cpu = group.all_gather_object(own.cpu);
  const auto cuda = group.all_gather_object(own.cuda);
  std::vector<RandomState> states;
  for (std::size_t rank = 0; rank < cpu.size(); ++rank) states.push_back({cpu[rank], cuda[rank]});
  return states;
}

FileDigest write_random_state(const std::filesystem::path& path, const RandomState& state) {
  TensorMap tensors{{"cpu", tensor_of(state.cpu)}};
  if (!state.cuda.empty()) tensors.emplace("cuda", tensor_of(state.cuda));
  return save_file(tensors, path);
}

RandomState read_random_state(const std::filesystem::path& path) {
  const TensorMap tensors = load_file(path).tensors;
  const auto find = [&](const char* name) {
    const auto found = tensors.find(name);
    return found == tensors.end() ? nullptr : &found->second;
  };
  const at::Tensor* const cpu = find("cpu");
  const at::Tensor* const cuda = find("cuda");
  check_size(path, "cpu", cpu, state_of(generator_of(at::kCPU)).size());
  if (cuda != nullptr) check_size(path, "cuda", cuda, kCudaStateBytes);
  return {.cpu = bytes_of(*cpu), .cuda = cuda != nullptr ? bytes_of(*cuda) : ""};
}

void scatter_random_states(const ProcessGroup& group, const std::vector<RandomState>& states) {
  set_state(generator_of(at::kCPU), group.scatter_object(parts(states, &RandomState::cpu)));
  const std::string cuda = group.scatter_object(parts(states, &RandomState::cuda));
  if (group.device().is_cuda() && !cuda.empty()) set_state(generator_of(group.device()), cuda);
}

void begin_new_random_states(const ProcessGroup& group, const std::vector<RandomState>& states) {
  const std::string first = group.broadcast_object(states.empty() ? std::string() : states.front().cpu);
  const auto rank = static_cast<std::uint64_t>(group.rank());
  const std::uint64_t value = (std::uint64_t{crc32c(first.data(), first.size())} << 32U) + rank;
  seed(generator_of(at::kCPU), value);
  if (group.device().is_cuda()) seed(generator_of(group.device()), value);
}

}  // namespace lockstep::train
