#include "datasets/table/json_feature.hpp"

#include <nlohmann/json.hpp>

namespace lockstep::table {

Feature json_feature() { return Feature::other(R"({"_type": "Json"})", DataType(TypeKind::utf8)); }

bool is_json(const Feature& feature) {
  if (feature.kind() != Feature::Kind::other) return false;
  const auto json = nlohmann::json::parse(feature.json(), nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.value("_type", nlohmann::json()) == "Json";
}

}  // namespace lockstep::table
