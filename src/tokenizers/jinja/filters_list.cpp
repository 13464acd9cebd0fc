#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "tokenizers/jinja/access.hpp"
#include "tokenizers/jinja/characters.hpp"
#include "tokenizers/jinja/comparison.hpp"
#include "tokenizers/jinja/filters.hpp"
#include "tokenizers/jinja/jinja_tests.hpp"
#include "tokenizers/jinja/operators.hpp"
#include "tokenizers/jinja/text_form.hpp"

namespace lockstep::jinja {
namespace {

/// A path to an element, like "function.name" or "0".
class Path {
 public:
  Path(Budget& budget, const Value& path) {
    if (path.is(Kind::none)) return;
    if (!path.is(Kind::text)) {
      parts_.push_back(path);
      return;
    }
    std::string_view rest = text_of(path);
    while (true) {
      const auto end = std::min(rest.find('.'), rest.size());
      const auto part = rest.substr(0, end);
      std::int64_t number = 0;
      const bool digits = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
      const bool is_number =
          digits && std::from_chars(part.data(), part.data() + part.size(), number).ec == std::errc();
      parts_.push_back(is_number ? Value::of(number) : Value::text(budget, std::string(part)));
      if (end == rest.size()) return;
      rest.remove_prefix(end + 1);
    }
  }

  Value of(Budget& budget, Value item, const std::optional<Value>& otherwise = std::nullopt) const {
    for (const auto& part : parts_) {
      budget.step();
      item = get_item(budget, item, part);
      if (otherwise && item.is(Kind::undefined)) item = *otherwise;
    }
    return item;
  }

 private:
  Values parts_;
};

Value without_case(Budget& budget, Value value) {
  if (!value.is(Kind::text)) return value;
  return Value::text(budget, to_lower(text_of(value)));
}

Value length(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {});
  return Value::of(static_cast<std::int64_t>(length_of(call.value)));
}

Value otherwise(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {"default_value", "boolean"});
  if (!call.value.is(Kind::undefined) && !(bound.flag(1) && !is_true(call.value))) return call.value;
  return bound.has(0) ? bound[0] : call.text("");
}

Value join_items(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {"d", "attribute"});
  const auto separator = bound.has(0) ? to_text(call.budget, bound[0]) : std::string();
  const Path path(call.budget, bound.has(1) ? bound[1] : Value::none());
  Text text(call.budget);
  bool first = true;
  for (const auto& item : elements_of(call.budget, call.value)) {
    if (!first) text.add(separator);
    first = false;
    text.add(to_text(call.budget, path.of(call.budget, item)));
  }
  return call.text(text.take());
}

Value items(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {});
  if (call.value.is(Kind::undefined)) return make_iterator(call.budget, {});
  if (!call.value.is(Kind::dict))
    fail(
        fmt::format("{} needs a dictionary, not a value of type '{}'.", call.title(), type_name(call.value)));
  Values pairs;
  for (const auto& [key, value] : call.value.as<DictObject>().entries)
    pairs.push_back(make_tuple(call.budget, {key, value}));
  return make_iterator(call.budget, std::move(pairs));
}

/// Sorts by keys that were found before; equal ones keep their order, also in reverse.
Values sorted_by(const FilterCall& call, std::vector<std::pair<Value, Value>> keyed, bool reverse) {
  auto& budget = call.budget;
  const auto less = [&](const auto& a, const auto& b) {
    budget.step();
    return reverse ? is_less(budget, b.first, a.first) : is_less(budget, a.first, b.first);
  };
  // A merge sort takes any order, also that of NaN.
  std::stable_sort(keyed.begin(), keyed.end(), less);
  Values sorted;
  sorted.reserve(keyed.size());
  for (auto& [key, value] : keyed) sorted.push_back(std::move(value));
  return sorted;
}

