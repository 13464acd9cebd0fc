# lockstep_cuda_library(SOURCES a.cpp ...): the second library, liblockstep_cuda.so, with all that needs CUDA and NCCL.
#
# The core library loads it from its own folder when a CUDA device is asked for, so it is never linked to. Its sources
# are plain C++: no CUDA compiler is needed, only headers. CUDA's come from a toolkit of LibTorch's own major version
# (CUDA_HOME, CUDA_PATH, nvcc on PATH, /usr/local/cuda), else from the packages that the Python wheel of torch brings.
# NCCL's come from the wheel first: the layout of c10d's classes depends on them, so they should be the ones that
# LibTorch was built with.
# What is missing is said in one STATUS line, and the library is left out; LOCKSTEP_CUDA=OFF leaves it out as well.

# The major version of CUDA that the headers in `include` are of; "" where there are none.
function(_cuda_major include out)
  set(major "")
  if(EXISTS "${include}/cuda_runtime_api.h")
    file(STRINGS "${include}/cuda_runtime_api.h" line REGEX "define CUDART_VERSION +[0-9]+" LIMIT_COUNT 1)
    string(REGEX MATCH "([0-9]+)[0-9][0-9][0-9]$" line "${line}")
    set(major "${CMAKE_MATCH_1}")
  endif()
  set(${out} "${major}" PARENT_SCOPE)
endfunction()

# The major version of CUDA that LibTorch was built with; "" where it does not say (an unpacked LibTorch).
function(_libtorch_cuda_major out)
  set(major "")
  if(EXISTS "${LibTorch_ROOT}/version.py")
    file(STRINGS "${LibTorch_ROOT}/version.py" line REGEX "^cuda.*= *'[0-9]+\\." LIMIT_COUNT 1)
    string(REGEX MATCH "'([0-9]+)\\." line "${line}")
    set(major "${CMAKE_MATCH_1}")
  endif()
  set(${out} "${major}" PARENT_SCOPE)
endfunction()

# Where a toolkit may have its headers, best guess first.
function(_cuda_toolkit_includes out)
  find_program(nvcc nvcc NO_CACHE)
  set(includes "")
  set(roots "$ENV{CUDA_HOME}" "$ENV{CUDA_PATH}")
  if(nvcc)
    file(REAL_PATH "${nvcc}" nvcc)
    get_filename_component(root "${nvcc}/../.." ABSOLUTE)
    list(APPEND roots "${root}")
  endif()
  foreach(root IN LISTS roots ITEMS /usr/local/cuda)
    if(root)
      list(APPEND includes "${root}/include")
    endif()
  endforeach()
  set(${out} "${includes}" PARENT_SCOPE)
endfunction()

# Sets `cuda` in the caller to the folder of CUDA's headers, or to "" and `lacking` to why each candidate was refused.
# cuBLAS stands for the toolkit's own libraries, whose headers ATen includes too.
function(_cuda_include)
  _cuda_toolkit_includes(candidates)
  _libtorch_cuda_major(wanted)
  file(GLOB wheel LIST_DIRECTORIES true "${LibTorch_ROOT}/../nvidia/cu*/include")
  set(cuda "")
  set(lacking "")
  foreach(include IN LISTS candidates wheel)
    _cuda_major("${include}" major)
    if(cuda OR NOT major)
      continue()
    endif()
    if(wanted AND NOT major EQUAL wanted)
      string(APPEND lacking ", ${include} is of CUDA ${major}, LibTorch of CUDA ${wanted}")
      continue()
    endif()
    set(cuda "${include}")
    foreach(header cublas_v2.h crt/host_defines.h nv/target)
      if(NOT EXISTS "${include}/${header}")
        string(APPEND lacking ", ${include} lacks ${header}")
        set(cuda "")
      endif()
    endforeach()
  endforeach()
  set(cuda "${cuda}" PARENT_SCOPE)
  set(lacking "${lacking}" PARENT_SCOPE)
endfunction()

# Sets `cudart` in the caller to CUDA's runtime library, best the one that LibTorch itself loads, or to "".
function(_cuda_runtime)
  file(GLOB candidates "${LibTorch_ROOT}/lib/libcudart*.so*" "${LibTorch_ROOT}/../nvidia/cu*/lib/libcudart.so.*"
    "${cuda}/../lib64/libcudart.so" "${cuda}/../lib/libcudart.so")
  list(APPEND candidates "")
  list(GET candidates 0 cudart)
  set(cudart "${cudart}" PARENT_SCOPE)
endfunction()

# Sets `missing` in the caller to what keeps the library from being built, or to ""; and cuda, nccl, cudart.
function(_cuda_requirements)
  _cuda_include()
  _cuda_runtime()
  find_file(nccl nccl.h NO_CACHE HINTS "${LibTorch_ROOT}/../nvidia/nccl/include" "${cuda}")
  set(missing "")
  if(NOT LOCKSTEP_CUDA)
    set(missing "LOCKSTEP_CUDA is OFF")
  elseif(NOT LibTorch_HAS_CUDA)
    set(missing "this LibTorch has no libtorch_cuda")
  elseif(NOT cuda OR NOT cudart)
    set(missing "no complete set of CUDA headers and runtime${lacking}. Set CUDA_HOME to a toolkit, or add the Python packages "
      "nvidia-cuda-crt and nvidia-cuda-cccl beside torch")
    string(JOIN "" missing ${missing})
  elseif(NOT nccl)
    set(missing "no nccl.h: install libnccl-dev, or the Python package nvidia-nccl-cu13 beside torch")
  endif()
  get_filename_component(nccl "${nccl}" DIRECTORY)
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
  get_filename_component(runtime "${cudart}" REALPATH)
  get_filename_component(runtime "${runtime}" DIRECTORY)
  set_target_properties(lockstep_cuda PROPERTIES BUILD_RPATH "${folder}" INSTALL_RPATH "$ORIGIN;${folder};${runtime}"
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
  install(TARGETS lockstep_cuda LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endfunction()
