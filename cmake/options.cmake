# Compiler, warnings, sanitizers and feature switches. Everything that changes how code is built is here.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()

set(PERDURE_SANITIZE "" CACHE STRING "Sanitizers to build with: '', 'address,undefined' or 'thread'")
option(PERDURE_CHECK_HEADERS "Compile every header on its own" OFF)
option(PERDURE_BUILD_TESTS "Build tests/" ON)
option(PERDURE_BUILD_BENCH "Build bench/" ON)
option(PERDURE_FUZZ "Build the libFuzzer programs of tests/ (clang only)" OFF)
set(PERDURE_CUDA "auto" CACHE STRING "auto (on when nvcc is found), on, off")

# O2, not O3: the hot loops are written with intrinsics. No value-changing floating-point options: bits
# must not depend on the compiler's mood, so contraction into FMA happens only where the code says so.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g")
add_compile_options(-ffp-contract=off -fno-omit-frame-pointer -fno-math-errno)
add_compile_options(
  $<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra> $<$<COMPILE_LANGUAGE:CXX>:-Werror>
  $<$<COMPILE_LANGUAGE:CXX>:-Wshadow> $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
  $<$<COMPILE_LANGUAGE:CXX>:-Woverloaded-virtual> $<$<COMPILE_LANGUAGE:CXX>:-Wcast-qual>
  # Options structs are made with designated initialisers: what is not named has its default.
  $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>
  $<$<COMPILE_LANGUAGE:CXX>:-Wvla> $<$<COMPILE_LANGUAGE:CXX>:-Wimplicit-fallthrough>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 reports false positives of these inside inlined standard-library and coroutine code.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized> $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds> $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wno-mismatched-new-delete>)
endif()

if(PERDURE_SANITIZE)
  # O1: half the time to compile. Without UBSan's check of null at each access: the access itself ends the program.
  set(CMAKE_CXX_FLAGS_RELEASE "-O1 -g1")
  add_compile_options(-fsanitize=${PERDURE_SANITIZE} -fno-sanitize=null -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${PERDURE_SANITIZE})
  if(PERDURE_SANITIZE STREQUAL "thread")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
  endif()
endif()

if(PERDURE_FUZZ AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # The libraries too tell libFuzzer which branches an input took.
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()

find_program(PERDURE_LLD ld.lld)
if(PERDURE_LLD)
  add_link_options(-fuse-ld=lld)
endif()

find_package(Threads REQUIRED)
include_directories(${CMAKE_SOURCE_DIR})
enable_testing()