Value sort_dict(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {"case_sensitive", "by", "reverse"});
  require_defined(call.value);
  if (!call.value.is(Kind::dict))
    fail(
        fmt::format("{} needs a dictionary, not a value of type '{}'.", call.title(), type_name(call.value)));
  const auto by = bound.has(1) ? bound.text(1) : "key";
  if (by != "key" && by != "value") fail(call.title() + " sorts by 'key' or by 'value'.");
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : call.value.as<DictObject>().entries) {
    const auto& sorting = by == "key" ? key : value;
    keyed.emplace_back(bound.flag(0) ? sorting : without_case(call.budget, sorting),
                       make_tuple(call.budget, {key, value}));
  }
  return make_list(call.budget, sorted_by(call, std::move(keyed), bound.flag(2)));
}

Value sort_items(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<Path> paths;
  if (bound.has(2) && bound[2].is(Kind::text)) {
    std::string_view rest = text_of(bound[2]);
    while (true) {
      const auto end = std::min(rest.find(','), rest.size());
      paths.emplace_back(call.budget, call.text(std::string(rest.substr(0, end))));
      if (end == rest.size()) break;
      rest.remove_prefix(end + 1);
    }
  } else {
    paths.emplace_back(call.budget, bound.has(2) ? bound[2] : Value::none());
  }
  std::vector<std::pair<Value, Value>> keyed;
  for (auto& item : elements_of(call.budget, call.value)) {
    Values keys;
    for (const auto& path : paths) {
      const auto key = path.of(call.budget, item);
      keys.push_back(bound.flag(1) ? key : without_case(call.budget, key));
    }
    keyed.emplace_back(make_list(call.budget, std::move(keys)), std::move(item));
  }
  return make_list(call.budget, sorted_by(call, std::move(keyed), bound.flag(0)));
}

Value unique_items(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {"case_sensitive", "attribute"});
  const Path path(call.budget, bound.has(1) ? bound[1] : Value::none());
  Values seen;
  std::unordered_multimap<std::size_t, std::size_t> positions;
  Values kept;
  for (auto& item : elements_of(call.budget, call.value)) {
    auto key = path.of(call.budget, item);
    if (!bound.flag(0)) key = without_case(call.budget, key);
    const auto hash = hash_of(call.budget, key);
    const auto [begin, end] = positions.equal_range(hash);
    if (std::any_of(begin, end,
                    [&](const auto& position) { return is_equal(call.budget, seen[position.second], key); }))
      continue;
    positions.emplace(hash, seen.size());
    seen.push_back(std::move(key));
    kept.push_back(std::move(item));
  }
  return make_iterator(call.budget, std::move(kept));
}

Value extreme(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {"case_sensitive", "attribute"});
  const Path path(call.budget, bound.has(1) ? bound[1] : Value::none());
  std::optional<std::pair<Value, Value>> best;
  for (auto& item : elements_of(call.budget, call.value)) {
    auto key = path.of(call.budget, item);
    if (!bound.flag(0)) key = without_case(call.budget, key);
    if (best) {
      const bool better = call.name == "min" ? is_less(call.budget, key, best->first)
                                             : is_less(call.budget, best->first, key);
      if (!better) continue;
    }
    best = {std::move(key), std::move(item)};
  }
  return best ? best->second
              : Value::undefined(call.budget,
                                 call.title() + " has nothing to choose from: the list is empty.");
}

Value sum_items(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {"attribute", "start"});
  const Path path(call.budget, bound.has(0) ? bound[0] : Value::none());
  Value sum = bound.has(1) ? bound[1] : Value::of(std::int64_t{0});
  if (sum.is(Kind::text)) fail(call.title() + " does not add strings: use 'join'.");
  for (const auto& item : elements_of(call.budget, call.value))
    sum = arithmetic(call.budget, "+", sum, path.of(call.budget, item));
  return sum;
}

Value first_item(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {});
  if (call.value.is(Kind::iterator)) {
    const auto& iterator = call.value.as<IteratorObject>();
    if (iterator.next < iterator.items.size()) return iterator.items[iterator.next++];
    return Value::undefined(call.budget, "there is no first item: the list is empty.");
  }
  if (call.value.is_sequence() && !items_of(call.value).empty()) return items_of(call.value).front();
  const auto all = elements_of(call.budget, call.value);
  return all.empty() ? Value::undefined(call.budget, "there is no first item: the list is empty.")
                     : all.front();
}

