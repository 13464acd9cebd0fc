#include "comm/diagnostics/op_meta.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace lockstep::comm {
namespace {

LabelText& current_label() noexcept {
  thread_local LabelText label;
  return label;
}

/// "from 1", "to 2": the operation's root or other side.
std::string peer_text(const OpMeta& meta) {
  if (meta.peer < 0) return "";
  const std::string_view name = meta.name;
  const bool from = name == "broadcast" || name == "scatter" || name == "recv";
  return fmt::format(" {} {}", from ? "from" : "to", meta.peer);
}

std::string headline(const OpMeta& meta) {
  std::string result = meta.name;
  if (*meta.reduce_op != '\0') result += fmt::format(" of {}", meta.reduce_op);
  return result + peer_text(meta);
}

/// The usual name of a dtype for which c10 has its own.
std::string_view common_name(std::string_view dtype) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"Byte", "uint8"},     {"Char", "int8"},    {"Short", "int16"},       {"Int", "int32"},
      {"Long", "int64"},     {"Half", "float16"}, {"BFloat16", "bfloat16"}, {"Float", "float32"},
      {"Double", "float64"}, {"Bool", "bool"}};
  for (const auto& [theirs, common] : kNames) {
    if (theirs == dtype) return common;
  }
  return dtype;
}

}  // namespace

LabelText::LabelText(std::string_view text) noexcept
    : length_(static_cast<std::uint8_t>(std::min(text.size(), letters_.size()))) {
  std::memcpy(letters_.data(), text.data(), length_);
}

OperationLabel::OperationLabel(std::string_view text) noexcept : before_(current_label()) {
  current_label() = LabelText(text);
}

OperationLabel::~OperationLabel() { current_label() = before_; }

const LabelText& OperationLabel::current() noexcept { return current_label(); }

std::string sizes_text(const OpMeta& meta) {
  const bool all = static_cast<std::size_t>(meta.dimensions) <= meta.sizes.size();
  return fmt::format("[{}{}]", fmt::join(meta.shown_sizes(), ", "), all ? "" : ", ...");
}

std::string OpMeta::fingerprint() const {
  std::string result = headline(*this);
  if (*dtype == '\0') return result;
  return sizes_may_differ ? fmt::format("{}, {}", result, dtype)
                          : fmt::format("{}, {} x {}", result, elements, dtype);
}

/// Called for every verified call, so it writes to a single buffer.
std::string OpMeta::call(std::uint64_t number, std::string_view label) const {
  fmt::memory_buffer text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{} #{}", name, number);
  const std::size_t bare = text.size();
  const auto next = [&] { return text.size() == bare ? " (" : ", "; };
  if (*dtype != '\0') fmt::format_to(out, "{}{}", next(), common_name(dtype));
  if (*dtype != '\0' && !sizes_may_differ) fmt::format_to(out, "{}{} elements", next(), elements);
  if (tensors > 1) fmt::format_to(out, "{}{} tensors", next(), tensors);
  if (*reduce_op != '\0') fmt::format_to(out, "{}{}", next(), reduce_op);
  if (peer >= 0) fmt::format_to(out, "{}root {}", next(), peer);
  if (!label.empty()) fmt::format_to(out, "{}{}", next(), label);
  if (text.size() > bare) text.push_back(')');
  return fmt::to_string(text);
}

std::string OpMeta::text() const {
  std::string result = headline(*this);
  if (*dtype == '\0') return result;
  result += fmt::format(", {} {}", dtype, sizes_text(*this));
  return tensors > 1 ? fmt::format("{} and more: {} tensors", result, tensors) : result;
}

std::string size_text(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto number = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; number >= 1024 && unit + 1 < std::size(kUnits); ++unit) number /= 1024;
  return fmt::format("{:.{}f} {}", number, number < 10 && number != static_cast<int>(number) ? 1 : 0,
                     kUnits[unit]);
}

}  // namespace lockstep::comm
