# What every target of ours is compiled with, and the compiler cache.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# No debugging information by default: it doubles the time of a LibTorch translation unit.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1")
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# lockstep_compile_quickly(): the folder that calls it, and those below, are optimised a little only, which takes two thirds of
# the time: for code that waits for others.
macro(lockstep_compile_quickly)
  set(CMAKE_CXX_FLAGS_RELEASE "-Og -DNDEBUG")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Optimising little, g++ takes some optional values for uninitialised ones.
    string(APPEND CMAKE_CXX_FLAGS_RELEASE " -Wno-maybe-uninitialized")
  endif()
endmacro()

find_program(LOCKSTEP_CCACHE ccache NO_CACHE)
if(LOCKSTEP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The two settings let ccache serve files that use the precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime "${LOCKSTEP_CCACHE}")
endif()

# lockstep_hide_path(folder): error messages name files below it from there on. Compiled files hold no path of this machine.
# Of several folders that match, the one named last counts.
function(lockstep_hide_path folder)
  target_compile_options(lockstep_flags INTERFACE "-fmacro-prefix-map=${folder}/=")
endfunction()

add_library(lockstep_flags INTERFACE)
lockstep_hide_path("${PROJECT_BINARY_DIR}")
lockstep_hide_path("${PROJECT_SOURCE_DIR}")
# Also before LibTorch is there: what scripts/setup compiles while it fetches LibTorch is not compiled again for another flag.
lockstep_hide_path("${PROJECT_SOURCE_DIR}/.venv/lib")
target_compile_features(lockstep_flags INTERFACE cxx_std_20)
target_compile_options(lockstep_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Werror
  -fPIC $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
target_include_directories(lockstep_flags INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>")
target_link_libraries(lockstep_flags INTERFACE nlohmann_json::nlohmann_json Threads::Threads ${CMAKE_DL_LIBS})
# LibTorch brings headers of another version of fmt, whose compiled half it keeps to itself: a folder before its own makes
# all of our files use the system's.
find_path(LOCKSTEP_FMT_INCLUDE fmt/core.h REQUIRED)
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/fmt")
file(CREATE_LINK "${LOCKSTEP_FMT_INCLUDE}/fmt" "${PROJECT_BINARY_DIR}/fmt/fmt" SYMBOLIC)
target_include_directories(lockstep_flags INTERFACE "$<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/fmt>")
if(LOCKSTEP_SANITIZE)
  # Undefined behaviour ends the program: a report that a test's exit status does not show is soon overlooked.
  target_compile_options(lockstep_flags INTERFACE -fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer -g1)
  target_link_options(lockstep_flags INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
endif()

# lockstep_unity(target size [BY_FOLDER]): compiles up to `size` sources at a time, those of one folder or all of the target's,
# because most of a file's time goes into the headers that all of them include. Call it after the last source is added.
function(lockstep_unity target size)
  if(size EQUAL 1)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${LOCKSTEP_UNITY} UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources EXCLUDE REGEX "^\\$<")
  foreach(source IN LISTS sources)
    get_filename_component(folder "${source}" DIRECTORY)
    string(REGEX REPLACE "/.*" "" folder "${folder}")
    if(NOT BY_FOLDER IN_LIST ARGN)
      set(folder ${target})
    endif()
    math(EXPR part "0${count_${folder}} / ${size}")
    math(EXPR count_${folder} "0${count_${folder}} + 1")
    set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${folder}_${part}")
  endforeach()
endfunction()

# lockstep_sources(variable a/*.cpp ... [EXCEPT regex ...]): the sources that the patterns find, but for those that a regular
# expression matches. A file that comes or goes configures anew.
function(lockstep_sources variable)
  cmake_parse_arguments(arg "" "" "EXCEPT" ${ARGN})
  file(GLOB found RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" CONFIGURE_DEPENDS ${arg_UNPARSED_ARGUMENTS})
  foreach(regex IN LISTS arg_EXCEPT)
    list(FILTER found EXCLUDE REGEX "${regex}")
  endforeach()
  set(${variable} ${found} PARENT_SCOPE)
endfunction()

# lockstep_component(name SOURCES pattern ... [EXCEPT regex ...] [USES component ...] [UNITY n]): a static library without
# LibTorch. Whoever links it gets what it uses as well.
function(lockstep_component name)
  cmake_parse_arguments(arg "" "UNITY" "SOURCES;EXCEPT;USES" ${ARGN})
  lockstep_sources(sources ${arg_SOURCES} EXCEPT ${arg_EXCEPT})
  list(TRANSFORM arg_USES PREPEND "lockstep_")
  add_library(lockstep_${name} STATIC ${sources})
  target_link_libraries(lockstep_${name} PUBLIC ${arg_USES} lockstep_flags)
  target_include_directories(lockstep_${name} PUBLIC "${PROJECT_SOURCE_DIR}/src")
  if(NOT arg_UNITY)
    set(arg_UNITY 16)
  endif()
  lockstep_unity(lockstep_${name} ${arg_UNITY})
endfunction()

# lockstep_precompiled_libtorch(name source): LibTorch's headers, precompiled with the optimisation of the folder that calls it:
# g++ ends in an internal error where the two differ. g++ instantiates the templates that a precompiled header left open again in
# each file, used or not: with all of torch/nn.h that costs 15 s a file, with these 5 s. What else a file needs it includes.
function(lockstep_precompiled_libtorch name source)
  add_library(${name} OBJECT ${source})
  target_link_libraries(${name} PUBLIC LibTorch::cpu PRIVATE lockstep_flags)
  target_precompile_headers(${name} PRIVATE
    <torch/nn/modules/container/sequential.h> <torch/nn/modules/linear.h> <torch/optim.h>
    <torch/csrc/distributed/c10d/ProcessGroup.hpp>)
endfunction()

# lockstep_uses_libtorch(target): its sources include LibTorch, and share the precompiled header LOCKSTEP_LIBTORCH_PCH.
set(LOCKSTEP_LIBTORCH_PCH lockstep_pch)
function(lockstep_uses_libtorch target)
  target_precompile_headers(${target} REUSE_FROM ${LOCKSTEP_LIBTORCH_PCH})
  lockstep_unity(${target} 20 BY_FOLDER)
endfunction()

# lockstep_program(name SOURCES pattern ... [LIBRARIES x ...]): a program in build/bin, installed if it was built, that uses
# liblockstep and the LIBRARIES.
function(lockstep_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  lockstep_sources(sources ${arg_SOURCES})
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE lockstep lockstep_flags ${arg_LIBRARIES})
  lockstep_uses_libtorch(${name})
  # Stacks (lockstep stacks, last words) name functions only where they are exported.
  set_target_properties(${name} PROPERTIES ENABLE_EXPORTS ON)
  install(TARGETS ${name} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" OPTIONAL)
endfunction()