void require_reversible(const FilterCall& call) {
  if (call.value.is(Kind::iterator) || call.value.is(Kind::loop)) {
    fail(fmt::format("{} needs a list: put the filter 'list' before it.", call.title()));
  }
}

Value last_item(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {});
  require_defined(call.value);
  require_reversible(call);
  if (call.value.is_sequence() && !items_of(call.value).empty()) return items_of(call.value).back();
  const auto all = elements_of(call.budget, call.value);
  return all.empty() ? Value::undefined(call.budget, "there is no last item: the list is empty.")
                     : all.back();
}

Value to_list(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {});
  return make_list(call.budget, elements_of(call.budget, call.value));
}

Value reverse(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {});
  if (call.value.is(Kind::text)) {
    call.budget.make(text_of(call.value).size() * 4);
    auto characters = characters_of(text_of(call.value));
    std::reverse(characters.begin(), characters.end());
    return call.text(text_of_characters(characters), call.value.markup);
  }
  auto all = elements_of(call.budget, call.value);
  std::reverse(all.begin(), all.end());
  if (call.value.is(Kind::iterator)) return make_list(call.budget, std::move(all));
  return make_iterator(call.budget, std::move(all), "reversed");
}

Value attribute(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {"name"}, 1);
  require_defined(call.value);
  if (auto found = find_attribute(call.budget, call.value, bound.text(0))) return *found;
  return Value::undefined(call.budget, fmt::format("a value of type '{}' has no attribute '{}'.",
                                                   type_name(call.value), bound.text(0)));
}

/// The arguments behind the first `count`.
Arguments rest_of(const Arguments& arguments, std::size_t count) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
}

const std::string& name_in(const FilterCall& call, std::size_t position) {
  const auto& name = call.arguments.positional[position];
  if (!name.is(Kind::text))
    fail(fmt::format("{} needs the name of a filter or a test as a string.", call.title()));
  return text_of(name);
}

Value map_items(const FilterCall& call) {
  if (!is_true(call.value)) return make_iterator(call.budget, {});
  Values mapped;
  if (call.arguments.positional.empty()) {
    const Bound bound(call.title(), call.arguments, {"attribute", "default"}, 1);
    const Path path(call.budget, bound[0]);
    std::optional<Value> missing;
    if (bound.has(1) && !bound[1].is(Kind::none)) missing = bound[1];
    for (const auto& item : elements_of(call.budget, call.value))
      mapped.push_back(path.of(call.budget, item, missing));
  } else {
    const auto rest = rest_of(call.arguments, 1);
    for (const auto& item : elements_of(call.budget, call.value)) {
      mapped.push_back(apply_filter(call.budget, name_in(call, 0), item, rest));
    }
  }
  return make_iterator(call.budget, std::move(mapped));
}

Value select_items(const FilterCall& call) {
  if (!is_true(call.value)) return make_iterator(call.budget, {});
  const bool by_attribute = call.name.ends_with("attr");
  const bool rejects = call.name.starts_with("reject");
  const std::size_t skipped = by_attribute ? 1 : 0;
  if (call.arguments.positional.size() < skipped) fail(call.title() + " needs the name of an attribute.");
  const Path path(call.budget, by_attribute ? call.arguments.positional[0] : Value::none());
  const bool has_test = call.arguments.positional.size() > skipped;
  const auto rest = has_test ? rest_of(call.arguments, skipped + 1) : Arguments{};
  Values kept;
  for (auto& item : elements_of(call.budget, call.value)) {
    const auto tested = path.of(call.budget, item);
    const bool holds =
        has_test ? apply_test(call.budget, name_in(call, skipped), tested, rest) : is_true(tested);
    if (holds != rejects) kept.push_back(std::move(item));
  }
  return make_iterator(call.budget, std::move(kept));
}

