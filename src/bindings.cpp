// The header for Python. This file converts, reports and decides nothing: plain inputs are read
// here; every other input and every fault goes to statetok._inputs, where its words are.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <climits>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include <state_tokens.h>  // <>: as a system header, so that our warnings are not its

namespace py = pybind11;

namespace {

struct Contract {
  int vocab, k, eot, user, assistant;
};

// The lock is given up for the header's work on sequences of this many ids and more; on shorter
// ones, handing it over costs more than the work.
constexpr std::size_t kLong = 8192;

py::object python(const char* module, const char* name) {
  return py::module_::import(module).attr(name);
}

[[noreturn]] void raise(const py::object& error) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw py::error_already_set();
}

std::vector<int> ask_header(const std::vector<int>& ids, const Contract& c) {
  const auto ask = [&] {
    return ember::insert_state_blocks(ids, c.vocab, c.k, c.eot, c.user, c.assistant);
  };
  try {
    if (ids.size() < kLong) return ask();
    // Safe: the ids are a copy of ours, and nothing else is touched.
    const py::gil_scoped_release unlocked;
    return ask();
  } catch (const std::invalid_argument& refusal) {
    raise(python("statetok.errors", "from_header")(refusal.what(), c.vocab, c.k));
  }
}

// -- the numbers of the contract --------------------------------------------------------------

// The value of an exact int within 32 bits; false for any other object.
bool read_int(PyObject* object, int& value) {
  if (!PyLong_CheckExact(object)) return false;
  // Nearly every id has one digit of at most 30 bits, which is read without a call.
  auto* number = reinterpret_cast<PyLongObject*>(object);
#if PY_VERSION_HEX >= 0x030C0000
  if (PyUnstable_Long_IsCompact(number)) {
    value = static_cast<int>(PyUnstable_Long_CompactValue(number));
    return true;
  }
#else
  if (Py_SIZE(object) == 1) {
    value = static_cast<int>(number->ob_digit[0]);
    return true;
  }
#endif
  int overflow = 0;
  const long long wide = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow != 0 || wide < INT_MIN || wide > INT_MAX) return false;
  value = static_cast<int>(wide);
  return true;
}

Contract contract(const py::object& vocab, const py::object& k, const py::object& eot,
                  const py::object& user, const py::object& assistant) {
  Contract c{};
  if (read_int(vocab.ptr(), c.vocab) && read_int(k.ptr(), c.k) &&
      read_int(eot.ptr(), c.eot) && read_int(user.ptr(), c.user) &&
      read_int(assistant.ptr(), c.assistant) &&
      (c.k <= 0 || std::int64_t{c.vocab} + c.k <= std::int64_t{INT_MAX} + 1))
    return c;
  const auto five = python("statetok._inputs", "numbers")(vocab, k, eot, user, assistant)
                        .cast<py::tuple>();
  return {five[0].cast<int>(), five[1].cast<int>(), five[2].cast<int>(), five[3].cast<int>(),
          five[4].cast<int>()};
}

// -- lists ------------------------------------------------------------------------------------

// References to the items of a list, so that they outlive what others do to the list meanwhile.
class Items {
 public:
  explicit Items(std::size_t capacity) : items_(new PyObject*[capacity]) {}
  Items(const Items&) = delete;
  Items& operator=(const Items&) = delete;
  ~Items() {
    while (begin_ < end_) Py_DECREF(items_[begin_++]);
  }
  void take(PyObject* item) {
    Py_INCREF(item);
    items_[end_++] = item;
  }
  PyObject* give_first() { return items_[begin_++]; }

 private:
  std::unique_ptr<PyObject*[]> items_;
  std::size_t begin_ = 0, end_ = 0;
};

py::object insert_list(const py::list& given, const Contract& c) {
  std::vector<int> ids(given.size());
  Items items(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {  // runs no Python code, so the list stays as it is
    PyObject* item = PyList_GET_ITEM(given.ptr(), static_cast<Py_ssize_t>(i));
    if (!read_int(item, ids[i])) {
      // Another kind of integer, or a fault: that comes back as a list of exact ints, or raises.
      const auto exact = python("statetok._inputs", "plain_list")(given).cast<py::list>();
      return insert_list(exact, c);
    }
    items.take(item);
  }
  const std::vector<int> answer = ask_header(ids, c);
  // Not py::list(size), which reports a failed allocation as a RuntimeError.
  const auto result = py::reinterpret_steal<py::object>(
      PyList_New(static_cast<Py_ssize_t>(answer.size())));
  if (!result) throw py::error_already_set();
  std::size_t next = 0;
  for (std::size_t i = 0; i < answer.size(); ++i) {
    // Insertion only adds, so one walk finds each given id in the answer.
    PyObject* item;
    if (next < ids.size() && answer[i] == ids[next]) {
      item = items.give_first();
      ++next;
    } else {
      item = PyLong_FromLong(answer[i]);
      if (item == nullptr) throw py::error_already_set();
    }
    PyList_SET_ITEM(result.ptr(), static_cast<Py_ssize_t>(i), item);
  }
  return result;
}

// -- arrays -----------------------------------------------------------------------------------

// Whether one integer type can hold a value of another; both fit std::int64_t but for uint64.
template <typename To, typename From>
bool fits(From value) {
  if constexpr (std::is_unsigned_v<From>)
    return value <= std::uint64_t{std::numeric_limits<To>::max()};
  else if constexpr (std::is_unsigned_v<To>)
    return value >= 0 && static_cast<std::uint64_t>(value) <= std::numeric_limits<To>::max();
  else
    return value >= std::numeric_limits<To>::min() && value <= std::numeric_limits<To>::max();
}

template <typename Id>
py::object insert_array(const py::array& given, const Contract& c) {
  // Read with the lock held: numpy lets another thread resize an array that is in use.
  const Id* data = static_cast<const Id*>(given.data());
  std::vector<int> ids(static_cast<std::size_t>(given.size()));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!fits<int>(data[i])) raise(python("statetok._inputs", "too_wide")(data[i], i));
    ids[i] = static_cast<int>(data[i]);
  }
  const std::vector<int> answer = ask_header(ids, c);
  py::array result(given.dtype(), static_cast<py::ssize_t>(answer.size()));
  Id* out = static_cast<Id*>(result.mutable_data());
  for (std::size_t i = 0; i < answer.size(); ++i) {
    // An id that was given fits, so one that does not is one that the header adds.
    if (!fits<Id>(answer[i]))
      raise(python("statetok._inputs", "does_not_fit")(answer[i], given.dtype()));
    out[i] = static_cast<Id>(answer[i]);
  }
  return std::move(result);
}

