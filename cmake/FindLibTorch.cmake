# Finds LibTorch and defines LibTorch::cpu (libtorch_cpu and libc10 with their headers).
#
# PyTorch's own find_package(Torch) is not used: the package of a CUDA build insists on a CUDA toolkit and
# links every CUDA library into every program. Lockstep's core needs neither.
# LibTorchSearch.cmake says where it looks. What it finds is kept in the cache as LOCKSTEP_RECORDED_TORCH, so that
# a build folder stays with its LibTorch when a later run of CMake comes from another shell.
#
# Sets LibTorch_FOUND, LibTorch_ROOT, LibTorch_VERSION, LibTorch_HAS_CUDA and, with it, LibTorch_CUDA_LIBRARY and
# LibTorch_C10_CUDA_LIBRARY.

include("${CMAKE_CURRENT_LIST_DIR}/LibTorchSearch.cmake")
libtorch_search()
if(NOT LibTorch_ROOT)
  message(FATAL_ERROR "No LibTorch ${LOCKSTEP_TORCH_VERSION} found. 'make demo' fetches it, or name yours: "
    "-DCMAKE_PREFIX_PATH=/path/to/libtorch")
endif()
set(LOCKSTEP_RECORDED_TORCH "${LibTorch_ROOT}" CACHE INTERNAL "The LibTorch that this build folder uses")
libtorch_version("${LibTorch_ROOT}" LibTorch_VERSION)

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
