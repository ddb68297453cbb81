# Each tests/install/*.py or *.sh installs this build where it likes and tries what it finds there.
file(GLOB scripts CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/install/*_test.py"
     "${CMAKE_CURRENT_SOURCE_DIR}/install/*_test.sh")
if(NOT scripts)
  return()
endif()

find_program(DORAJIT_PYTHON NAMES python3 REQUIRED)
foreach(script IN LISTS scripts)
  cmake_path(GET script STEM name)
  if(script MATCHES "\\.py$")
    set(interpreter "${DORAJIT_PYTHON}")
  else()
    set(interpreter bash)
  endif()
  add_test(NAME install.${name} COMMAND ${interpreter} "${script}"
           --build-dir "${PROJECT_BINARY_DIR}" --source-dir "${PROJECT_SOURCE_DIR}")
  # It takes a minute and comes last otherwise, beside an idle processor.
  set_tests_properties(install.${name} PROPERTIES LABELS install TIMEOUT 600 COST 100)
endforeach()
