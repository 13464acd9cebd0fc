#include "kernels/cuda_source.hpp"

#include <algorithm>

#include "lockstep/core/error.hpp"

namespace lockstep::kernels {
namespace {

const std::string& find_text(const std::string& name) {
  const auto& sources = cuda_sources();
  const auto found =
      std::find_if(sources.begin(), sources.end(), [&](const auto& source) { return source.name == name; });
  if (found == sources.end()) throw UsageError("there is no CUDA source '" + name + "'");
  return found->text;
}

}  // namespace

std::string cuda_text(const std::string& name) {
  return find_text("arguments") + "\n#line 1 \"prelude.cu\"\n" + find_text("prelude") + "\n#line 1 \"" +
         name + ".cu\"\n" + find_text(name);
}

}  // namespace lockstep::kernels
