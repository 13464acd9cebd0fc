#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/facts.hpp"
#include "lockstep/core/version.hpp"

namespace lockstep::launch {
namespace {

struct EnvOptions {
  bool json = false;
};

OptionTable<EnvOptions> env_options() {
  return OptionTable<EnvOptions>(
             "lockstep env",
             "Prints the versions, the host with its devices and limits, and the environment "
             "variables that decide how jobs run; nothing secret. For reports of problems.")
      .add("json", &EnvOptions::json, "As one JSON object.");
}

struct Section {
  const char* name;
  Facts facts;
};

void print(const std::vector<Section>& sections, std::ostream& out) {
  for (const auto& section : sections) {
    out << section.name << '\n';
    for (const auto& [name, value] : section.facts) out << fmt::format("  {:<20}  {}\n", name, value);
    if (section.facts.empty()) out << "  none\n";
  }
}

void print_json(const std::vector<Section>& sections, std::ostream& out) {
  nlohmann::ordered_json document;
  for (const auto& section : sections) {
    auto& object = document[section.name] = nlohmann::ordered_json::object();
    for (const auto& [name, value] : section.facts) object[name] = value;
  }
  out << document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

}  // namespace

int env_command(const Words& words, std::ostream& out, std::ostream&) {
  const auto parsed = parse_or_help(env_options(), words, out);
  if (!parsed) return 0;
  Facts versions = {{"lockstep", version()}};
  for (auto& fact : library_facts()) versions.push_back(std::move(fact));
  const std::vector<Section> sections = {
      {"versions", versions}, {"host", host_facts()}, {"variables", variable_facts(process_environment())}};
  parsed->options.json ? print_json(sections, out) : print(sections, out);
  return 0;
}

}  // namespace lockstep::launch
