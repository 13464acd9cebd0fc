# Finds the Python that the tests compare with, one that has torch 2.11, numpy and safetensors, and sets
# LOCKSTEP_TEST_PYTHON: the one named (CMake or environment variable), else the active one, else LOCKSTEP_VENV's.
# Run by `cmake -P` it prints its path, or nothing where there is none; LOCKSTEP_VENV is then the only other input.

set(TestPython_FOUND FALSE)
set(LOCKSTEP_TEST_PYTHON_NEEDS "torch 2.11.x, numpy and safetensors")

function(_test_python_fits python out)
  set(${out} FALSE PARENT_SCOPE)
  if(NOT python OR NOT EXISTS "${python}")
    return()
  endif()
  # Versions are read from the packages' metadata: an import of torch takes seconds.
  execute_process(
    COMMAND "${python}" -c "from importlib.metadata import version as v; v('numpy'); v('safetensors'); print(v('torch'))"
    OUTPUT_VARIABLE version ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed AND version MATCHES "^2\\.11\\.")
    set(${out} TRUE PARENT_SCOPE)
  endif()
endfunction()

if(NOT LOCKSTEP_TEST_PYTHON)
  set(LOCKSTEP_TEST_PYTHON "$ENV{LOCKSTEP_TEST_PYTHON}")
endif()
if(LOCKSTEP_TEST_PYTHON)
  _test_python_fits("${LOCKSTEP_TEST_PYTHON}" TestPython_FOUND)
  if(NOT TestPython_FOUND)
    message(FATAL_ERROR "LOCKSTEP_TEST_PYTHON is '${LOCKSTEP_TEST_PYTHON}', which is not a Python with "
      "${LOCKSTEP_TEST_PYTHON_NEEDS}: install them there, or name none and call 'make test'.")
  endif()
else()
  find_program(_active_python python3 NO_CACHE NO_DEFAULT_PATH PATHS ENV PATH)
  foreach(_python "${_active_python}" "${LOCKSTEP_VENV}/bin/python")
    if(NOT TestPython_FOUND)
      _test_python_fits("${_python}" TestPython_FOUND)
      if(TestPython_FOUND)
        set(LOCKSTEP_TEST_PYTHON "${_python}")
      endif()
    endif()
  endforeach()
endif()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  execute_process(COMMAND "${CMAKE_COMMAND}" -E echo "${LOCKSTEP_TEST_PYTHON}")
elseif(NOT TestPython_FOUND)
  message(FATAL_ERROR "The tests compare with Python and need one with ${LOCKSTEP_TEST_PYTHON_NEEDS}. 'make test' "
    "makes it, or name yours: -DLOCKSTEP_TEST_PYTHON=/path/to/python")
endif()
