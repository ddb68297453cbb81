# dorajit_compile_inlines_once(<target>): compiles the inline functions of a library's precompiled
# headers into one object, which is linked together with the library.
#
# Without it each source compiles every inline function that it uses, which is more than half of
# the compile time of a source that uses CLI11 and JSON; sources that use only the standard library gain
# nothing. It needs Clang, and Ninja, because other generators do not find a file made by another target's rule.
function(dorajit_compile_inlines_once target)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang" OR NOT CMAKE_GENERATOR STREQUAL "Ninja")
    return()
  endif()
  set(headers "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/cmake_pch.hxx.pch")
  set(object "${CMAKE_CURRENT_BINARY_DIR}/${target}_inlines.o")
  string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
  separate_arguments(flags NATIVE_COMMAND "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}}")
  add_custom_command(
    OUTPUT "${object}"
    COMMAND "${CMAKE_CXX_COMPILER}" ${flags} -fPIC -fvisibility=hidden -ffunction-sections
            "$<TARGET_PROPERTY:${target},COMPILE_OPTIONS>" -Wno-unused-command-line-argument
            -c "${headers}" -o "${object}"
    DEPENDS "${headers}"
    COMMENT "Compiling the inline functions of the headers of ${target}"
    VERBATIM COMMAND_EXPAND_LISTS)
  add_custom_target(${target}_inlines DEPENDS "${object}")
  target_compile_options(${target} PRIVATE -fpch-codegen)
  # Linked by path: a target dependency would be circular, because the object needs the target's headers.
  target_link_libraries(${target} INTERFACE "${object}")
  # Most of them are not used; hypotf, which one of std::complex calls, would need glibc 2.35.
  target_link_options(${target} INTERFACE -Wl,--gc-sections)
endfunction()
