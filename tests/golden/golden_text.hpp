#pragma once

#include <string>
#include <utility>

#include "lockstep/comm/process_group.hpp"

namespace lockstep::golden {

/// Writes tensors down exactly: a heading with the name and the shape, then one hexadecimal number a line.
class Text {
 public:
  explicit Text(ProcessGroup group) : group_(std::move(group)) {}

  /// An undefined tensor is written as "none".
  void add(const std::string& heading, const at::Tensor& tensor);

  /// What may differ between ranks stands in every rank's text, so that all texts are the same. *Collective*.
  void add_of_all_ranks(const std::string& heading, const at::Tensor& tensor);

  const std::string& text() const { return text_; }

 private:
  ProcessGroup group_;
  std::string text_;
};

}  // namespace lockstep::golden
