#include <torch/types.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/core/error.hpp"
#include "probe.hpp"

namespace probe {
namespace {

using lockstep::ProcessGroup;
using lockstep::ReduceOp;

/// Values that identify rank and position: rank 2 has 200, 201, ...
at::Tensor own(const ProcessGroup& group, std::int64_t count = 2) {
  return torch::arange(count) + 100 * group.rank();
}

at::Tensor of_rank(int rank, std::int64_t count = 2) { return torch::arange(count) + 100 * rank; }

/// All ranks' own tensors, concatenated.
at::Tensor of_all(const ProcessGroup& group) {
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < group.size(); ++rank) parts.push_back(of_rank(rank));
  return torch::cat(parts);
}

std::vector<at::Tensor> rows(const at::Tensor& tensor, int count) { return tensor.chunk(count); }

void expect(const char* what, bool right) {
  if (!right) throw lockstep::Error(std::string(what) + " is wrong");
}

void expect(const char* what, const at::Tensor& got, const at::Tensor& expected) {
  if (at::equal(got, expected)) return;
  std::ostringstream text;
  text << what << " gave " << got << ", expected " << expected;
  throw lockstep::Error(text.str());
}

void reductions(const ProcessGroup& group) {
  const int size = group.size();
  at::Tensor sum = own(group);
  group.all_reduce(sum);
  expect("all_reduce", sum, torch::arange(2) * size + 100 * size * (size - 1) / 2);
  at::Tensor least = own(group);
  group.all_reduce(least, ReduceOp::min);
  expect("all_reduce of min", least, of_rank(0));
  at::Tensor mean = own(group).to(torch::kDouble);
  group.all_reduce(mean, ReduceOp::avg);
  expect("all_reduce of avg", mean, torch::arange(2, torch::kDouble) + 50.0 * (size - 1));
  at::Tensor most = own(group);
  group.reduce(most, size - 1, ReduceOp::max);
  if (group.rank() == size - 1) expect("reduce", most, of_rank(size - 1));
}

void scattered_reductions(const ProcessGroup& group) {
  const int size = group.size();
  const at::Tensor input = torch::arange(2 * size) + group.rank();
  const at::Tensor all = torch::arange(2 * size) * size + size * (size - 1) / 2;
  const at::Tensor expected = rows(all, size)[group.rank()];
  at::Tensor output = torch::empty({2}, torch::kLong);
  group.reduce_scatter(output, rows(input, size));
  expect("reduce_scatter", output, expected);
  output.zero_();
  group.reduce_scatter_tensor(output, input);
  expect("reduce_scatter_tensor", output, expected);
}

void copies(const ProcessGroup& group) {
  const int size = group.size();
  at::Tensor sent = own(group);
  group.broadcast(sent, 1);
  expect("broadcast", sent, of_rank(1));
  expect("all_gather", torch::cat(group.all_gather(own(group))), of_all(group));
  at::Tensor gathered = torch::empty({2 * size}, torch::kLong);
  group.all_gather_into_tensor(gathered, own(group));
  expect("all_gather_into_tensor", gathered, of_all(group));
  const auto at_root = group.gather(own(group), 1);
  expect("gather elsewhere", (group.rank() == 1) == !at_root.empty());
  if (group.rank() == 1) expect("gather", torch::cat(at_root), of_all(group));
  at::Tensor part = torch::empty({2}, torch::kLong);
  group.scatter(part, group.rank() == 0 ? rows(of_all(group), size) : std::vector<at::Tensor>{}, 0);
  expect("scatter", part, own(group));
}

void exchanges(const ProcessGroup& group) {
  const int size = group.size();
  // Before, position p of rank r is r * size + p; afterwards, position p of rank r is what p had for r.
  const at::Tensor input = torch::arange(size) + group.rank() * size;
  const at::Tensor expected = torch::arange(size) * size + group.rank();
  at::Tensor output = torch::empty({size}, torch::kLong);
  group.all_to_all_single(output, input);
  expect("all_to_all_single", output, expected);
  output.zero_();
  group.all_to_all(rows(output, size), rows(input, size));
  expect("all_to_all", output, expected);
}

void messages(const ProcessGroup& group) {
  const int size = group.size();
  const int next = (group.rank() + 1) % size;
  const int before = (group.rank() + size - 1) % size;
  at::Tensor received = torch::empty({2}, torch::kLong);
  const at::Tensor mine = own(group);
  auto sending = group.send_async(mine, next);
  group.recv(received, before);
  sending.wait();
  expect("send and recv", received, of_rank(before));
  if (group.rank() != 0) return group.send(mine, 0, 7);
  for (int i = 1; i < size; ++i) {
    const int source = group.recv_any_source(received, 7);
    expect("recv_any_source", received, of_rank(source));
  }
}

void objects(const ProcessGroup& group) {
  const std::string own_text(static_cast<std::size_t>(1000 * group.rank()),
                             static_cast<char>('a' + group.rank()));
  expect("broadcast_object", group.broadcast_object(own_text, 1) == std::string(1000, 'b'));
  const auto all = group.all_gather_object(own_text);
  for (std::size_t r = 0; r < all.size(); ++r) {
    expect("all_gather_object", all[r] == std::string(1000 * r, static_cast<char>('a' + r)));
  }
  const nlohmann::json json = group.broadcast_object(nlohmann::json{{"rank", group.rank()}}, 2);
  expect("broadcast_object of JSON", json.at("rank") == 2);
  expect("scatter_object", group.scatter_object(all, 0) == own_text);
}

void sub_groups(const ProcessGroup& group) {
  const int last = group.size() - 1;
  const auto pair = group.new_group({last, 0});
  expect("membership", pair.has_value() == (group.rank() == 0 || group.rank() == last));
  if (!pair) return;
  expect("rank in a sub-group", pair->rank() == (group.rank() == last ? 0 : 1));
  at::Tensor value = torch::tensor({group.rank() + 1});
  pair->all_reduce(value);
  expect("all_reduce of a sub-group", value, torch::tensor({last + 2}));
  pair->barrier();
}

void in_flight(const ProcessGroup& group) {
  std::vector<at::Tensor> tensors;
  std::vector<lockstep::Work> works;
  for (int i = 0; i < 16; ++i) {
    tensors.push_back(torch::full({1000}, i + group.rank()));
    works.push_back(group.all_reduce_async(tensors.back()));
  }
  for (auto& work : works) work.wait();
  const int size = group.size();
  for (int i = 0; i < 16; ++i) {
    expect("all_reduce_async", tensors[i], torch::full({1000}, i * size + size * (size - 1) / 2));
    expect("is_completed", works[i].is_completed());
  }
}

}  // namespace

int collectives(const Words&) {
  const auto accelerator = join();
  const ProcessGroup& group = accelerator.process_group();
  for (const auto& check :
       {reductions, scattered_reductions, copies, exchanges, messages, objects, sub_groups, in_flight}) {
    check(group);
    group.barrier();
  }
  accelerator.print("all collectives are right on ", group.size(), " ranks");
  return 0;
}

}  // namespace probe
