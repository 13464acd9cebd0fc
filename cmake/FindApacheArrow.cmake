# Finds Apache Arrow C++ with Parquet and defines ApacheArrow::arrow: its headers, libarrow and libparquet.
#
# They come from find_package (version 14 or later), else from the Python package pyarrow, which brings headers and
# libraries with a version in their names but no CMake files: in the folder PYARROW_ROOT (CMake or environment variable),
# in LOCKSTEP_VENV, or beside LibTorch. ApacheArrow_LIBRARIES are the package's two files, which an install takes along with
# ApacheArrow_NOTICES, its license; both are empty for a system's Arrow.
# Libraries are named by file, not by target: an exported target would carry the folder of this machine to others.

set(ApacheArrow_LIBRARIES "")
set(_where "")
set(_include "")
find_package(Arrow 14 CONFIG QUIET)
find_package(Parquet CONFIG QUIET)
if(Arrow_FOUND AND Parquet_FOUND)
  set(ApacheArrow_VERSION "${Arrow_VERSION}")
  set(_where "${Arrow_VERSION} in ${Arrow_DIR}")
  set(_files "$<TARGET_FILE:Parquet::parquet_shared>" "$<TARGET_FILE:Arrow::arrow_shared>")
  set(_include "$<TARGET_PROPERTY:Arrow::arrow_shared,INTERFACE_INCLUDE_DIRECTORIES>")
else()
  file(GLOB _venv LIST_DIRECTORIES true "${LOCKSTEP_VENV}/lib/python3*/site-packages/pyarrow")
  foreach(_root IN LISTS PYARROW_ROOT _venv ITEMS "$ENV{PYARROW_ROOT}" "${LibTorch_ROOT}/../pyarrow")
    file(GLOB _arrow "${_root}/libarrow.so.*00")
    file(GLOB _parquet "${_root}/libparquet.so.*00")
    if(NOT _where AND _arrow AND _parquet AND EXISTS "${_root}/include/parquet/arrow/reader.h")
      set(_where "the Python package in ${_root}")
      set(_files "${_parquet}" "${_arrow}")
      set(_include "${_root}/include")
      file(STRINGS "${_root}/include/arrow/util/config.h" ApacheArrow_VERSION REGEX "define ARROW_VERSION_STRING ")
      string(REGEX REPLACE ".*\"(.*)\".*" "\\1" ApacheArrow_VERSION "${ApacheArrow_VERSION}")
      set(ApacheArrow_LIBRARIES ${_files})
      file(GLOB ApacheArrow_NOTICES "${_root}/../pyarrow-*.dist-info/licenses/*.txt")
    endif()
  endforeach()
endif()

if(_where)
  set(ApacheArrow_FOUND TRUE)
  if(NOT TARGET ApacheArrow::arrow)
    message(STATUS "Apache Arrow: ${_where}")
    add_library(ApacheArrow::arrow INTERFACE IMPORTED)
    target_include_directories(ApacheArrow::arrow SYSTEM INTERFACE "${_include}")
    target_link_libraries(ApacheArrow::arrow INTERFACE ${_files})
  endif()
else()
  set(ApacheArrow_FOUND FALSE)
  set(ApacheArrow_NOT_FOUND_MESSAGE "neither Arrow and Parquet for find_package nor the Python package pyarrow is \
there. 'scripts/setup build' fetches the package; PYARROW_ROOT or CMAKE_PREFIX_PATH names another one")
  if(ApacheArrow_FIND_REQUIRED)
    message(FATAL_ERROR "Apache Arrow: ${ApacheArrow_NOT_FOUND_MESSAGE}.")
  endif()
endif()
