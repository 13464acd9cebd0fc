#include "comm/set_up_record.hpp"

#include <fmt/core.h>

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "comm/backend/cpu_backend.hpp"

namespace lockstep::comm {
namespace {

using nlohmann::json;

/// What the first processes have kept is there when a new one is started, but for what is still on its way.
constexpr std::chrono::seconds kOnItsWay{1};

json binary(const std::string& bytes) {
  return json::binary(std::vector<std::uint8_t>(bytes.begin(), bytes.end()));
}

std::string text(const json& bytes) {
  const auto& all = bytes.get_binary();
  return {all.begin(), all.end()};
}

std::shared_ptr<SetUpRecord> record_of(const ProcessGroup& group) {
  if (!group.device().is_cpu()) return nullptr;
  const auto* const cpu = cpu_backend_of(group);
  return cpu == nullptr ? nullptr : cpu->set_up();
}

}  // namespace

SetUpRecord::Results SetUpRecord::result(const std::string& path, const std::string& what,
                                         const std::string& keeper, bool keeps,
                                         const std::function<Results()>& communicate) {
  if (depth_ > 0 || is_over()) return communicate();
  const std::string key = fmt::format("{}/{}/{}", path, ++numbers_[path], keeper);
  if (lonely_) return kept(key, what);
  const std::uint64_t before = recorder_->operations();
  Results results = communicate();
  leave_out(before);
  if (keeps && !is_over()) keep(key, what, results);
  return results;
}

/// A program that begins no such training has any number of them.
void SetUpRecord::keep(const std::string& key, const std::string& what, const Results& results) {
  json entry{{"what", what}, {"results", json::array()}};
  bytes_ += key.size() + what.size();
  for (const auto& result : results) {
    bytes_ += result.size();
    entry["results"].push_back(binary(result));
  }
  if (bytes_ > kMostBytes) {
    entry.erase("results");
    unanswered_ = fmt::format("{}, whose result is not kept: {} MiB at most are,", what, kMostBytes >> 20U);
  }
  std::string bytes;
  json::to_cbor(entry, bytes);
  store_.set(key, bytes);
}

SetUpRecord::Results SetUpRecord::kept(const std::string& key, const std::string& what) const {
  if (!store_.wait(key, kOnItsWay)) lonely_->refuse(what + ", which the lost process did not call");
  const json entry = json::from_cbor(store_.get(key, kOnItsWay));
  if (entry.at("what") != what)
    lonely_->refuse(
        fmt::format("{}, in whose place the lost process called {}", what, entry["what"].get<std::string>()));
  if (!entry.contains("results"))
    lonely_->refuse(
        fmt::format("{}, whose result was not kept: {} MiB at most are,", what, kMostBytes >> 20U));
  Results results;
  for (const auto& result : entry["results"]) results.push_back(text(result));
  return results;
}

void SetUpRecord::note_barrier() {
  if (depth_ == 0 && !is_over()) unanswered_ = "barrier";
}

void SetUpRecord::enter_left_out() {
  if (depth_++ == 0) entered_ = recorder_->operations();
}

void SetUpRecord::leave_left_out() {
  if (--depth_ == 0) leave_out(entered_);
}

void SetUpRecord::leave_out(std::uint64_t before) {
  if (is_over()) return;
  if (before > seen_) {
    unanswered_ = name_of(seen_ + 1);
  } else {
    seen_ = recorder_->operations();
  }
}

std::string SetUpRecord::end() {
  leave_out(recorder_->operations());
  has_ended_ = true;
  return unanswered_;
}

std::string SetUpRecord::name_of(std::uint64_t operation) const {
  const auto record = recorder_->find({.serial = operation});
  return record ? std::string(record->meta.name) : fmt::format("operation #{}", operation);
}

LeftOutByNewcomers::LeftOutByNewcomers(const ProcessGroup& group) : record_(record_of(group)) {
  if (record_) record_->enter_left_out();
}

LeftOutByNewcomers::~LeftOutByNewcomers() {
  if (record_) record_->leave_left_out();
}

std::string end_set_up(const ProcessGroup& group) {
  const auto record = record_of(group);
  return record ? record->end() : "";
}

}  // namespace lockstep::comm
