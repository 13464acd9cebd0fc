#include "core/elastic/recovery_messages.hpp"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "core/json_text.hpp"
#include "core/text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::elastic {
namespace {

using nlohmann::json;

constexpr const char* kSpare = "spare";

json json_of(const RankProcess& process) { return json::array({process.rank, process.process}); }

RankProcess process_from(const json& value) {
  return {.rank = value.at(0).get<int>(), .process = value.at(1).get<int>()};
}

/// The kinds and origins are passed by number: ranks and launcher are of one version.
template <class Enum>
Enum enum_from(const json& value, Enum last) {
  const int number = value.get<int>();
  if (number < 0 || number > static_cast<int>(last))
    throw DataError(fmt::format("a message about a recovery has the unknown number {}", number));
  return static_cast<Enum>(number);
}

json json_of(const HeldState& held) { return json::array({static_cast<int>(held.kind), held.step}); }

HeldState held_from(const json& value) {
  return {.kind = enum_from(value.at(0), HeldState::Kind::torn), .step = value.at(1).get<std::uint64_t>()};
}

template <class Read>
auto read_message(const std::string& text, const Read& read) {
  try {
    return read(json::parse(text));
  } catch (const json::exception& error) {
    throw DataError(fmt::format("'{}' is no message about a recovery: {}", text, error.what()));
  }
}

}  // namespace

std::string revoked_key(Generation generation) {
  return fmt::format("{}/generation/{}/revoked", kWatchPrefix, generation);
}
std::string wake_key(Generation generation, int rank) {
  return fmt::format("{}/generation/{}/wake/{}", kWatchPrefix, generation, rank);
}
std::string decision_key(Generation generation) { return fmt::format("elastic/decision/{}", generation); }
std::string call_key(const RankProcess& spare) {
  return fmt::format("elastic/call/{}/{}", spare.rank, spare.process);
}
std::string end_key(Generation generation) { return fmt::format("elastic/end/{}", generation); }

std::string key_of(const RankReport& report) {
  return fmt::format("{}{}/{}/{}/{}", kReportPrefix, report.generation, static_cast<int>(report.what),
                     report.process.rank, report.process.process);
}

std::string text_of(const RankReport& report) {
  json message{{"what", static_cast<int>(report.what)},
               {"process", json_of(report.process)},
               {"generation", report.generation},
               {"held", json_of(report.held)},
               {"why", report.why},
               {"program", report.program}};
  return json_text(message);
}

RankReport report_from(const std::string& text) {
  return read_message(text, [](const json& message) {
    RankReport report{.what = enum_from(message.at("what"), RankReport::What::ready),
                      .process = process_from(message.at("process")),
                      .generation = message.at("generation").get<Generation>(),
                      .held = held_from(message.at("held")),
                      .why = message.at("why").get<std::string>(),
                      .program = message.at("program").get<std::string>()};
    return report;
  });
}

std::string difference_of_programs(const std::string& before, const std::string& now) {
  if (before == now) return "";
  return read_message(before, [&](const json& first) -> std::string {
    const json second = json::parse(now);
    const auto describe = [](const std::string& what, const json& old_value, const json& new_value) {
      return fmt::format("{}: {} before, {} now", what, json_text(old_value), json_text(new_value));
    };
    for (const auto& [name, value] : first.items()) {
      const json other = second.value(name, json());
      if (!value.is_object() || !other.is_object()) {
        if (value != other) return describe(name, value, other);
        continue;
      }
      for (const auto& [key, entry] : value.items()) {
        if (other.contains(key) && other[key] != entry) return describe(name + " " + key, entry, other[key]);
      }
    }
    return "";
  });
}

std::string text_of(const Decision& decision) {
  json message{{"why", decision.why}};
  if (decision.plan) {
    const RecoveryPlan& plan = *decision.plan;
    json members = json::array();
    for (const auto& member : plan.members) members.push_back(json_of(member));
    message["plan"] = {{"generation", plan.generation},
                       {"members", members},
                       {"source", plan.source},
                       {"receivers", plan.receivers},
                       {"step", plan.step}};
  }
  return json_text(message);
}

Decision decision_from(const std::string& text) {
  return read_message(text, [](const json& message) {
    Decision decision{.why = message.at("why").get<std::string>()};
    if (!message.contains("plan")) return decision;
    const json& given = message["plan"];
    RecoveryPlan plan;
    plan.generation = given.at("generation").get<Generation>();
    plan.source = given.at("source").get<int>();
    plan.receivers = given.at("receivers").get<std::vector<int>>();
    plan.step = given.at("step").get<std::uint64_t>();
    for (const auto& member : given.at("members")) plan.members.push_back(process_from(member));
    decision.plan = std::move(plan);
    return decision;
  });
}

std::string text_of(const Replacement& replacement) {
  if (replacement.is_spare()) return fmt::format("{}:{}", replacement.process, kSpare);
  return fmt::format("{}:{}", replacement.process, replacement.generation);
}

std::optional<Replacement> replacement_from(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const auto colon = text.find(':');
  const std::string number = colon == std::string::npos ? "" : text.substr(colon + 1);
  const int process = parse_number<int>(text.substr(0, colon)).value_or(0);
  const Generation generation = parse_number<Generation>(number).value_or(0);
  if (process >= 1 && number == kSpare) return Replacement{.process = process, .generation = 0};
  if (process < 1 || generation < 2)
    throw UsageError(
        fmt::format("{}='{}': only the launcher sets it, to the numbers of a process and of a "
                    "generation, as in 1:2, or to 1:spare",
                    kReplacesVariable, text));
  return Replacement{.process = process, .generation = generation};
}

}  // namespace lockstep::elastic
