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
#include <string_view>
#include <utility>

#include "comm/group_key_value_store.hpp"
#include "coordination/json_lines.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RowCounts, gives, takes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PostedCall, member, is, site, rows)

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

std::string describe_address(const Dl_info& info, const void* address) {
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
    return describe_address(info, address);
  }
  return "";
}

/// Includes shapes and the operation's label.
std::string describe_call(const OpMeta& meta) {
  if (meta.sizes_may_differ) return meta.fingerprint();
  const auto label = OperationLabel::current().view();
  return label.empty() ? meta.text() : fmt::format("{} ({})", meta.text(), label);
}

}  // namespace

CollectiveCheck::CollectiveCheck(const Store& store, GroupInfo members, Milliseconds timeout)
    : session_(make_session(store, std::move(members))), timeout_(timeout) {}

void CollectiveCheck::before(const OperationId& id, const OpMeta& meta, const RowCounts* rows) {
  PostedCall own{session_.members().rank, describe_call(meta), call_site(), {}};
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
  const std::string point = fmt::to_string(number);
  coordination::append_line(session_.store(), session_.key(point), call);
  const bool last = session_.count(point, session_.members().size());
  if (last) {
    // All ranks are here, so all have left the previous check.
    session_.erase(fmt::to_string(last_number_));
    session_.store().erase(session_.key(fmt::to_string(last_number_)));
  }
  last_number_ = number;
  return last || session_.await(point, {.deadline = session_.now() + timeout_});
}

std::vector<PostedCall> CollectiveCheck::posted(std::uint64_t number) const {
  std::vector<PostedCall> calls;
  for (const auto& line : coordination::read_lines(session_.store(), session_.key(fmt::to_string(number))))
    calls.push_back(line.get<PostedCall>());
  std::sort(calls.begin(), calls.end(),
            [](const PostedCall& a, const PostedCall& b) { return a.member < b.member; });
  return calls;
}

/// All ranks compare all pairs, so that all find the same difference.
void CollectiveCheck::compare_rows(std::uint64_t number, const std::vector<PostedCall>& calls) const {
  const auto count = [](const std::vector<std::int64_t>& rows, int member) {
    return rows.empty() ? -1 : rows.at(static_cast<std::size_t>(member));
  };
  for (const auto& from : calls) {
    for (const auto& to : calls) {
      const auto gives = count(from.rows.gives, to.member), takes = count(to.rows.takes, from.member);
      if (gives == takes) continue;
      throw CommunicationError(
          fmt::format("{}: the split sizes of {} #{} do not agree: {} gives {} rows to {}, which takes {}",
                      session_.members().who, from.is, number, session_.members().called(from.member), gives,
                      session_.members().called(to.member), takes));
    }
  }
}

void CollectiveCheck::before_message(const OpMeta& meta) {
  const bool sends = std::string_view(meta.name) == "send";
  if (meta.peer < 0) open_tags_.insert(meta.tag);
  // The order of messages from several ranks is not known in advance.
  if (meta.peer < 0 || (!sends && open_tags_.contains(meta.tag))) return;
  const int from = sends ? session_.members().rank : meta.peer,
            to = sends ? meta.peer : session_.members().rank;
  const auto number = ++messages_[{from, to, meta.tag}];
  const std::string key = fmt::format("message/{}/{}/{}/{}", from, to, meta.tag, number);
  const std::string size = fmt::format("{} x {}", meta.elements, meta.dtype);
  const std::string own = (sends ? "sends " : "receives ") + size;
  const std::string first = session_.store().set_if_absent(key, own);
  if (first == own) return;
  session_.store().erase(key);
  if (first.ends_with(" " + size)) return;
  throw CommunicationError(fmt::format("{}: message {} with tag {} from {} to {}: this rank {}, but {} {}",
                                       session_.members().who, number, meta.tag,
                                       session_.members().called(from), session_.members().called(to), own,
                                       session_.members().called(meta.peer), first));
}

void CollectiveCheck::refuse(std::uint64_t number, const PostedCall& own, const PostedCall& other) const {
  const auto called = [](const PostedCall& call) {
    return call.site.empty() ? std::string() : fmt::format(" (called by {})", call.site);
  };
  throw CommunicationError(
      fmt::format("{}: the ranks do different things in collective #{}: {}{} here, but {} does {}{}. All "
                  "ranks must call the same "
                  "operations in the same order, with tensors of the same size and dtype",
                  session_.members().who, number, own.is, called(own),
                  session_.members().called(other.member), other.is, called(other)));
}

}  // namespace lockstep::comm