Value group_items(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {"attribute", "default", "case_sensitive"}, 1);
  const Path path(call.budget, bound[0]);
  std::optional<Value> missing;
  if (bound.has(1) && !bound[1].is(Kind::none)) missing = bound[1];
  const auto key_of = [&](const Value& item) {
    const auto key = path.of(call.budget, item, missing);
    return bound.flag(2) ? key : without_case(call.budget, key);
  };
  std::vector<std::pair<Value, Value>> keyed;
  for (auto& item : elements_of(call.budget, call.value)) keyed.emplace_back(key_of(item), std::move(item));
  Values groups;
  Values group;
  Value key;
  const auto end_group = [&] {
    if (group.empty()) return;
    const auto shown = path.of(call.budget, group.front(), missing);
    groups.push_back(make_tuple(call.budget, {shown, make_list(call.budget, std::exchange(group, {}))}));
  };
  for (auto& item : sorted_by(call, std::move(keyed), false)) {
    const auto own = key_of(item);
    if (!group.empty() && !is_equal(call.budget, own, key)) end_group();
    key = own;
    group.push_back(std::move(item));
  }
  end_group();
  return make_list(call.budget, std::move(groups));
}

Value batch_items(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {"linecount", "fill_with"}, 1);
  const auto count = bound.integer(0, 0);
  Values batches;
  Values batch;
  for (auto& item : elements_of(call.budget, call.value)) {
    if (static_cast<std::int64_t>(batch.size()) == count)
      batches.push_back(make_list(call.budget, std::exchange(batch, {})));
    batch.push_back(std::move(item));
  }
  if (!batch.empty()) {
    if (bound.has(1) && !bound[1].is(Kind::none) && count > static_cast<std::int64_t>(batch.size())) {
      call.budget.make(static_cast<std::uint64_t>(count) > (1ULL << 50)
                           ? ~std::uint64_t{0}
                           : static_cast<std::uint64_t>(count) * sizeof(Value));
      batch.resize(static_cast<std::size_t>(count), bound[1]);
    }
    batches.push_back(make_list(call.budget, std::move(batch)));
  }
  return make_iterator(call.budget, std::move(batches));
}

Value slice_items(const FilterCall& call) {
  const Bound bound(call.title(), call.arguments, {"slices", "fill_with"}, 1);
  const auto all = elements_of(call.budget, call.value);
  const auto slices = bound.integer(0, 0);
  if (slices <= 0) fail(call.title() + " needs a positive number of slices.");
  const auto count = static_cast<std::size_t>(slices);
  const auto extra = all.size() % count;
  Values parts;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto end = begin + all.size() / count + (i < extra ? 1 : 0);
    Values part(all.begin() + static_cast<std::ptrdiff_t>(begin),
                all.begin() + static_cast<std::ptrdiff_t>(end));
    if (bound.has(1) && !bound[1].is(Kind::none) && i >= extra) part.push_back(bound[1]);
    parts.push_back(make_list(call.budget, std::move(part)));
    begin = end;
  }
  return make_iterator(call.budget, std::move(parts));
}

}  // namespace

const Filters& list_filters() {
  static const Filters filters = {
      {"length", length},
      {"count", length},
      {"default", otherwise},
      {"d", otherwise},
      {"join", join_items},
      {"items", items},
      {"dictsort", sort_dict},
      {"sort", sort_items},
      {"unique", unique_items},
      {"min", extreme},
      {"max", extreme},
      {"sum", sum_items},
      {"first", first_item},
      {"last", last_item},
      {"list", to_list},
      {"reverse", reverse},
      {"attr", attribute},
      {"map", map_items},
      {"select", select_items},
      {"reject", select_items},
      {"selectattr", select_items},
      {"rejectattr", select_items},
      {"groupby", group_items},
      {"batch", batch_items},
      {"slice", slice_items},
  };
  return filters;
}

}  // namespace lockstep::jinja
