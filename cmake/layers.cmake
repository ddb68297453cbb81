# dorajit_add_layer(<target> <sources> LINKS <targets>): one layer as a static library. A layer
# whose folder has no source file yet is an interface library, so that what builds on it configures.
function(dorajit_add_layer target)
  cmake_parse_arguments(PARSE_ARGV 1 layer "" "" "SOURCES;LINKS")
  if(layer_SOURCES)
    add_library(${target} STATIC ${layer_SOURCES})
    target_link_libraries(${target} PUBLIC dorajit_options ${layer_LINKS})
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE dorajit_options ${layer_LINKS})
  endif()
endfunction()
