# add_module(folder/name
#   SOURCES a.cc b.cc          # headers beside them are found by themselves
#   DEPS base kernels          # modules of ours: public, checked by the link test
#   LIBS fmt::fmt              # third party
#   EXCLUDE_HEADERS x.h        # headers that need a compiler flag of one source (checked with that source)
# )
#
# One source folder = one static library `perdure_<folder with _ for />`. Beside the library it makes
#   perdure_X_link    links the WHOLE archive with only its declared dependencies: an undeclared one does not link
#   perdure_X_headers (with PERDURE_CHECK_HEADERS) compiles every header alone; one that its own source includes first
#                     is checked by that source
include_guard()

function(perdure_target_name out folder)
  string(REPLACE "/" "_" name ${folder})
  set(${out} perdure_${name} PARENT_SCOPE)
endfunction()

# Whether x.cc, beside x.h, includes it before anything else.
function(perdure_is_first_include out folder header)
  string(REGEX REPLACE "\\.h$" ".cc" source ${header})
  set(first "")
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${source})
    file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/${source} first REGEX "^#include" LIMIT_COUNT 1)
  endif()
  if(first STREQUAL "#include \"${folder}/${header}\"")
    set(${out} TRUE PARENT_SCOPE)
  else()
    set(${out} FALSE PARENT_SCOPE)
  endif()
endfunction()

function(add_module folder)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LIBS;EXCLUDE_HEADERS" ${ARGN})
  perdure_target_name(target ${folder})
  file(GLOB headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} *.h)

  add_library(${target} STATIC ${ARG_SOURCES} ${headers})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(${target} PUBLIC Threads::Threads ${ARG_LIBS})
  foreach(dep ${ARG_DEPS})
    perdure_target_name(dep_target ${dep})
    target_link_libraries(${target} PUBLIC ${dep_target})
  endforeach()

  if(PERDURE_BUILD_TESTS)
    set(main_file ${CMAKE_BINARY_DIR}/link_test_main.cc)
    if(NOT EXISTS ${main_file})
      file(WRITE ${main_file} "int main() { return 0; }\n")
    endif()
    add_executable(${target}_link ${main_file})
    target_link_libraries(${target}_link PRIVATE
      -Wl,--whole-archive $<TARGET_FILE:${target}> -Wl,--no-whole-archive
      $<TARGET_PROPERTY:${target},INTERFACE_LINK_LIBRARIES>)
    add_dependencies(${target}_link ${target})
    add_test(NAME link.${folder} COMMAND ${target}_link)
    set_tests_properties(link.${folder} PROPERTIES LABELS "link")
  endif()

  if(PERDURE_CHECK_HEADERS)
    set(check_sources)
    foreach(header ${headers})
      perdure_is_first_include(is_checked ${folder} ${header})
      if(NOT is_checked AND NOT header IN_LIST ARG_EXCLUDE_HEADERS)
        set(check ${CMAKE_CURRENT_BINARY_DIR}/header_check/${header}.cc)
        file(CONFIGURE OUTPUT ${check} CONTENT "#include \"${folder}/${header}\"\n#include \"${folder}/${header}\"\n")
        list(APPEND check_sources ${check})
      endif()
    endforeach()
    if(check_sources)
      add_library(${target}_headers OBJECT ${check_sources})
      target_compile_options(${target}_headers PRIVATE -O0 -g0)
      target_link_libraries(${target}_headers PRIVATE ${target})
    endif()
  endif()
endfunction()
