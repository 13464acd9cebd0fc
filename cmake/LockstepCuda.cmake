# lockstep_cuda_library(SOURCES a.cpp ...): the second library, liblockstep_cuda.so, with all that needs CUDA and NCCL.
#
# The core library loads it from its own folder when a CUDA device is asked for, so it is never linked to. Its sources
# are plain C++: no CUDA compiler is needed, only headers of the major version that LibTorch was built with. They come from
# the Python packages beside torch, where these are complete, else from a toolkit: CUDA_HOME, or where FindCUDAToolkit looks
# (CUDAToolkit_ROOT, CUDA_PATH, nvcc on PATH, /usr/local/cuda). NCCL's come from beside torch first: the layout of c10d's
# classes depends on them.
# What is missing is said in one STATUS line, and the library is left out; LOCKSTEP_CUDA=OFF leaves it out as well.

# Why the headers in `include` do not serve; "" when they do. cuBLAS stands for the toolkit's own libraries, whose headers
# ATen includes too.
function(_cuda_lacking include out)
  set(lacking "")
  foreach(header cuda_runtime_api.h cublas_v2.h crt/host_defines.h nv/target)
    if(NOT lacking AND NOT EXISTS "${include}/${header}" AND NOT EXISTS "${include}/cccl/${header}")
      set(lacking "${include} lacks ${header}")
    endif()
  endforeach()
  if(NOT lacking AND EXISTS "${LibTorch_ROOT}/version.py")
    file(STRINGS "${LibTorch_ROOT}/version.py" wanted REGEX "^cuda.*= *'[0-9]+\\." LIMIT_COUNT 1)
    string(REGEX REPLACE ".*'([0-9]+)\\..*" "\\1" wanted "${wanted}")
    file(STRINGS "${include}/cuda_runtime_api.h" major REGEX "define CUDART_VERSION +[0-9]+" LIMIT_COUNT 1)
    string(REGEX REPLACE ".* ([0-9]+)[0-9][0-9][0-9]$" "\\1" major "${major}")
    if(wanted AND NOT major EQUAL wanted)
      set(lacking "${include} is of CUDA ${major}, LibTorch of CUDA ${wanted}")
    endif()
  endif()
  set(${out} "${lacking}" PARENT_SCOPE)
endfunction()

# Sets cuda, cudart and nccl in the caller, and missing: what keeps the library from being built, or "".
function(_cuda_requirements)
  if(NOT CUDAToolkit_ROOT AND DEFINED ENV{CUDA_HOME})
    set(CUDAToolkit_ROOT "$ENV{CUDA_HOME}")
  endif()
  find_package(CUDAToolkit QUIET)
  file(GLOB includes LIST_DIRECTORIES true "${LibTorch_ROOT}/../nvidia/cu*/include")
  file(GLOB runtimes "${LibTorch_ROOT}/lib/libcudart*.so*" "${LibTorch_ROOT}/../nvidia/cu*/lib/libcudart.so.*"
    "${CUDAToolkit_LIBRARY_DIR}/libcudart.so")
  set(cuda "")
  set(reasons "no CUDA headers found")
  foreach(include IN LISTS includes CUDAToolkit_INCLUDE_DIRS)
    _cuda_lacking("${include}" lacking)
    if(NOT lacking AND NOT cuda)
      set(cuda "${include}")
    endif()
    string(APPEND reasons "; ${lacking}")
  endforeach()
  set(cudart "")
  if(runtimes)
    list(GET runtimes 0 cudart)
  endif()
  find_path(nccl nccl.h NO_CACHE HINTS "${LibTorch_ROOT}/../nvidia/nccl/include" "${cuda}")
  set(missing "")
  if(NOT LOCKSTEP_CUDA)
    set(missing "LOCKSTEP_CUDA is OFF")
  elseif(NOT LibTorch_HAS_CUDA)
    set(missing "this LibTorch has no libtorch_cuda")
  elseif(NOT cuda OR NOT cudart)
    string(CONCAT missing "${reasons}. Add the Python packages nvidia-cuda-crt and nvidia-cuda-cccl beside torch, or set "
      "CUDA_HOME to a toolkit")
  elseif(NOT nccl)
    set(missing "no nccl.h: install libnccl-dev, or the Python package nvidia-nccl-cu13 beside torch")
  endif()
  foreach(name missing cuda nccl cudart)
    set(${name} "${${name}}" PARENT_SCOPE)
  endforeach()
endfunction()

function(lockstep_cuda_library)
  cmake_parse_arguments(arg "" "" "SOURCES" ${ARGN})
  _cuda_requirements()
  if(missing)
    message(STATUS "CUDA library left out: ${missing}")
    return()
  endif()
  message(STATUS "CUDA library: headers of CUDA in ${cuda}, of NCCL in ${nccl}")
  file(STRINGS "${nccl}/nccl.h" version REGEX "define NCCL_(MAJOR|MINOR|PATCH) +[0-9]")
  string(REGEX REPLACE "[^;0-9]" "" version "${version}")
  string(REPLACE ";" "." version "${version}")
  set_property(GLOBAL PROPERTY LOCKSTEP_NCCL_VERSION "${version}")
  add_library(lockstep_cuda SHARED ${arg_SOURCES})
  target_include_directories(lockstep_cuda SYSTEM PRIVATE "${cuda}" "${nccl}")
  target_include_directories(lockstep_cuda PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  target_compile_definitions(lockstep_cuda PRIVATE USE_C10D_NCCL)
  # Kept even where no symbol of theirs is named: loading libtorch_cuda is what registers the CUDA device.
  target_link_options(lockstep_cuda PRIVATE "LINKER:--push-state,--no-as-needed"
    "${LibTorch_CUDA_LIBRARY}" "${LibTorch_C10_CUDA_LIBRARY}" "LINKER:--pop-state")
  target_link_libraries(lockstep_cuda PRIVATE lockstep lockstep_flags "${cudart}")
  get_filename_component(folder "${LibTorch_CUDA_LIBRARY}" DIRECTORY)
  file(REAL_PATH "${cudart}" runtime)
  get_filename_component(runtime "${runtime}" DIRECTORY)
  file(RELATIVE_PATH relative "${LibTorch_ROOT}" "${runtime}")
  if(relative MATCHES "^\\.\\./nvidia/|^lib$")
    # Of the Python packages: beside LibTorch, wherever that is.
    file(RELATIVE_PATH prefix "/${CMAKE_INSTALL_LIBDIR}" /)
    set(runtime "$ORIGIN/${prefix}libtorch/${relative}")
  endif()
  # A plugin that is loaded by name: without versions in its file name.
  set_target_properties(lockstep_cuda PROPERTIES BUILD_RPATH "${folder}" INSTALL_RPATH "${CMAKE_INSTALL_RPATH};${runtime}")
  install(TARGETS lockstep_cuda LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" OPTIONAL)
endfunction()
