#include "kernels/nvrtc.hpp"

#include <dlfcn.h>
#include <fmt/core.h>
#include <link.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "lockstep/core/error.hpp"

namespace lockstep::kernels {
namespace {

namespace fs = std::filesystem;

using Program = struct NvrtcProgram*;

/// The functions of nvrtc.h, whose results are 0 for success.
struct Nvrtc {
  const char* (*error_text)(int result);
  int (*version)(int* major, int* minor);
  int (*create)(Program* program, const char* text, const char* name, int headers,
                const char* const* contents, const char* const* names);
  int (*destroy)(Program* program);
  int (*add_name)(Program program, const char* expression);
  int (*compile)(Program program, int count, const char* const* options);
  int (*lowered_name)(Program program, const char* expression, const char** lowered);
  int (*cubin_size)(Program program, std::size_t* bytes);
  int (*cubin)(Program program, char* bytes);
  int (*log_size)(Program program, std::size_t* bytes);
  int (*log)(Program program, char* text);
};

/// The folders of this process's libraries of LibTorch and CUDA, and those of NVIDIA's Python packages beside
/// them.
std::set<fs::path> library_folders() {
  std::set<fs::path> folders;
  const auto add = [](dl_phdr_info* info, std::size_t, void* data) {
    const fs::path path = info->dlpi_name;
    const std::string name = path.filename().string();
    if (name.starts_with("libtorch_") || name.starts_with("libcudart") || name.starts_with("libcublas"))
      static_cast<std::set<fs::path>*>(data)->insert(fs::weakly_canonical(path).parent_path());
    return 0;
  };
  dl_iterate_phdr(add, &folders);
  std::set<fs::path> beside;
  for (const auto& folder : folders) {
    std::error_code failure;
    for (const auto& each : fs::directory_iterator(folder / "../../nvidia", failure))
      beside.insert(each.path() / "lib");
  }
  folders.merge(beside);
  return folders;
}

/// "libnvrtc.so.13" and "libnvrtc-1ea5e5f8.so.13", but neither "libnvrtc-builtins.so" nor "libnvrtc.alt.so".
bool is_nvrtc(const std::string& name) {
  return name.starts_with("libnvrtc") && name.find(".so") != std::string::npos &&
         name.find("builtins") == std::string::npos && name.find(".alt") == std::string::npos;
}

void* open_nvrtc() {
  for (const auto& folder : library_folders()) {
    std::error_code failure;
    for (const auto& each : fs::directory_iterator(folder, failure)) {
      if (!is_nvrtc(each.path().filename().string())) continue;
      if (void* library = dlopen(each.path().c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    }
  }
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  throw Error(
      "there is no libnvrtc beside LibTorch, which compiles Lockstep's CUDA kernels: install the "
      "Python package nvidia-cuda-nvrtc of LibTorch's CUDA version");
}

Nvrtc load() {
  void* library = open_nvrtc();
  Nvrtc functions{};
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) throw Error(fmt::format("libnvrtc has no function {}", name));
  };
  find(functions.error_text, "nvrtcGetErrorString");
  find(functions.version, "nvrtcVersion");
  find(functions.create, "nvrtcCreateProgram");
  find(functions.destroy, "nvrtcDestroyProgram");
  find(functions.add_name, "nvrtcAddNameExpression");
  find(functions.compile, "nvrtcCompileProgram");
  find(functions.lowered_name, "nvrtcGetLoweredName");
  find(functions.cubin_size, "nvrtcGetCUBINSize");
  find(functions.cubin, "nvrtcGetCUBIN");
  find(functions.log_size, "nvrtcGetProgramLogSize");
  find(functions.log, "nvrtcGetProgramLog");
  return functions;
}

const Nvrtc& nvrtc() {
  static const Nvrtc functions = load();
  return functions;
}

void check_result(int result, const char* what) {
  if (result != 0) throw Error(fmt::format("NVRTC failed to {}: {}", what, nvrtc().error_text(result)));
}

/// What the compiler said, without the zero at its end.
std::string log_of(Program program) {
  std::size_t bytes = 0;
  if (nvrtc().log_size(program, &bytes) != 0 || bytes < 2) return "";
  std::string text(bytes, '\0');
  if (nvrtc().log(program, text.data()) != 0) return "";
  text.resize(bytes - 1);
  return text;
}

/// The first line with an error, otherwise the first.
std::string first_error(const std::string& log) {
  const std::size_t found = log.find("error");
  const std::size_t begin = found == std::string::npos ? 0 : log.rfind('\n', found) + 1;
  return log.substr(begin, log.find('\n', begin) - begin);
}

}  // namespace

std::string nvrtc_version() {
  int major = 0, minor = 0;
  check_result(nvrtc().version(&major, &minor), "say its version");
  return fmt::format("{}.{}", major, minor);
}

Cubin compile_cuda(const std::string& text, const std::string& instance, const std::string& architecture,
                   const std::vector<std::string>& options, std::string* log) {
  Program program = nullptr;
  check_result(nvrtc().create(&program, text.c_str(), "lockstep.cu", 0, nullptr, nullptr),
               "create a program");
  const auto destroy = [](Program* made) { nvrtc().destroy(made); };
  const std::unique_ptr<Program, decltype(destroy)> end(&program, destroy);
  check_result(nvrtc().add_name(program, instance.c_str()), "take a name");
  std::vector<std::string> all{"-arch=" + architecture, "-std=c++17"};
  all.insert(all.end(), options.begin(), options.end());
  std::vector<const char*> pointers;
  for (const auto& option : all) pointers.push_back(option.c_str());
  const int result = nvrtc().compile(program, static_cast<int>(pointers.size()), pointers.data());
  const std::string said = log_of(program);
  if (log != nullptr) *log = said;
  if (result != 0) {
    throw Error(fmt::format("NVRTC {} cannot compile {} for {}: {}", nvrtc_version(), instance, architecture,
                            said.empty() ? nvrtc().error_text(result) : first_error(said)));
  }
  const char* symbol = nullptr;
  check_result(nvrtc().lowered_name(program, instance.c_str(), &symbol), "name a kernel");
  std::size_t bytes = 0;
  check_result(nvrtc().cubin_size(program, &bytes), "size a kernel");
  Cubin cubin{.symbol = symbol, .bytes = std::string(bytes, '\0')};
  check_result(nvrtc().cubin(program, cubin.bytes.data()), "give a kernel");
  return cubin;
}

}  // namespace lockstep::kernels
