#include "comm/diagnostics/collective_check.hpp"

#include <fmt/format.h>

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>

#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RowCounts, gives, takes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PostedCall, place, is, site, rows)

namespace {

using nlohmann::json;

std::string_view file_name(const char* path) {
  const std::string_view text = path == nullptr ? "" : path;
  return text.substr(text.rfind('/') + 1);
}

bool is_of_a_library(std::string_view file) {
  for (const auto* name : {"liblockstep", "libtorch", "libc10", "libc.so", "libstdc++", "libpthread",
                           "libgomp", "libasan", "libtsan"}) {
    if (file.starts_with(name)) return true;
  }
  return false;
}

std::string demangled(const char* name) {
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, nullptr),
                                                         &std::free);
  return text ? text.get() : name;
}

std::string text_of(const Dl_info& info, const void* address) {
  const std::string_view file = file_name(info.dli_fname);
  const auto distance = [&](const void* base) {
    return static_cast<const char*>(address) - static_cast<const char*>(base);
  };
  if (info.dli_sname == nullptr) return fmt::format("{}+{:#x}", file, distance(info.dli_fbase));
  return fmt::format("{}+{:#x} in {}", demangled(info.dli_sname), distance(info.dli_saddr), file);
}

/// The nearest caller on this thread's stack that is not in Lockstep, LibTorch or a system library:
/// "train_step()+0x42 in my_trainer". If its function is not exported (-rdynamic), only file and offset, for
/// addr2line. Empty if there is none, as in a thread of the library. Takes a few microseconds.
std::string call_site() {
  std::array<void*, 96> frames{};
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  for (int i = 0; i < count; ++i) {
    Dl_info info{};
    const void* address = frames[static_cast<std::size_t>(i)];
    if (dladdr(address, &info) == 0 || is_of_a_library(file_name(info.dli_fname))) continue;
    return text_of(info, address);
  }
  return "";
}

/// Includes shapes and the operation's label.
std::string text_of(const OpMeta& meta) {
  if (meta.sizes_may_differ) return meta.fingerprint();
  const auto label = OperationLabel::current().view();
  return label.empty() ? meta.text() : fmt::format("{} ({})", meta.text(), label);
}

}  // namespace

CollectiveCheck::CollectiveCheck(Store store, GroupInfo members, Milliseconds timeout)
    : store_(std::move(store)), members_(std::move(members)), timeout_(timeout) {}

void CollectiveCheck::before(const OperationId& id, const OpMeta& meta, const RowCounts* rows) {
  PostedCall own{members_.rank, text_of(meta), call_site(), {}};
  if (rows != nullptr) own.rows = *rows;
  const bool all_here = post(id.sequence, own);
  const auto calls = posted(id.sequence);
  for (const auto& call : calls) {
    if (call.is != own.is) refuse(id.sequence, own, call);
  }
  if (!all_here) throw TimeoutError("the check before " + meta.text() + " timed out");
  compare_rows(id.sequence, calls);
}

bool CollectiveCheck::post(std::uint64_t number, const PostedCall& call) {
  const std::string key = fmt::to_string(number);
  store_.append(key, json_text(json(call)) + "\n");
  const bool last = store_.add(key + "/count", 1) == members_.size();
  if (last) {
    store_.set(key + "/all", "1");
    // All ranks are here, so all have left the previous check.
    const std::string before = fmt::to_string(last_number_);
    for (const auto* part : {"", "/count", "/all"}) store_.erase(before + part);
  }
  last_number_ = number;
  return last || store_.wait(key + "/all", timeout_);
}

std::vector<PostedCall> CollectiveCheck::posted(std::uint64_t number) const {
  std::vector<PostedCall> calls;
  std::istringstream lines(store_.get(fmt::to_string(number), kAtOnce));
  for (std::string line; std::getline(lines, line);) calls.push_back(json::parse(line).get<PostedCall>());
  std::sort(calls.begin(), calls.end(),
            [](const PostedCall& a, const PostedCall& b) { return a.place < b.place; });
  return calls;
}

/// All ranks compare all pairs, so that all find the same difference.
void CollectiveCheck::compare_rows(std::uint64_t number, const std::vector<PostedCall>& calls) const {
  const auto count = [](const std::vector<std::int64_t>& rows, int place) {
    return rows.empty() ? -1 : rows.at(static_cast<std::size_t>(place));
  };
  for (const auto& from : calls) {
    for (const auto& to : calls) {
      const auto gives = count(from.rows.gives, to.place), takes = count(to.rows.takes, from.place);
      if (gives == takes) continue;
      throw CommunicationError(fmt::format(
          "{}: the split sizes of {} #{} do not agree: {} gives {} rows to {}, which takes {}", members_.who,
          from.is, number, members_.called(from.place), gives, members_.called(to.place), takes));
    }
  }
}

void CollectiveCheck::before_message(const OpMeta& meta) {
  const bool sends = std::string_view(meta.name) == "send";
  if (meta.peer < 0) open_tags_.insert(meta.tag);
  // The order of messages from several ranks is not known in advance.
  if (meta.peer < 0 || (!sends && open_tags_.contains(meta.tag))) return;
  const int from = sends ? members_.rank : meta.peer, to = sends ? meta.peer : members_.rank;
  const auto number = ++messages_[{from, to, meta.tag}];
  const std::string key = fmt::format("message/{}/{}/{}/{}", from, to, meta.tag, number);
  const std::string size = fmt::format("{} x {}", meta.elements, meta.dtype);
  const std::string own = (sends ? "sends " : "receives ") + size;
  const std::string first = store_.set_if_absent(key, own);
  if (first == own) return;
  store_.erase(key);
  if (first.ends_with(" " + size)) return;
  throw CommunicationError(fmt::format("{}: message {} with tag {} from {} to {}: this rank {}, but {} {}",
                                       members_.who, number, meta.tag, members_.called(from),
                                       members_.called(to), own, members_.called(meta.peer), first));
}

void CollectiveCheck::refuse(std::uint64_t number, const PostedCall& own, const PostedCall& other) const {
  const auto called = [](const PostedCall& call) {
    return call.site.empty() ? std::string() : fmt::format(" (called by {})", call.site);
  };
  throw CommunicationError(fmt::format(
      "{}: the ranks do different things in collective #{}: {}{} here, but {} does {}{}. All "
      "ranks must call the same "
      "operations in the same order, with tensors of the same size and dtype",
      members_.who, number, own.is, called(own), members_.called(other.place), other.is, called(other)));
}

}  // namespace lockstep::comm
