// Parts of the Python module that have a file of their own.
#pragma once

#include <nanobind/nanobind.h>

namespace ringlet {

void bind_channel(nanobind::module_& m);  // module_channel.cpp

}  // namespace ringlet
