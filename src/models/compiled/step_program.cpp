#include "models/compiled/step_program.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <memory>
#include <string>
#include <utility>

#include "lockstep/core/error.hpp"
#include "models/compiled/aten_graph.hpp"

namespace lockstep::models::compiled {
namespace {

using Loader = torch::inductor::AOTIModelPackageLoader;
using std::filesystem::path;

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

Graph interpreted(const StepGraph& graph) {
  const auto calls = std::make_shared<const AtenGraph>(graph.calls, graph.arguments.size());
  return [calls](const std::vector<at::Tensor>& arguments) { return calls->run(arguments); };
}

Graph machine_code(const path& package, const std::string& name) {
  const auto loader =
      std::make_shared<Loader>(package.string(), name, /*run_single_threaded=*/false, /*num_runners=*/1);
  return [loader](const std::vector<at::Tensor>& arguments) { return loader->run(arguments); };
}

/// step.pt2 and step.json come from one export, unless files of two were mixed.
void check_identity(const path& package, const std::string& identity) {
  const auto metadata = Loader::load_metadata_from_package(package.string(), "forward");
  const auto found = metadata.find("lockstep_step");
  if (found != metadata.end() && found->second == identity) return;
  throw DataError("'" + package.string() + "' and the step.json beside it are of different exports");
}

}  // namespace

StepProgram load_step_program(const path& folder) {
  StepProgram program{read_step_description(folder / "step.json"), {}, {}, {}};
  const auto& step = program.description;
  const path package = folder / "step.pt2";
  try {
    if (step.is_exact)
      return {step, interpreted(step.forward), interpreted(step.backward), interpreted(step.evaluation)};
    check_identity(package, step.identity);
    return {step, machine_code(package, "forward"), machine_code(package, "backward"),
            machine_code(package, "evaluation")};
  } catch (const DataError&) {
    throw;
  } catch (const std::exception& error) {
    throw DataError("'" + (step.is_exact ? folder / "step.json" : package).string() +
                    "' cannot be loaded: " + first_line(error));
  }
}

std::vector<at::Tensor> run(const Graph& graph, const std::vector<at::Tensor>& arguments) {
  const at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  try {
    return graph(arguments);
  } catch (const std::exception& error) {
    throw Error("the compiled step failed: " + first_line(error));
  }
}

at::Tensor laid_out(const at::Tensor& tensor, const Layout& layout) {
  bool fits = true;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    const auto i = static_cast<std::size_t>(d);
    fits = fits && (tensor.size(d) <= 1 || tensor.stride(d) == layout.strides[i]);
  }
  if (fits) return tensor.detach();
  const at::NoGradGuard no_grad;
  return at::empty_strided(layout.sizes, layout.strides, tensor.options()).copy_(tensor);
}

}  // namespace lockstep::models::compiled
