# Cross compilation for 64-bit ARM with Debian's g++-aarch64-linux-gnu; scripts/arm64.sh makes the system to compile against.
#   cmake --toolchain cmake/aarch64-linux-gnu.cmake -DRINGLET_SYSROOT=… -DPython_EXECUTABLE=<a Python for arm64, emulated>
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES RINGLET_SYSROOT)
set(CMAKE_SYSROOT "${RINGLET_SYSROOT}")

# Libraries and headers of the system compiled for; Python and nanobind, wherever they are.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY BOTH)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE BOTH)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)
