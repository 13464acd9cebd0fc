#include "module_agreement.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "lockstep/core/error.hpp"

namespace lockstep::parallel {
namespace {

using nlohmann::json;

std::string form_of(const NamedTensor& entry, const char* kind) {
  std::ostringstream text;
  text << entry.tensor.scalar_type() << ' ' << entry.tensor.sizes();
  if (entry.tensor.requires_grad()) text << " with gradient";
  return std::string(kind) + " " + text.str();
}

/// [[name, form], ...] in order.
json describe(const std::vector<NamedTensor>& parameters, const std::vector<NamedTensor>& buffers) {
  json result = json::array();
  for (const auto& entry : parameters) result.push_back({entry.name, form_of(entry, "parameter")});
  for (const auto& entry : buffers) result.push_back({entry.name, form_of(entry, "buffer")});
  return result;
}

std::string find_form(const json& description, const std::string& name) {
  for (const auto& entry : description) {
    if (entry[0] == name) return entry[1];
  }
  return "nothing of that name";
}

/// "'fc.weight' is parameter Float [10, 5] on rank 0; parameter Float [11, 5] on ranks 1, 2", or "" when all
/// agree.
std::string difference(const std::vector<json>& all, const std::string& name) {
  std::map<std::string, std::string> ranks_by_form;
  std::vector<std::string> order;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::string form = find_form(all[rank], name);
    std::string& ranks = ranks_by_form[form];
    if (ranks.empty()) order.push_back(form);
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (order.size() == 1) return "";
  std::string text = "'" + name + "' is";
  for (const auto& form : order) {
    const std::string& ranks = ranks_by_form[form];
    const bool several = ranks.find(',') != std::string::npos;
    text += (form == order.front() ? " " : "; ") + form + (several ? " on ranks " : " on rank ") + ranks;
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
  std::string text;
  for (std::size_t i = 0; i < std::min(found.size(), kShown); ++i) text += (i == 0 ? "" : ", and ") + found[i];
  if (found.size() > kShown) text += ", and " + std::to_string(found.size() - kShown) + " more";
  return text;
}

}  // namespace

void check_agreement(const ProcessGroup& group, const std::vector<NamedTensor>& parameters,
                     const std::vector<NamedTensor>& buffers) {
  const json mine = describe(parameters, buffers);
  // In the usual case only a hash travels; the descriptions follow when the hashes differ.
  const auto hashes = group.all_gather_object(std::to_string(std::hash<std::string>{}(mine.dump())));
  if (std::all_of(hashes.begin(), hashes.end(), [&](const auto& hash) { return hash == hashes.front(); }))
    return;
  throw CommunicationError("rank " + std::to_string(group.rank()) + ": the ranks hold different models: " +
                           differences(group.all_gather_object(mine)) +
                           ". Build the same model on every rank before wrapping it");
}

}  // namespace lockstep::parallel
