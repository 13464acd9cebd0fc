# Finds LibTorch and defines LibTorch::cpu (libtorch_cpu and libc10 with their headers).
#
# PyTorch's own find_package(Torch) is not used: the package of a CUDA build insists on a CUDA toolkit and
# links every CUDA library into every program. Lockstep's core needs neither.
#
# Where it looks, in this order; the first three are the user's own choice:
#   1. Torch_DIR                (…/share/cmake/Torch)
#   2. CMAKE_PREFIX_PATH        (an unpacked LibTorch, or what torch.utils.cmake_prefix_path prints)
#   3. the active Python        (python3 on PATH has torch)
#   4. LOCKSTEP_VENV            (the environment that scripts/setup makes)
# A torch of another version than LOCKSTEP_TORCH_VERSION is an error in 1 and 2, and passed over in 3.
#
# Sets LibTorch_FOUND, LibTorch_ROOT, LibTorch_VERSION, LibTorch_HAS_CUDA.

set(LOCKSTEP_TORCH_VERSION 2.11)

function(_libtorch_version root out)
  set(version "")
  foreach(header include/torch/headeronly/version.h include/torch/version.h)
    if(NOT version AND EXISTS "${root}/${header}")
      file(STRINGS "${root}/${header}" lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      string(REGEX REPLACE "[^;0-9]" "" version "${lines}")
      string(REPLACE ";" "." version "${version}")
    endif()
  endforeach()
  set(${out} "${version}" PARENT_SCOPE)
endfunction()

# A root that the user named: its version must fit.
function(_libtorch_named origin root)
  _libtorch_version("${root}" version)
  if(NOT version MATCHES "^${LOCKSTEP_TORCH_VERSION}\\.")
    message(FATAL_ERROR "${origin} names the LibTorch in ${root}, which is version '${version}'. "
      "Lockstep needs ${LOCKSTEP_TORCH_VERSION}.x: name another, or name none and let scripts/setup fetch it.")
  endif()
  set(LibTorch_ROOT "${root}" PARENT_SCOPE)
  set(LibTorch_ORIGIN "${origin}" PARENT_SCOPE)
endfunction()

# The folder of the torch package of one Python, found without importing it.
function(_libtorch_python python out)
  set(${out} "" PARENT_SCOPE)
  if(NOT python)
    return()
  endif()
  execute_process(
    COMMAND "${python}" -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0])"
    OUTPUT_VARIABLE root ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
  if(NOT failed AND EXISTS "${root}/include")
    set(${out} "${root}" PARENT_SCOPE)
  endif()
endfunction()

set(LibTorch_ROOT "")
set(_torch_prefixes ${CMAKE_PREFIX_PATH} $ENV{CMAKE_PREFIX_PATH})
string(REPLACE ":" ";" _torch_prefixes "${_torch_prefixes}")
if(NOT Torch_DIR AND DEFINED ENV{Torch_DIR})
  set(Torch_DIR "$ENV{Torch_DIR}")
endif()

if(Torch_DIR)
  get_filename_component(_root "${Torch_DIR}/../../.." ABSOLUTE)
  _libtorch_named("Torch_DIR" "${_root}")
elseif(_torch_prefixes)
  find_file(_torch_config TorchConfig.cmake PATHS ${_torch_prefixes} NO_DEFAULT_PATH NO_CACHE
    PATH_SUFFIXES Torch share/cmake/Torch)
  if(_torch_config)
    get_filename_component(_root "${_torch_config}/../../../.." ABSOLUTE)
    _libtorch_named("CMAKE_PREFIX_PATH" "${_root}")
  endif()
endif()
if(NOT LibTorch_ROOT)
  find_program(_torch_python python3 NO_CACHE)
  _libtorch_python("${_torch_python}" _root)
  if(_root)
    _libtorch_version("${_root}" _version)
    if(_version MATCHES "^${LOCKSTEP_TORCH_VERSION}\\.")
      set(LibTorch_ROOT "${_root}")
      set(LibTorch_ORIGIN "the active Python")
    else()
      message(STATUS "passing over torch ${_version} of ${_torch_python}: ${LOCKSTEP_TORCH_VERSION}.x is needed")
    endif()
  endif()
endif()
if(NOT LibTorch_ROOT AND LOCKSTEP_VENV AND EXISTS "${LOCKSTEP_VENV}/bin/python")
  _libtorch_python("${LOCKSTEP_VENV}/bin/python" _root)
  if(_root)
    set(LibTorch_ROOT "${_root}")
    set(LibTorch_ORIGIN "${LOCKSTEP_VENV}")
  endif()
endif()
if(NOT LibTorch_ROOT)
  message(FATAL_ERROR "No LibTorch ${LOCKSTEP_TORCH_VERSION} found. Run scripts/setup, which fetches it, "
    "or name yours: -DCMAKE_PREFIX_PATH=/path/to/libtorch")
endif()

_libtorch_version("${LibTorch_ROOT}" LibTorch_VERSION)
find_library(LibTorch_CPU_LIBRARY torch_cpu PATHS "${LibTorch_ROOT}/lib" NO_DEFAULT_PATH REQUIRED NO_CACHE)
find_library(LibTorch_C10_LIBRARY c10 PATHS "${LibTorch_ROOT}/lib" NO_DEFAULT_PATH REQUIRED NO_CACHE)
find_library(LibTorch_CUDA_LIBRARY torch_cuda PATHS "${LibTorch_ROOT}/lib" NO_DEFAULT_PATH NO_CACHE)
find_library(LibTorch_C10_CUDA_LIBRARY c10_cuda PATHS "${LibTorch_ROOT}/lib" NO_DEFAULT_PATH NO_CACHE)
if(LibTorch_CUDA_LIBRARY AND LibTorch_C10_CUDA_LIBRARY)
  set(LibTorch_HAS_CUDA TRUE)
else()
  set(LibTorch_HAS_CUDA FALSE)
endif()

if(NOT TARGET LibTorch::cpu)
  add_library(LibTorch::c10 SHARED IMPORTED)
  set_target_properties(LibTorch::c10 PROPERTIES IMPORTED_LOCATION "${LibTorch_C10_LIBRARY}")
  add_library(LibTorch::cpu SHARED IMPORTED)
  set_target_properties(LibTorch::cpu PROPERTIES IMPORTED_LOCATION "${LibTorch_CPU_LIBRARY}")
  # SYSTEM: warnings in LibTorch's headers are not ours to mend.
  target_include_directories(LibTorch::cpu SYSTEM INTERFACE
    "${LibTorch_ROOT}/include" "${LibTorch_ROOT}/include/torch/csrc/api/include")
  target_link_libraries(LibTorch::cpu INTERFACE LibTorch::c10)
  # The wheel's libtorch_cpu finds its own neighbours by its RPATH, which a linker does not read.
  target_link_options(LibTorch::cpu INTERFACE "LINKER:--as-needed" "LINKER:--allow-shlib-undefined"
    "LINKER:--unresolved-symbols=ignore-in-shared-libs")
endif()

set(LibTorch_FOUND TRUE)
if(NOT LibTorch_FIND_QUIETLY)
  message(STATUS "LibTorch ${LibTorch_VERSION}: ${LibTorch_ROOT} (from ${LibTorch_ORIGIN})")
endif()
