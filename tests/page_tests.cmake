# What the program writes for browsers, looked at in one; skipped where there is no Chromium.
if(NOT TARGET dorajit_cli)
  return()
endif()

find_program(DORAJIT_PYTHON NAMES python3 REQUIRED)
add_test(NAME page.report
  COMMAND "${DORAJIT_PYTHON}" "${CMAKE_CURRENT_SOURCE_DIR}/page/report_page_test.py"
          --program "$<TARGET_FILE:dorajit_cli>" --source-dir "${PROJECT_SOURCE_DIR}"
          --out "${CMAKE_CURRENT_BINARY_DIR}/page")
set_tests_properties(page.report PROPERTIES LABELS page TIMEOUT 300 SKIP_RETURN_CODE 77)
