// The header for Python. This file converts, reports and decides nothing: plain inputs are read
// here; every other input and every fault goes to statetok._inputs, where its words are.

#include <pybind11/critical_section.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <structmember.h>

#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "ragged.h"
#include "skip_text.h"

namespace py = pybind11;
using namespace statetok;

namespace {

py::object import_attr(const char* module, const char* name) {
  return py::module_::import(module).attr(name);
}

[[noreturn]] void raise(const py::object& error) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw py::error_already_set();
}

py::object refusal(const std::invalid_argument& error, const Contract& c) {
  return import_attr("statetok.errors", "from_header")(error.what(), c.vocab, c.k);
}

const Scan kScan = best_scan();

// -- the numbers of the contract --------------------------------------------------------------

bool read_any_int(PyObject* object, int& value) {
  if (!PyLong_CheckExact(object)) return false;
  int overflow = 0;
  const long long wide = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow != 0 || wide < INT_MIN || wide > INT_MAX) return false;
  value = static_cast<int>(wide);
  return true;
}

// The value of an exact int within 32 bits; false for any other object. Nearly every id has one
// digit, which is read in place.
inline bool read_int(PyObject* object, int& value) {
  auto* const number = reinterpret_cast<PyLongObject*>(object);
#if PY_VERSION_HEX >= 0x030C0000
  if (PyLong_CheckExact(object) && PyUnstable_Long_IsCompact(number)) {
    value = static_cast<int>(PyUnstable_Long_CompactValue(number));
    return true;
  }
#else
  if (PyLong_CheckExact(object) && Py_SIZE(object) == 1) {
    value = static_cast<int>(number->ob_digit[0]);
    return true;
  }
#endif
  return read_any_int(object, value);
}

Contract contract(PyObject* vocab, PyObject* k, PyObject* eot, PyObject* user,
                  PyObject* assistant) {
  Contract c{};
  if (read_int(vocab, c.vocab) && read_int(k, c.k) && read_int(eot, c.eot) &&
      read_int(user, c.user) && read_int(assistant, c.assistant) &&
      (c.k <= 0 || std::int64_t{c.vocab} + c.k <= std::int64_t{INT_MAX} + 1))
    return c;
  // Integers of another kind, or a fault.
  const auto five = import_attr("statetok._inputs", "numbers")(
      py::handle(vocab), py::handle(k), py::handle(eot), py::handle(user), py::handle(assistant));
  return {five[py::int_(0)].cast<int>(), five[py::int_(1)].cast<int>(),
          five[py::int_(2)].cast<int>(), five[py::int_(3)].cast<int>(),
          five[py::int_(4)].cast<int>()};
}

// -- the interpreter's lock -------------------------------------------------------------------

// Gives up the lock for as long as it lives, if `n` ids are worth it. What is done meanwhile
// touches numbers only: memory of ours, and arrays that we refer to, which numpy therefore does
// not resize. It is the caller's duty that no thread writes to them; if one does, ids may come out
// wrong, but nothing is read or written out of bounds.
class Unlocked {
 public:
  explicit Unlocked(std::size_t n) {
    constexpr std::size_t kWorthIt = 1 << 16;
    if (n >= kWorthIt) state_ = PyEval_SaveThread();
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked() {
    if (state_ == nullptr) return;
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      // The interpreter is at its end, and until 3.13 it ends a thread that comes for the lock by
      // unwinding its stack: through this destructor, which would abort the process. So let the
      // thread wait for the process to end, as later versions do.
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
  }

 private:
  PyThreadState* state_ = nullptr;
};

// -- lists ------------------------------------------------------------------------------------

struct NotPlain {};  // thrown at an item that is no exact int within 32 bits

// The items of a list. A reference to each is taken as it is read, so that they outlive whatever
// happens to the list later.
class ListItems {
 public:
  explicit ListItems(const py::list& list) : list_(list), size_(list.size()) {
    if (size_ <= kFew) return;
    many_.reset(new PyObject*[size_]);
    items_ = many_.get();
  }
  ListItems(const ListItems&) = delete;
  ListItems& operator=(const ListItems&) = delete;
  ~ListItems() {
    for (std::size_t i = 0; i < taken_; ++i) Py_DECREF(items_[i]);
  }

  std::size_t size() const { return size_; }

