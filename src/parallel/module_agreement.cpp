#include "parallel/module_agreement.hpp"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::parallel {
namespace {

using nlohmann::json;

/// " strides [1, 5]", or "" for a contiguous tensor. The stride of a dimension of size 1 means nothing.
std::string strides_of(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) return "";
  std::vector<std::int64_t> strides = tensor.strides().vec();
  for (std::size_t i = 0; i < strides.size(); ++i)
    if (tensor.size(static_cast<std::int64_t>(i)) == 1) strides[i] = 1;
  return fmt::format(" strides [{}]", fmt::join(strides, ", "));
}

std::string form_of(const NamedTensor& entry, const char* kind, bool with_strides) {
  return fmt::format("{} {} [{}]{}{}", kind, c10::toString(entry.tensor.scalar_type()),
                     fmt::join(entry.tensor.sizes(), ", "), with_strides ? strides_of(entry.tensor) : "",
                     entry.tensor.requires_grad() ? " with gradient" : "");
}

/// [[name, form], ...] in order. A tied tensor is communicated once, so that ties are part of its form.
json describe(const Proposal& proposal) {
  json result = json::array();
  std::unordered_map<const void*, std::string> first_names;
  const auto add = [&](const NamedTensor& entry, const char* kind, bool with_strides) {
    std::string form = form_of(entry, kind, with_strides);
    const auto [first, is_new] = first_names.emplace(entry.tensor.unsafeGetTensorImpl(), entry.name);
    if (!is_new) form += " tied to '" + first->second + "'";
    result.push_back({entry.name, std::move(form)});
  };
  for (const auto& entry : proposal.parameters)
    add(entry, "parameter", proposal.buckets_follow_strides && entry.tensor.requires_grad());
  for (const auto& entry : proposal.buffers) add(entry, "buffer", false);
  return result;
}

std::string find_form(const json& description, const std::string& name) {
  for (const auto& entry : description) {
    if (entry[0] == name) return entry[1];
  }
  return "nothing of that name";
}

/// "'fc.weight' is parameter Float [10, 5] on rank 0; parameter Float [11, 5] on ranks 1, 2", or "" if all
/// agree.
std::string difference(const std::vector<json>& all, const std::string& name) {
  std::map<std::string, std::string> ranks_by_form;
  std::vector<std::string> order;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::string form = find_form(all[rank], name);
    std::string& ranks = ranks_by_form[form];
    if (ranks.empty()) order.push_back(form);
    ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", rank);
  }
  if (order.size() == 1) return "";
  std::string text = fmt::format("'{}' is", name);
  for (const auto& form : order) {
    const std::string& ranks = ranks_by_form[form];
    const bool several = ranks.find(',') != std::string::npos;
    text += fmt::format("{} {} on {} {}", form == order.front() ? "" : ";", form, several ? "ranks" : "rank",
                        ranks);
  }
  return text;
}

std::string differences(const std::vector<json>& all) {
  constexpr std::size_t kShown = 8;
  std::vector<std::string> found;
  std::set<std::string> seen;
  for (const auto& description : all) {
    for (const auto& entry : description) {
      const std::string name = entry[0];
      if (!seen.insert(name).second) continue;
      if (auto text = difference(all, name); !text.empty()) found.push_back(std::move(text));
    }
  }
  if (found.empty()) return "the same tensors are registered in a different order";
  const std::span shown(found.data(), std::min(found.size(), kShown));
  const std::string text = fmt::format("{}", fmt::join(shown, ", and "));
  return found.size() > kShown ? fmt::format("{}, and {} more", text, found.size() - kShown) : text;
}

/// Describes the difference.
std::string disagreement(const std::vector<json>& all) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::string complaint = all[rank].at("complaint");
    if (!complaint.empty()) return fmt::format("rank {} cannot train: {}", rank, complaint);
  }
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].at("options") == all[0].at("options")) continue;
    return fmt::format("the ranks have different options: rank 0 has {}; rank {} has {}",
                       all[0].at("options").get<std::string>(), rank,
                       all[rank].at("options").get<std::string>());
  }
  std::vector<json> tensors;
  for (const auto& one : all) tensors.push_back(one.at("tensors"));
  return "the ranks hold different models: " + differences(tensors) +
         ". Build the same model on every rank before wrapping it";
}

}  // namespace

std::vector<NamedTensor> without_repeats(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> result;
  std::unordered_set<const void*> seen;
  for (const auto& entry : tensors) {
    if (entry.tensor.defined() && seen.insert(entry.tensor.unsafeGetTensorImpl()).second)
      result.push_back(entry);
  }
  return result;
}

void separate_elements(const at::Tensor& tensor) {
  if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes)
    tensor.set_data(tensor.detach().clone(at::MemoryFormat::Contiguous));
}

void copy_values(const ProcessGroup& group, const at::Tensor& tensor, int root) {
  const at::NoGradGuard no_grad;
  separate_elements(tensor);
  const at::Tensor values = tensor.detach().contiguous();
  group.broadcast(values, root);
  if (!values.is_alias_of(tensor)) tensor.detach().copy_(values);
}

void check_agreement(const ProcessGroup& group, const Proposal& proposal) {
  const json mine{
      {"tensors", describe(proposal)}, {"options", proposal.options}, {"complaint", proposal.complaint}};
  // Usually only a hash is sent; the descriptions follow if the hashes differ, or if no rank can train.
  const std::string hash =
      proposal.complaint.empty() ? std::to_string(std::hash<std::string>{}(json_text(mine))) : "";
  const auto hashes = group.all_gather_object(hash);
  const bool same =
      std::all_of(hashes.begin(), hashes.end(), [&](const auto& other) { return other == hashes.front(); });
  if (same && !hash.empty()) return;
  const std::string text = disagreement(group.all_gather_object(mine));
  if (!proposal.complaint.empty()) throw UsageError(proposal.complaint);
  throw CommunicationError(fmt::format("rank {}: {}", group.rank(), text));
}

void check_same_hook(const ProcessGroup& group, const std::string& name) {
  const auto names = group.all_gather_object(name);
  for (std::size_t rank = 1; rank < names.size(); ++rank) {
    if (names[rank] == names[0]) continue;
    throw CommunicationError(fmt::format(
        "rank {}: the ranks register different communication hooks: rank 0 has '{}'; rank {} has '{}'",
        group.rank(), names[0], rank, names[rank]));
  }
}

}  // namespace lockstep::parallel
