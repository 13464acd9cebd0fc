#include "train/state/frozen_parameters.hpp"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "core/checksum.hpp"
#include "lockstep/core/error.hpp"
#include "parallel/module_agreement.hpp"

namespace lockstep::train {
namespace {

/// How many elements of a GPU's tensor are copied to the host at a time.
constexpr std::int64_t kElementsAtATime = std::int64_t{1} << 24;

/// What the ranks agree on for each parameter: the greatest of their answers.
enum Need : char { kKnown = '0', kCompute = '1', kTouched = '2' };

std::uint32_t checksum_of_elements(const at::Tensor& elements) {
  Crc32c checksum;
  for (std::int64_t begin = 0; begin < elements.numel(); begin += kElementsAtATime) {
    const at::Tensor some =
        elements.narrow(0, begin, std::min(kElementsAtATime, elements.numel() - begin)).to(at::kCPU);
    checksum.update(some.const_data_ptr(), some.nbytes());
  }
  return checksum.value();
}

/// The checksum of a parameter of its parts [begin, elements, checksum], of which several may be the same.
std::uint32_t join_parts(const NamedTensor& parameter, std::int64_t elements,
                         std::vector<std::array<std::int64_t, 3>> parts) {
  std::sort(parts.begin(), parts.end());
  const auto bytes = static_cast<std::uint64_t>(parameter.tensor.element_size());
  std::uint32_t whole = 0;
  std::int64_t end = 0;
  for (const auto& [begin, count, checksum] : parts) {
    if (count == 0 || begin < end) continue;
    if (begin > end) break;
    whole =
        join_crc32c(whole, static_cast<std::uint32_t>(checksum), static_cast<std::uint64_t>(count) * bytes);
    end += count;
  }
  if (end == elements) return whole;
  throw Error(fmt::format(
      "a checkpoint: the ranks have {} of the {} elements of the frozen parameter '{}': save and load "
      "outside of full_parameters()",
      end, elements, parameter.name));
}

}  // namespace

FrozenParameters::FrozenParameters(const std::vector<NamedTensor>& parameters,
                                   const FullyShardedDataParallelBase* sharded)
    : sharded_(sharded) {
  for (const auto& entry : parameters) entry_of(entry).is_touched = entry.tensor.requires_grad();
}

FrozenParameters::Stamp FrozenParameters::stamp_of(const at::Tensor& parameter) const {
  return {.version = parameter.is_inference() ? 0 : static_cast<std::uint32_t>(parameter._version()),
          .data = parameter.const_data_ptr(),
          .generation = sharded_ != nullptr ? sharded_->generation() : 0};
}

FrozenParameters::Entry& FrozenParameters::entry_of(const NamedTensor& parameter) {
  const auto [found, is_new] = entries_.try_emplace(parameter.tensor.unsafeGetTensorImpl());
  if (is_new) found->second.stamp = stamp_of(parameter.tensor);
  return found->second;
}

std::vector<std::int64_t> FrozenParameters::sizes_of(const at::Tensor& parameter) const {
  const auto sizes = sharded_ != nullptr ? sharded_->full_sizes(parameter) : std::nullopt;
  return sizes.value_or(parameter.sizes().vec());
}

FrozenParameters::Part FrozenParameters::part_of(const at::Tensor& parameter,
                                                 const ProcessGroup& group) const {
  const at::Tensor elements = parameter.detach().reshape(-1);
  if (sharded_ != nullptr && sharded_->full_sizes(parameter))
    return {sharded_->part_begin(parameter), elements};
  const std::int64_t begin = elements.numel() * group.rank() / group.size();
  return {begin, elements.narrow(0, begin, elements.numel() * (group.rank() + 1) / group.size() - begin)};
}

std::vector<std::uint32_t> FrozenParameters::checksums_of(const std::vector<NamedTensor>& parameters,
                                                          const ProcessGroup& group) const {
  auto mine = nlohmann::json::array();
  for (const auto& entry : parameters) {
    const Part part = part_of(entry.tensor, group);
    mine.push_back({part.begin, part.elements.numel(), checksum_of_elements(part.elements)});
  }
  const auto all = group.all_gather_object(mine);
  std::vector<std::uint32_t> checksums;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::vector<std::array<std::int64_t, 3>> parts;
    for (const auto& rank : all) parts.push_back(rank.at(i).get<std::array<std::int64_t, 3>>());
    const auto elements = c10::multiply_integers(sizes_of(parameters[i].tensor));
    checksums.push_back(join_parts(parameters[i], elements, std::move(parts)));
  }
  return checksums;
}