  // Not inlined: in the midst of all else the loop would lack registers.
  PYBIND11_NOINLINE const int* read(std::size_t first, std::size_t count, int* buffer) {
    std::size_t i = 0;
    for (; i < count && first + i < taken_; ++i) read_int(items_[first + i], buffer[i]);  // again
    PyObject* const* const given = PySequence_Fast_ITEMS(list_.ptr()) + first;
    PyObject** const items = items_ + first;
    for (; i < count; ++i) {
      PyObject* const item = given[i];
      if (!read_int(item, buffer[i])) break;
      Py_INCREF(item);
      items[i] = item;
    }
    taken_ = std::max(taken_, first + i);
    if (i < count) throw NotPlain();
    return buffer;
  }

  // Copies the items with the plan's edits to `to`, which owns the references from here on.
  void move_to(PyObject** to, const Plan& plan, PyObject* const* added) {
    for (const Edit& edit : plan.edits)
      for (std::size_t i = 0; i < edit.count; ++i) Py_INCREF(added[edit.first + i]);
    apply(plan.edits, added, items_, 0, size_, to);
    taken_ = 0;
  }

 private:
  static constexpr std::size_t kFew = 64;  // so many need no memory from the heap
  const py::list& list_;
  std::size_t size_, taken_ = 0;
  PyObject* few_[kFew];
  std::unique_ptr<PyObject*[]> many_;
  PyObject** items_ = few_;
};

// The ids that a plan adds, as objects.
class AddedItems {
 public:
  explicit AddedItems(const std::vector<int>& ids) : AddedItems() {
    items_.reserve(ids.size());
    for (const int id : ids) {
      PyObject* const item = PyLong_FromLong(id);
      if (item == nullptr) throw py::error_already_set();
      items_.push_back(item);
    }
  }
  AddedItems(const AddedItems&) = delete;
  AddedItems& operator=(const AddedItems&) = delete;
  ~AddedItems() {
    for (PyObject* item : items_) Py_DECREF(item);
  }
  PyObject* const* data() const { return items_.data(); }

