#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <unordered_map>

namespace lockstep::table {

/// Finds indices in a list by name. Names that are asked for in the list's order cost one comparison each;
/// others a hash table, which is made for the first of them if the list is long. `name_at(index)` is a name
/// of the list, which must outlive this; of equal names the first one counts.
template <typename NameAt>
class NameFinder {
 public:
  NameFinder(std::size_t size, NameAt name_at) : size_(size), name_at_(name_at) {}

  std::optional<std::size_t> find(std::string_view name) {
    if (next_ < size_ && std::string_view(name_at_(next_)) == name) return next_++;
    const auto found = size_ > kFew ? find_in_table(name) : find_in_list(name);
    if (found) next_ = *found + 1;
    return found;
  }

 private:
  static constexpr std::size_t kFew = 16;

  std::optional<std::size_t> find_in_list(std::string_view name) const {
    for (std::size_t index = 0; index < size_; ++index) {
      if (std::string_view(name_at_(index)) == name) return index;
    }
    return std::nullopt;
  }

  std::optional<std::size_t> find_in_table(std::string_view name) {
    if (table_.empty()) {
      table_.reserve(size_);
      for (std::size_t index = 0; index < size_; ++index) table_.try_emplace(name_at_(index), index);
    }
    const auto found = table_.find(name);
    return found == table_.end() ? std::nullopt : std::optional(found->second);
  }

  std::size_t size_;
  NameAt name_at_;
  std::size_t next_ = 0;
  std::unordered_map<std::string_view, std::size_t> table_;
};

}  // namespace lockstep::table
