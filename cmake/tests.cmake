# add_module_test(name
#   SOURCES a_test.cc b_test.cc
#   DEPS base chaos              # modules of ours
#   LIBS ...                     # third party
#   LABEL unit                   # unit | sim | proc | gpu | slow (default unit)
#   TIMEOUT 120                  # seconds (default 120)
# )
# makes one gtest binary `<name>_test` with its own main (tests/testing/test_main.cc), which accepts --seed.
include_guard()

find_package(GTest REQUIRED)

# All unit and simulation tests, without the programs that the process tests need.
add_custom_target(unit_and_sim_tests)

function(add_module_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;DEPS;LIBS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name}_test ${ARG_SOURCES})
  target_link_libraries(${name}_test PRIVATE perdure_tests_testing GTest::gtest GTest::gmock ${ARG_LIBS})
  foreach(dep ${ARG_DEPS})
    perdure_target_name(dep_target ${dep})
    target_link_libraries(${name}_test PRIVATE ${dep_target})
  endforeach()
  add_test(NAME ${name} COMMAND ${name}_test WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
  if(ARG_LABEL MATCHES "^(unit|sim)$")
    add_dependencies(unit_and_sim_tests ${name}_test)
  endif()
endfunction()