 private:
  AddedItems() = default;  // delegated to, so that the destructor runs if making an item fails
  std::vector<PyObject*> items_;
};

// `edits`, here and below: where to leave those of the answer, if they are wanted.
py::object insert_list(const py::list& given, const Contract& c, Edits* edits = nullptr) {
  std::optional<ListItems> items;
  Plan plan;
  try {
    // No Python code runs in here, and each item is held before the lock is given up, so what
    // happens to the list meanwhile does not matter.
    const py::scoped_critical_section alone(given);
    items.emplace(given);
    Asking asking;
    const std::vector<int> answer = asking.ask<Unlocked>(*items, c, kScan);
    plan.take(asking.question(), answer);
  } catch (const NotPlain&) {
    // Another kind of integer, or a fault: that comes back as a list of exact ints, or raises.
    return insert_list(import_attr("statetok._inputs", "plain_list")(given).cast<py::list>(), c,
                       edits);
  } catch (const std::invalid_argument& error) {
    raise(refusal(error, c));
  }
  const AddedItems added(plan.ids);
  // Not py::list(size), which reports a failed allocation as a RuntimeError.
  auto result = py::reinterpret_steal<py::object>(
      PyList_New(static_cast<Py_ssize_t>(items->size() + plan.added)));
  if (!result) throw py::error_already_set();
  items->move_to(PySequence_Fast_ITEMS(result.ptr()), plan, added.data());
  if (edits != nullptr) edits->swap(plan.edits);
  return result;
}

// -- arrays -----------------------------------------------------------------------------------

// The Python exception for what was thrown while an array of `Id` was worked on.
template <typename Id>
py::object fault_in(const py::dtype& dtype, const std::exception_ptr& thrown, const Contract& c) {
  try {
    std::rethrow_exception(thrown);
  } catch (const TooWide<Id>& fault) {
    return import_attr("statetok._inputs", "too_wide")(fault.id, fault.position);
  } catch (const DoesNotFit& fault) {
    return import_attr("statetok._inputs", "does_not_fit")(fault.id, dtype);
  } catch (const std::invalid_argument& error) {
    return refusal(error, c);
  }
}

template <typename Id>
py::object insert_array(const py::array& given, const Contract& c, Edits* edits) {
  const auto n = static_cast<std::size_t>(given.size());
  const Id* const ids = static_cast<const Id*>(given.data());
  Plan plan;
  std::vector<int> answer;
  bool is_whole = false;  // the answer is the result, and there is no plan
  try {
    const Unlocked unlocked(n);
    Asking asking;
    answer = asking.ask(ArrayIds<Id>(ids, n), c, kScan);
    is_whole = asking.question().is_whole();
    if (!is_whole || edits != nullptr) plan.take(asking.question(), answer);
    check_fit<Id>(is_whole ? answer : plan.ids);
  } catch (...) {
    raise(fault_in<Id>(given.dtype(), std::current_exception(), c));
  }
  py::array result(given.dtype(),
                   static_cast<py::ssize_t>(is_whole ? answer.size() : n + plan.added));
  Id* const out = static_cast<Id*>(result.mutable_data());
  const Unlocked unlocked(n);
  if (is_whole)
    std::transform(answer.begin(), answer.end(), out, [](int id) { return static_cast<Id>(id); });
  else
    apply(plan.edits, plan.ids.data(), ids, 0, n, out);
  if (edits != nullptr) edits->swap(plan.edits);
  return std::move(result);
}

// Calls f with a value of the C++ type of a plain array's ids; false for any other array.
template <typename F>
bool with_id_type(const py::array& array, F&& f) {
  constexpr int plain = py::array::c_style | py::detail::npy_api::NPY_ARRAY_ALIGNED_;
  const py::dtype dtype = array.dtype();
  if (array.ndim() != 1 || (array.flags() & plain) != plain || dtype.byteorder() == '>' ||
      dtype.byteorder() == '<')
    return false;
  switch (dtype.kind() == 'i' ? -dtype.itemsize() : dtype.kind() == 'u' ? dtype.itemsize() : 0) {
    case -1: return f(std::int8_t{}), true;
    case -2: return f(std::int16_t{}), true;
    case -4: return f(std::int32_t{}), true;
    case -8: return f(std::int64_t{}), true;
    case 1: return f(std::uint8_t{}), true;
    case 2: return f(std::uint16_t{}), true;
    case 4: return f(std::uint32_t{}), true;
    case 8: return f(std::uint64_t{}), true;
    default: return false;
  }
}

// A null object if the array is not plain.
py::object insert_plain_array(const py::array& given, const Contract& c, Edits* edits = nullptr) {
  py::object result;
  with_id_type(given, [&](auto id) { result = insert_array<decltype(id)>(given, c, edits); });
  return result;
}

// By name first, since asking pybind11 would import numpy for every other kind of input. No class
// that is made in Python passes for numpy's: those are on the heap.
bool is_array(const py::object& ids) {
  const PyTypeObject* const type = Py_TYPE(ids.ptr());
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0 &&
         std::strcmp(type->tp_name, "numpy.ndarray") == 0 && py::isinstance<py::array>(ids);
}

// -- ragged arrays ----------------------------------------------------------------------------

template <typename Id, typename Offset>
py::object insert_rows(const py::array& values, const py::array& offsets, const Contract& c,
                       std::size_t threads, bool with_sources) {
  const auto size = static_cast<std::size_t>(values.size());
  const Ragged<Id, Offset> rows(static_cast<const Id*>(values.data()), size,
                                static_cast<const Offset*>(offsets.data()),
                                static_cast<std::size_t>(offsets.size()) - 1, c, kScan);
  py::array new_offsets(offsets.dtype(), offsets.size());
  auto* const ends = static_cast<Offset*>(new_offsets.mutable_data());
  std::vector<Part> parts;
  {
    const Unlocked unlocked(size);
    parts = rows.plan(threads, ends);
  }
  std::size_t new_size = size;
  for (const Part& part : parts) {
    if (part.fault) {
      const py::object error = fault_in<Id>(values.dtype(), part.fault, c);
      raise(import_attr("statetok._inputs", "in_row")(error, part.row));
    }
    new_size += part.plan.added;
  }
  if (new_size > static_cast<std::size_t>(std::numeric_limits<Offset>::max()))
    raise(import_attr("statetok._inputs", "too_many")(new_size, offsets.dtype()));
  py::array new_values(values.dtype(), static_cast<py::ssize_t>(new_size));
  py::object sources = py::none();
  std::int64_t* places = nullptr;
  if (with_sources) {
    py::array_t<std::int64_t> made(static_cast<py::ssize_t>(new_size));
    places = made.mutable_data();
    sources = std::move(made);
  }
  {
    const Unlocked unlocked(size);
    rows.apply(parts, static_cast<Id*>(new_values.mutable_data()), ends, places);
  }
  for (const Part& part : parts)
    if (part.fault) std::rethrow_exception(part.fault);
  return py::make_tuple(new_values, new_offsets, sources);
}

// The arrays are plain and their offsets are checked: StateTokens.insert_ragged sees to it.
py::object insert_ragged(const py::array& values, const py::array& offsets, const py::object& vocab,
                         const py::object& k, const py::object& eot, const py::object& user,
                         const py::object& assistant, std::size_t threads, bool sources) {
  const Contract c = contract(vocab.ptr(), k.ptr(), eot.ptr(), user.ptr(), assistant.ptr());
  py::object result;
  with_id_type(values, [&](auto id) {
    using Id = decltype(id);
    result = offsets.itemsize() == 4
                 ? insert_rows<Id, std::int32_t>(values, offsets, c, threads, sources)
                 : insert_rows<Id, std::int64_t>(values, offsets, c, threads, sources);
  });
  return result;
}

// ---------------------------------------------------------------------------------------------

// The ids are plain: the caller sees to it.
py::tuple insert_with_edits(const py::object& ids, const py::object& vocab, const py::object& k,
                            const py::object& eot, const py::object& user,
                            const py::object& assistant) {
  const Contract c = contract(vocab.ptr(), k.ptr(), eot.ptr(), user.ptr(), assistant.ptr());
  Edits edits;
  const py::object result = PyList_CheckExact(ids.ptr()) ? insert_list(ids, c, &edits)
                                                         : insert_plain_array(ids, c, &edits);
  py::list places(edits.size());
  for (std::size_t i = 0; i < edits.size(); ++i)
    places[i] = py::make_tuple(edits[i].before, edits[i].count);
  return py::make_tuple(result, places);
}

py::object insert(const py::object& ids, const Contract& c) {
  if (PyList_CheckExact(ids.ptr())) return insert_list(ids, c);
  if (is_array(ids))
    if (py::object result = insert_plain_array(ids, c)) return result;
  const auto [plain, finish] =
      import_attr("statetok._inputs", "plain")(ids).cast<std::pair<py::object, py::object>>();
  py::object result =
      PyList_CheckExact(plain.ptr()) ? insert_list(plain, c) : insert_plain_array(plain, c);
  return finish.is_none() ? result : finish(result);
}

// -- functions that CPython calls itself ------------------------------------------------------
//
// Most calls in a server are short. pybind11's dispatcher would take longer than the work; and for
// a forgotten argument it would raise an error with all the ids in it.

template <typename Call>
PyObject* guarded(Call&& call) {
  try {
    return call().release().ptr();
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::length_error&) {  // more than a vector can hold at all
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

constexpr Py_ssize_t kArguments = 6;

PyObject* insert_state_blocks(PyObject*, PyObject* const* given, Py_ssize_t n, PyObject* names) {
  return guarded([&] {
    const auto call = [](PyObject* const* a) {
      return insert(py::reinterpret_borrow<py::object>(a[0]),
                    contract(a[1], a[2], a[3], a[4], a[5]));
    };
    if (n == kArguments && names == nullptr) return call(given);
    // By keyword, or wrong: a Python function of this signature sorts them out.
    const py::object arguments = import_attr("statetok._inputs", "arguments");
    const auto all = py::reinterpret_steal<py::object>(
        PyObject_Vectorcall(arguments.ptr(), given, static_cast<std::size_t>(n), names));
    if (!all) throw py::error_already_set();
    return call(PySequence_Fast_ITEMS(all.ptr()));
  });
}

PyMethodDef kInsertStateBlocks = {
    "insert_state_blocks",
    reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(insert_state_blocks)),
    METH_FASTCALL | METH_KEYWORDS, R"(insert_state_blocks(ids, vocab, k, eot, user, assistant)
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
)"};

PyObject* insert_bound(PyObject* numbers, PyObject* ids) {
  return guarded([&] {
    const auto* c = static_cast<const Contract*>(PyCapsule_GetPointer(numbers, nullptr));
    return insert(py::reinterpret_borrow<py::object>(ids), *c);
  });
}

PyMethodDef kInsertBound = {"insert", insert_bound, METH_O, nullptr};

py::object function(PyMethodDef& method, const py::object& self, const py::object& module) {
  auto made = py::reinterpret_steal<py::object>(
      PyCFunction_NewEx(&method, self.ptr(), module.ptr()));
  if (!made) throw py::error_already_set();
  return made;
}

// A function of the ids alone: what StateTokens.insert calls.
py::object bind(const py::object& vocab, const py::object& k, const py::object& eot,
                const py::object& user, const py::object& assistant) {
  auto numbers = std::make_unique<Contract>(
      contract(vocab.ptr(), k.ptr(), eot.ptr(), user.ptr(), assistant.ptr()));
  const py::capsule self(numbers.get(),
                         [](void* pointer) { delete static_cast<Contract*>(pointer); });
  numbers.release();
  return function(kInsertBound, self, py::none());
}

// -- Stream, as far as it must be fast ---------------------------------------------------------
//
// A server pushes every id that the model samples. Nearly all are text, which comes out as it is;
// all else is for statetok.stream.

struct StreamBase {
  PyObject_HEAD
  // Its vocab is 0 while even text is not to come out here.
  Contract contract;
  Py_ssize_t position;
};

PyObject* push(PyObject* self, PyObject* ids) {
  auto* const stream = reinterpret_cast<StreamBase*>(self);
  int id = 0;
  if (!read_int(ids, id) || is_of_interest(id, stream->contract)) {
    return guarded([&] { return py::object(py::handle(self).attr("_push")(py::handle(ids))); });
  }
  PyObject* const result = PyList_New(1);
  if (result == nullptr) return nullptr;
  Py_INCREF(ids);
  PyList_SET_ITEM(result, 0, ids);
  ++stream->position;
  return result;
}

PyMethodDef kStreamMethods[] = {{"push", push, METH_O, R"(push($self, ids, /)
--

Take the next ids of the sequence, and return what to append for them.

Parameters
----------
ids : int, or sequence of int, integer ndarray or CPU tensor, shape (n,)
    The next ids: those of a prompt, the one that was sampled, a history.

Returns
-------
list of int, ndarray or tensor, shape (m,)
    The ids to append to the sequence and to feed to the model, in order: a list for an
    int, a list or another sequence, else of the kind and dtype that was given. It is
    shorter than `ids` where they hold a block that was returned already.

Raises
------
StateTokenError
    If an id is not allowed where it stands; ``error.position`` is its index in all that
    was pushed.
ValueError, TypeError, MemoryError
    As `StateTokens.insert` raises them; positions are those in all that was pushed.
)"}, {nullptr, nullptr, 0, nullptr}};

constexpr auto kContract = static_cast<Py_ssize_t>(offsetof(StreamBase, contract));
PyMemberDef kStreamMembers[] = {
    {"_text_below", T_INT, kContract + static_cast<Py_ssize_t>(offsetof(Contract, vocab)), 0,
     nullptr},
    {"_eot", T_INT, kContract + static_cast<Py_ssize_t>(offsetof(Contract, eot)), 0, nullptr},
    {"_user", T_INT, kContract + static_cast<Py_ssize_t>(offsetof(Contract, user)), 0, nullptr},
    {"_assistant", T_INT, kContract + static_cast<Py_ssize_t>(offsetof(Contract, assistant)), 0,
     nullptr},
    {"_position", T_PYSSIZET, static_cast<Py_ssize_t>(offsetof(StreamBase, position)), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot kStreamSlots[] = {
    {Py_tp_doc, const_cast<char*>("What of a `Stream` must be fast: an id of text.")},
    {Py_tp_methods, kStreamMethods},
    {Py_tp_members, kStreamMembers},
    {0, nullptr}};

PyType_Spec kStreamBase = {"statetok._core.StreamBase", sizeof(StreamBase), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, kStreamSlots};

py::object make_type(PyType_Spec& spec) {
  auto made = py::reinterpret_steal<py::object>(PyType_FromSpec(&spec));
  if (!made) throw py::error_already_set();
  return made;
}

}  // namespace

PYBIND11_MODULE(_core, m) {
  m.attr("HEADER_SHA256") = STATETOK_HEADER_SHA256;
  m.attr("compiler") = STATETOK_COMPILER;
  m.attr("insert_state_blocks") = function(kInsertStateBlocks, m, m.attr("__name__"));
  m.attr("StreamBase") = make_type(kStreamBase);
  m.def("bind", &bind, "Return a function of the ids alone: `insert_state_blocks`, bound.");
  m.def("insert_with_edits", &insert_with_edits,
        "Insert into a plain input; also return where, as (before, count) for each place.");
  m.def("insert_ragged", &insert_ragged, "Rows of plain arrays; see `StateTokens.insert_ragged`.");
}
