# Before project(): chooses the C++ compiler if the user did not, because the default of a system, c++, may be older than
# C++23 while a newer compiler is installed under another name.

# Sets `reason` to why a compiler, a command with its first arguments, cannot build dorajit; empty if it can.
function(dorajit_refuse_compiler reason)
  execute_process(COMMAND ${ARGN} --version OUTPUT_VARIABLE about ERROR_QUIET)
  execute_process(COMMAND ${ARGN} -dumpfullversion -dumpversion OUTPUT_VARIABLE version
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(${reason} "" PARENT_SCOPE)
  if(version STREQUAL "")
    set(${reason} "it is neither GCC nor clang" PARENT_SCOPE)
  elseif(about MATCHES "clang")
    execute_process(COMMAND ${ARGN} -print-file-name=libc++abi.a OUTPUT_VARIABLE library
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(version VERSION_LESS 19)
      set(${reason} "it is clang ${version}, which is too old" PARENT_SCOPE)
    elseif(NOT IS_ABSOLUTE "${library}")  # its bare name: not found
      set(${reason} "it is clang ${version} without libc++: install libc++-19-dev and libc++abi-19-dev, of its version"
          PARENT_SCOPE)
    endif()
  elseif(version VERSION_LESS 13)
    set(${reason} "it is GCC ${version}, which is too old" PARENT_SCOPE)
  endif()
endfunction()

set(is_chosen "${CMAKE_CXX_COMPILER}${CMAKE_TOOLCHAIN_FILE}$ENV{CXX}")
if(SKBUILD AND is_chosen STREQUAL "$ENV{CXX}")
  # scikit-build-core sets CXX to the compiler that built Python unless the user has set it.
  separate_arguments(command UNIX_COMMAND "$ENV{CXX}")
  dorajit_refuse_compiler(is_chosen ${command})
  string(COMPARE EQUAL "${is_chosen}" "" is_chosen)
endif()
if(NOT is_chosen AND CMAKE_SOURCE_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR)
  foreach(name IN ITEMS clang++-19 clang++-20 clang++-21 c++ g++ g++-15 g++-14 g++-13)
    unset(found)
    find_program(found ${name} NO_CACHE)
    if(found)
      dorajit_refuse_compiler(refusal "${found}")
      if(refusal STREQUAL "")
        set(CMAKE_CXX_COMPILER "${found}" CACHE FILEPATH "The C++ compiler")
        break()
      endif()
    endif()
  endforeach()
endif()