// An array of plain layout and integer dtype; a null object for any other.
py::object insert_plain_array(const py::array& given, const Contract& c) {
  constexpr int plain = py::array::c_style | py::detail::npy_api::NPY_ARRAY_ALIGNED_;
  const py::dtype dtype = given.dtype();
  if (given.ndim() != 1 || (given.flags() & plain) != plain || dtype.byteorder() == '>' ||
      dtype.byteorder() == '<')
    return {};
  const bool is_signed = dtype.kind() == 'i';
  if (!is_signed && dtype.kind() != 'u') return {};
  switch (dtype.itemsize()) {
    case 1: return is_signed ? insert_array<std::int8_t>(given, c) : insert_array<std::uint8_t>(given, c);
    case 2: return is_signed ? insert_array<std::int16_t>(given, c) : insert_array<std::uint16_t>(given, c);
    case 4: return is_signed ? insert_array<std::int32_t>(given, c) : insert_array<std::uint32_t>(given, c);
    case 8: return is_signed ? insert_array<std::int64_t>(given, c) : insert_array<std::uint64_t>(given, c);
    default: return {};
  }
}

// By name first: py::isinstance<py::array> would import numpy for every other kind of input.
bool is_array(const py::object& ids) {
  return std::strcmp(Py_TYPE(ids.ptr())->tp_name, "numpy.ndarray") == 0 &&
         py::isinstance<py::array>(ids);
}

// ---------------------------------------------------------------------------------------------

py::object insert_state_blocks(const py::object& ids, const py::object& vocab, const py::object& k,
                               const py::object& eot, const py::object& user,
                               const py::object& assistant) {
  const Contract c = contract(vocab, k, eot, user, assistant);
  if (PyList_CheckExact(ids.ptr())) return insert_list(ids, c);
  if (is_array(ids))
    if (py::object result = insert_plain_array(ids, c)) return result;

  const auto [plain, finish] =
      python("statetok._inputs", "plain")(ids).cast<std::pair<py::object, py::object>>();
  py::object result = PyList_CheckExact(plain.ptr()) ? insert_list(plain, c)
                                                     : insert_plain_array(plain, c);
  return finish.is_none() ? result : finish(result);
}

}  // namespace

PYBIND11_MODULE(_core, m) {
  py::options options;
  options.disable_function_signatures();  // the first line below is CPython's own form of one

  m.attr("HEADER_SHA256") = STATETOK_HEADER_SHA256;
  m.attr("compiler") = STATETOK_COMPILER;
  m.def("insert_state_blocks", &insert_state_blocks, py::arg("ids"), py::arg("vocab"),
        py::arg("k"), py::arg("eot"), py::arg("user"), py::arg("assistant"),
        R"(insert_state_blocks(ids, vocab, k, eot, user, assistant)
--

Insert the state blocks that the engine inserts.

After every `eot` that closes an exchange come the ids ``vocab .. vocab + k - 1``. A reply
met by a new `user` without an `eot` gets `eot` and the block first. A complete block that
is there already is kept. ``src/state_tokens.h`` decides; nothing is checked beyond what it
checks.

Parameters
----------
ids : sequence of int, integer ndarray or CPU tensor, shape (n,)
    One sequence of token ids, each within 32 bits. It is not changed.
vocab : int
    Number of ids the tokeniser can produce; state ids start here.
k : int
    Number of state tokens after an exchange; with 0 or less, nothing is inserted.
eot, user, assistant : int
    The ids of ``<|endoftext|>``, ``<|user|>`` and ``<|assistant|>``.

Returns
-------
list of int, ndarray or tensor, shape (m,), m >= n
    A list for a list (ids that were given are the same objects) and for any other
    sequence; a new array or tensor of the same dtype for an array or tensor.

Raises
------
StateTokenError
    If an id is not allowed where it stands; ``error.position`` is its index.
ValueError
    If an id, a number of the contract or ``vocab + k`` does not fit 32 bits, an array is
    not one-dimensional, or an id to be written does not fit its dtype.
TypeError
    If `ids` is no sequence of ints, or a number of the contract is no int.
MemoryError
    If the result does not fit in memory.
)");
}
