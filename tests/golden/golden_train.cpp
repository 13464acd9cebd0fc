// Trains the golden cases and writes down every number exactly: `golden_train FOLDER CASE...`, alone or under
// a launcher. Every rank writes FOLDER/CASE.RANK.txt, the text that make_golden.py writes with Python's
// DistributedDataParallel. Scripted nets are read from FOLDER/CASE.pt.

#include <torch/optim/sgd.h>
#include <torch/script.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "golden_cases.hpp"
#include "golden_text.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/program.hpp"

namespace lockstep::golden {
namespace {

namespace fs = std::filesystem;

/// No hang outlives the test: after this long the process is ended by a signal.
constexpr unsigned kSecondsToLive = 50;

bool is_recorded(int step) { return step == 1 || step == 2 || step == 10; }

std::string heading(int step, const std::string& what) { return "step " + std::to_string(step) + " " + what; }

at::Tensor logits_of(const at::Tensor& output) { return output; }

at::Tensor logits_of(const torch::jit::IValue& output) {
  return output.isTensor() ? output.toTensor() : output.toTuple()->elements().at(0).toTensor();
}

template <class Ddp>
void backward(const Case& golden_case, Ddp& ddp, int step, Text& text) {
  const ProcessGroup& group = ddp.process_group();
  const Batch batch = batch_of(golden_case, step, group.rank(), group.size());
  const auto inputs = batch.inputs.chunk(golden_case.micro_batches);
  const auto targets = batch.targets.chunk(golden_case.micro_batches);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::optional<DistributedDataParallelBase::NoSync> no_sync;
    if (i + 1 < inputs.size()) no_sync.emplace(ddp);
    const at::Tensor logits = logits_of(ddp(inputs[i]));
    const at::Tensor loss = loss_of(golden_case, logits, targets[i]) / golden_case.micro_batches;
    loss.backward();
    text.add_of_all_ranks(heading(step, "loss"), loss);
  }
}

torch::optim::SGD make_optimizer(const Case& golden_case, const std::vector<NamedTensor>& parameters) {
  std::vector<at::Tensor> tensors;
  for (const auto& parameter : parameters) tensors.push_back(parameter.tensor);
  return torch::optim::SGD(
      tensors, torch::optim::SGDOptions(golden_case.learning_rate).momentum(golden_case.momentum));
}

template <class Module>
std::string train(const Case& golden_case, const Module& module, const ProcessGroup& group) {
  Text text(group);
  DistributedDataParallel<Module> ddp(module, group, golden_case.ddp);
  torch::optim::SGD optimizer = make_optimizer(golden_case, ddp.parameters());
  for (int step = 1; step <= golden_case.steps; ++step) {
    ddp.zero_grad();
    backward(golden_case, ddp, step, text);
    for (const auto& entry : ddp.parameters()) {
      if (is_recorded(step)) text.add(heading(step, "gradient " + entry.name), entry.tensor.grad());
    }
    optimizer.step();
  }
  for (const auto& entry : ddp.parameters()) text.add("weight " + entry.name, entry.tensor);
  for (const auto& entry : parallel::named_buffers_of(ddp.module())) {
    text.add_of_all_ranks("buffer " + entry.name, entry.tensor);
  }
  return text.text();
}

std::string train(const Case& golden_case, const fs::path& script, const ProcessGroup& group) {
  const torch::jit::GraphOptimizerEnabledGuard optimized(!golden_case.interpreted);
  if (!golden_case.scripted) return train(golden_case, make_net(golden_case), group);
  return train(golden_case, torch::jit::load(script.string()), group);
}

int run(int argc, char** argv) {
  ::alarm(kSecondsToLive);
  if (argc < 3) throw UsageError("expected: golden_train FOLDER CASE...");
  const fs::path folder = argv[1];
  const ProcessGroup group = ProcessGroup::init(World::from_environment());
  for (int i = 2; i < argc; ++i) {
    const std::string name = argv[i];
    const auto found = cases().find(name);
    if (found == cases().end()) throw UsageError("'" + name + "' is not a golden case: see golden_cases.cpp");
    const std::string text = train(found->second, folder / (name + ".pt"), group);
    AtomicFile file(folder / (name + "." + std::to_string(group.rank()) + ".txt"));
    file.write(text);
    file.commit();
  }
  group.barrier();
  return 0;
}

}  // namespace
}  // namespace lockstep::golden

int main(int argc, char** argv) {
  return lockstep::run_program("golden_train", [&] { return lockstep::golden::run(argc, argv); });
}
