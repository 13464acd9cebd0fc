#include "collectives.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

#include <algorithm>
#include <map>

#include "lockstep/core/error.hpp"

namespace bench {
namespace {

using lockstep::ProcessGroup;
using lockstep::ReduceOp;
using Maker = Case (*)(const ProcessGroup&, const Shape&);

/// Small whole numbers, different from rank to rank and place to place: sums are exact in every dtype, up to
/// a hundred ranks.
at::Tensor whole(const ProcessGroup& group, int rank, std::int64_t count) {
  return at::arange(count, at::TensorOptions(at::kLong).device(group.device())).add(rank).remainder(3);
}

at::Tensor values(const ProcessGroup& group, const Shape& shape, int rank, std::int64_t count) {
  return whole(group, rank, count).to(shape.dtype);
}

at::Tensor combined(const at::Tensor& a, const at::Tensor& b, ReduceOp op) {
  if (op == ReduceOp::min) return at::minimum(a, b);
  if (op == ReduceOp::max) return at::maximum(a, b);
  return op == ReduceOp::product ? a.mul(b) : a.add(b);
}

at::Tensor reduced(const ProcessGroup& group, const Shape& shape) {
  at::Tensor all = whole(group, 0, shape.count);
  for (int rank = 1; rank < group.size(); ++rank)
    all = combined(all, whole(group, rank, shape.count), shape.op);
  // As the backends do: the sum, in the dtype, is divided.
  return shape.op == ReduceOp::avg ? all.to(shape.dtype).div(group.size()) : all.to(shape.dtype);
}

std::vector<at::Tensor> parts(const at::Tensor& tensor, int count) { return tensor.chunk(count); }

at::Tensor part_of(const at::Tensor& tensor, const ProcessGroup& group) {
  const std::int64_t length = tensor.numel() / group.size();
  return tensor.narrow(0, group.rank() * length, length);
}

at::Tensor all_values(const ProcessGroup& group, const Shape& shape) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < group.size(); ++rank)
    all.push_back(values(group, shape, rank, shape.count / group.size()));
  return at::cat(all);
}

/// In place: the input is put back before the run that is checked.
Case in_place(const at::Tensor& input, std::function<void(const at::Tensor&)> run,
              const at::Tensor& expected) {
  const at::Tensor buffer = input.clone();
  return {[=] { buffer.copy_(input); }, [=] { run(buffer); }, buffer, expected};
}

Case out_of_place(const at::Tensor& output, std::function<void()> run, const at::Tensor& expected) {
  return {[=] { output.zero_(); }, std::move(run), output, expected};
}

Case all_reduce(const ProcessGroup& group, const Shape& shape) {
  return in_place(
      values(group, shape, group.rank(), shape.count),
      [group, op = shape.op](const at::Tensor& tensor) { group.all_reduce(tensor, op); },
      reduced(group, shape));
}

Case reduce(const ProcessGroup& group, const Shape& shape) {
  Case made = in_place(
      values(group, shape, group.rank(), shape.count),
      [group, op = shape.op](const at::Tensor& tensor) { group.reduce(tensor, 0, op); },
      reduced(group, shape));
  if (group.rank() != 0) made.expected.reset();
  return made;
}

Case broadcast(const ProcessGroup& group, const Shape& shape) {
  return in_place(
      values(group, shape, group.rank(), shape.count),
      [group](const at::Tensor& tensor) { group.broadcast(tensor, 0); },
      values(group, shape, 0, shape.count));
}

Case all_gather(const ProcessGroup& group, const Shape& shape) {
  const at::Tensor input = values(group, shape, group.rank(), shape.count / group.size());
  const at::Tensor output = at::empty({shape.count}, input.options());
  return out_of_place(
      output, [=] { group.all_gather_into_tensor(output, input); }, all_values(group, shape));
}

Case reduce_scatter(const ProcessGroup& group, const Shape& shape) {
  const at::Tensor input = values(group, shape, group.rank(), shape.count);
  const at::Tensor output = at::empty({shape.count / group.size()}, input.options());
  const ReduceOp op = shape.op;
  return out_of_place(
      output, [=] { group.reduce_scatter_tensor(output, input, op); }, part_of(reduced(group, shape), group));
}