void FrozenParameters::refresh(const std::vector<NamedTensor>& parameters, const ProcessGroup& group,
                               bool only_untouched) {
  std::string needs;
  for (const auto& entry : parameters) {
    const Entry& known = entry_of(entry);
    const Stamp now = stamp_of(entry.tensor);
    // Without a checksum, what is written inside full_parameters() in place shows in the version.
    const bool was_written = now.version != known.stamp.version || now.data != known.stamp.data;
    if (known.is_touched || (!known.checksum && was_written)) {
      needs += kTouched;
    } else {
      needs += known.checksum && now == known.stamp ? kKnown : kCompute;
    }
  }
  for (const auto& other : group.all_gather_object(needs)) {
    for (std::size_t i = 0; i < needs.size(); ++i) needs[i] = std::max(needs[i], other.at(i));
  }
  std::vector<NamedTensor> stale;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Entry& known = entry_of(parameters[i]);
    known.is_touched = known.is_touched || needs[i] == kTouched;
    if (needs[i] == kCompute || (needs[i] == kTouched && !only_untouched)) stale.push_back(parameters[i]);
  }
  if (stale.empty()) return;
  const auto checksums = checksums_of(stale, group);
  for (std::size_t i = 0; i < stale.size(); ++i) {
    Entry& known = entry_of(stale[i]);
    known.is_touched = known.is_touched || known.checksum.value_or(checksums[i]) != checksums[i];
    known.checksum = checksums[i];
    known.stamp = stamp_of(stale[i].tensor);
  }
}

std::vector<NamedTensor> FrozenParameters::untouched(const std::vector<NamedTensor>& parameters,
                                                     const ProcessGroup& group) {
  auto frozen = parallel::without_repeats(parameters);
  for (const auto& entry : frozen) {
    // Its values change from now on, whatever its version says.
    if (entry.tensor.requires_grad()) entry_of(entry).is_touched = true;
  }
  std::erase_if(frozen, [](const NamedTensor& entry) { return entry.tensor.requires_grad(); });
  refresh(frozen, group, /*only_untouched=*/true);
  std::erase_if(frozen, [this](const NamedTensor& entry) { return entry_of(entry).is_touched; });
  return frozen;
}

FrozenWeights FrozenParameters::digest(std::vector<NamedTensor> parameters, const ProcessGroup& group) {
  refresh(parameters, group, /*only_untouched=*/false);
  std::sort(parameters.begin(), parameters.end(),
            [](const NamedTensor& one, const NamedTensor& other) { return one.name < other.name; });
  FrozenWeights frozen{.parameters = static_cast<std::int64_t>(parameters.size())};
  std::string list;
  for (const auto& entry : parameters) {
    const auto sizes = sizes_of(entry.tensor);
    frozen.bytes += static_cast<std::uint64_t>(c10::multiply_integers(sizes) * entry.tensor.element_size());
    list += fmt::format("{} {} [{}] {}\n", entry.name, c10::toString(entry.tensor.scalar_type()),
                        fmt::join(sizes, ", "), checksum_text(*entry_of(entry).checksum));
  }
  frozen.crc32c = crc32c(list.data(), list.size());
  return frozen;
}

}  // namespace lockstep::train
