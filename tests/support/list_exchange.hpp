#pragma once

#include <ATen/ATen.h>

#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "lockstep/comm/process_group.hpp"

namespace lockstep::testing {

/// What rank `from` has for rank `to`: of a size that tells them apart, and nothing for some.
inline at::Tensor addressed(at::ScalarType dtype, int from, int to, std::int64_t scale) {
  const std::int64_t rows = (from + 2 * to) % 4 * scale;
  return at::arange(3 * rows).add(7 * from + 11 * to).remainder(100).to(dtype).view({rows, 3});
}

/// Exchanges lists of tensors by c10d's all_to_all, and compares what comes with what each rank has for this
/// one; what is wrong, or nothing. *Collective*.
inline std::string list_exchange_problem(const ProcessGroup& group, at::ScalarType dtype,
                                         std::int64_t scale) {
  std::vector<at::Tensor> inputs, outputs, expected;
  for (int r = 0; r < group.size(); ++r) {
    inputs.push_back(addressed(dtype, group.rank(), r, scale));
    expected.push_back(addressed(dtype, r, group.rank(), scale));
    outputs.push_back(at::zeros_like(expected.back()));
  }
  group.c10d_process_group()->alltoall(outputs, inputs)->wait();
  for (int r = 0; r < group.size(); ++r) {
    const auto place = static_cast<std::size_t>(r);
    if (!at::equal(outputs[place], expected[place]))
      return std::string("all_to_all of ") + c10::toString(dtype) + ": what rank " + std::to_string(r) +
             " sent";
  }
  return "";
}

/// Of every kind of dtype, those among them that Gloo itself does not know.
inline std::string list_exchange_problem(const ProcessGroup& group) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte, at::kShort, at::kInt,
                           at::kLong, at::kBool, at::kComplexFloat}) {
    for (const std::int64_t scale : {0, 1, 1000}) {
      const std::string problem = list_exchange_problem(group, dtype, scale);
      if (!problem.empty()) return problem;
    }
  }
  return list_exchange_problem(group, at::kFloat, 100'003);
}

}  // namespace lockstep::testing
