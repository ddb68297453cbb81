# Each tests/install/*.py or *.sh runs against a fresh installation of this build.
file(GLOB scripts CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/install/*_test.py"
     "${CMAKE_CURRENT_SOURCE_DIR}/install/*_test.sh")
if(NOT scripts)
  return()
endif()

find_program(DORAJIT_PYTHON NAMES python3 REQUIRED)
set(stage "${PROJECT_BINARY_DIR}/stage")
add_test(NAME install.clear COMMAND "${CMAKE_COMMAND}" -E rm -rf "${stage}")
add_test(NAME install.stage COMMAND "${CMAKE_COMMAND}" --install "${PROJECT_BINARY_DIR}"
                                    --prefix "${stage}")
set_tests_properties(install.clear PROPERTIES LABELS install FIXTURES_SETUP clear)
set_tests_properties(install.stage PROPERTIES
  LABELS install FIXTURES_REQUIRED clear FIXTURES_SETUP stage)

foreach(script IN LISTS scripts)
  cmake_path(GET script STEM name)
  if(script MATCHES "\\.py$")
    set(interpreter "${DORAJIT_PYTHON}")
  else()
    set(interpreter bash)
  endif()
  add_test(NAME install.${name} COMMAND ${interpreter} "${script}"
           --build-dir "${PROJECT_BINARY_DIR}" --source-dir "${PROJECT_SOURCE_DIR}")
  set_tests_properties(install.${name} PROPERTIES
    LABELS install FIXTURES_REQUIRED stage TIMEOUT 600
    ENVIRONMENT "DORAJIT_PREFIX=${stage};DORAJIT_SOURCE_DIR=${PROJECT_SOURCE_DIR};DORAJIT_CXX=${CMAKE_CXX_COMPILER};DORAJIT_CMAKE=${CMAKE_COMMAND}")
endforeach()
