#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

namespace lockstep::models::compiled {

/// A graph of calls of ATen's operations, as lockstep_export.py writes it. Values have numbers, their slots:
/// first the arguments, then constants and the results of each call.
class AtenGraph {
 public:
  /// Throws DataError for an operation that this LibTorch does not have, and for a slot that is used before
  /// it has a value.
  explicit AtenGraph(const nlohmann::json& graph, std::size_t arguments);
  ~AtenGraph();
  AtenGraph(AtenGraph&&) noexcept;
  AtenGraph& operator=(AtenGraph&&) = delete;

  /// Calls the operations one after the other, and drops each value after its last use. Any threads.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& arguments) const;

 private:
  struct Argument;
  struct Call;
  struct Constant {
    std::size_t slot;
    at::Tensor value;
  };

  std::size_t slots_;
  std::vector<Constant> constants_;
  std::vector<Call> calls_;
  std::vector<std::size_t> results_;
};

}  // namespace lockstep::models::compiled
