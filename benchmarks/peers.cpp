// What statetok is measured against: the same header behind pybind11's own conversions.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <state_tokens.h>

PYBIND11_MODULE(peers, m) { m.def("plain_binding", &ember::insert_state_blocks); }