Case gather(const ProcessGroup& group, const Shape& shape) {
  const at::Tensor input = values(group, shape, group.rank(), shape.count / group.size());
  const bool root = group.rank() == 0;
  const at::Tensor output = at::empty({root ? shape.count : 0}, input.options());
  const auto outputs = root ? parts(output, group.size()) : std::vector<at::Tensor>{};
  Case made = out_of_place(
      output, [=] { group.gather_async(outputs, input, 0).wait(); }, all_values(group, shape));
  if (!root) made.expected.reset();
  return made;
}

Case scatter(const ProcessGroup& group, const Shape& shape) {
  const at::Tensor input = values(group, shape, 0, shape.count);
  const at::Tensor output = at::empty({shape.count / group.size()}, input.options());
  const auto inputs = group.rank() == 0 ? parts(input, group.size()) : std::vector<at::Tensor>{};
  return out_of_place(
      output, [=] { group.scatter(output, inputs, 0); }, part_of(input, group));
}

Case all_to_all(const ProcessGroup& group, const Shape& shape) {
  const at::Tensor input = values(group, shape, group.rank(), shape.count);
  const at::Tensor output = at::empty_like(input);
  std::vector<at::Tensor> expected;
  for (int rank = 0; rank < group.size(); ++rank)
    expected.push_back(part_of(values(group, shape, rank, shape.count), group));
  return out_of_place(
      output, [=] { group.all_to_all_single(output, input); }, at::cat(expected));
}

/// Every rank sends to the next one.
Case send_recv(const ProcessGroup& group, const Shape& shape) {
  const int before = (group.rank() + group.size() - 1) % group.size();
  const at::Tensor input = values(group, shape, group.rank(), shape.count);
  const at::Tensor output = at::empty_like(input);
  const auto run = [=] {
    auto sending = group.send_async(input, (group.rank() + 1) % group.size());
    group.recv(output, before);
    sending.wait();
  };
  return out_of_place(output, run, values(group, shape, before, shape.count));
}

/// Moves nothing: there is only its time.
Case barrier(const ProcessGroup& group, const Shape&) {
  return {[] {}, [group] { group.barrier(); }, {}, {}};
}

/// What becomes of a size: every rank has all of it, or a part.
enum class Size { none, whole, in_parts };

struct Collective {
  Maker make;
  Size size;
  bool reduces;
};

const std::map<std::string, Collective>& collectives() {
  static const std::map<std::string, Collective> all{
      {"all_reduce", {all_reduce, Size::whole, true}},
      {"reduce", {reduce, Size::whole, true}},
      {"broadcast", {broadcast, Size::whole, false}},
      {"all_gather", {all_gather, Size::in_parts, false}},
      {"gather", {gather, Size::in_parts, false}},
      {"reduce_scatter", {reduce_scatter, Size::in_parts, true}},
      {"scatter", {scatter, Size::in_parts, false}},
      {"all_to_all", {all_to_all, Size::in_parts, false}},
      {"send_recv", {send_recv, Size::whole, false}},
      {"barrier", {barrier, Size::none, false}}};
  return all;
}

const std::map<std::string, at::ScalarType> kDtypes{
    {"float", at::kFloat}, {"double", at::kDouble}, {"half", at::kHalf}, {"bfloat16", at::kBFloat16},
    {"int8", at::kChar},   {"uint8", at::kByte},    {"int32", at::kInt}, {"int64", at::kLong}};

}  // namespace

bool has_size(const std::string& collective) { return collectives().at(collective).size != Size::none; }

bool reduces(const std::string& collective) { return collectives().at(collective).reduces; }

double bus_factor(const std::string& collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (collective == "all_reduce") return 2 * others;
  return collectives().at(collective).size == Size::in_parts ? others : 1;
}

Case make_case(const std::string& collective, const ProcessGroup& group, const Shape& shape) {
  return collectives().at(collective).make(group, shape);
}

std::int64_t count_for(const std::string& collective, std::int64_t wished, int ranks) {
  switch (collectives().at(collective).size) {
    case Size::none:
      return 0;
    case Size::whole:
      return std::max(wished, std::int64_t{1});
    case Size::in_parts:
      break;
  }
  return std::max(wished / ranks, std::int64_t{1}) * ranks;
}

at::ScalarType dtype_from(const std::string& name) { return kDtypes.at(name); }

ReduceOp op_from(const std::string& name) {
  static const std::map<std::string, ReduceOp> ops{{"sum", ReduceOp::sum},
                                                   {"avg", ReduceOp::avg},
                                                   {"product", ReduceOp::product},
                                                   {"min", ReduceOp::min},
                                                   {"max", ReduceOp::max}};
  return ops.at(name);
}

}  // namespace bench
