/*
 * Run: one run of a call of a model, from its queue for a slot to its results.
 *
 * `await run` begins the call on the first step: it takes a slot, or waits for one (calls.c). One completion
 * ends the wait for the slot, the thread and the device. The await returns the results. If the call has failed,
 * or a reset came before it began, the await returns None, and Python reads the attributes of the Run. A wait
 * with a time limit, or on a plain thread, calls `_begin` and `_end` instead.
 *
 * The native call, `struct native`, is memory of its own, because the instance's thread may still read it when
 * the Run is gone. It has a reference to the Arguments, whose buffers the thread reads, and to the memory of
 * the results, which the thread writes. These references are dropped under the GIL only: by the Run, or by the
 * maintenance thread if the caller has left the call while the thread uses it.
 *
 * Large results are written by the instance's thread, after the device is done; a second completion ends this.
 * If they go to memory of the caller, the await cannot be cancelled meanwhile (future.c, trio.c).
 *
 * Several Arguments may share one run: their rows are one batch, and each gets results of its own.
 */
#include "call.h"

#include <stdlib.h>
#include <string.h>

enum { WRITTEN_HERE = 256 * 1024, SAVED_EARLY = 16 * 1024 };

typedef struct {
    aio_model_call call;
    PyObject *arguments; /* an Arguments, or a tuple of them */
    PyObject *made;      /* the memory of the results: a list */
    Py_buffer *views;    /* of this memory, one for each output of each Arguments */
    int view_count;
    aio_piece *writes;
    aio_piece *pieces;
    size_t transfers[1];
} native;

enum run_phase { FRESH, BEGUN, ARRIVED, WRITING, ENDED };

typedef struct {
    PyObject_HEAD slots_object *slots;
    spec_object *spec;
    PyObject *arguments;     /* an Arguments, or a tuple of them */
    arguments_object **each; /* these Arguments, `count` of them */
    int count;
    bool several;      /* a tuple */
    Py_ssize_t rows;   /* of all callers; below 0 without batches */
    PyObject *targets; /* the memoryviews of the caller's memory, a tuple, or NULL */
    PyObject *out;     /* what the caller gets if there are targets */
    PyObject *core;    /* of the slot; NULL: the call had none */
    native *native;    /* NULL before the begin, and after the end */
    const gear *gear;
    aio_result result;
    uint64_t position;
    char *text;
    int32_t code;
    int function;
    enum run_phase phase;
    char begun, wait, held;
} run_object;

static PyTypeObject *run_type;

bool is_run(PyObject *object) {
    return PyObject_TypeCheck(object, run_type);
}

bool run_is_new(PyObject *run) {
    return ((run_object *)run)->phase == FRESH;
}

aio_result run_result(PyObject *run) {
    return ((run_object *)run)->result;
}

bool run_has_targets(PyObject *run) {
    return ((run_object *)run)->targets != NULL;
}

/* --- the native call -------------------------------------------------------------------------------------- */

void free_call(aio_model_call *call) {
    native *self = (native *)call;
    for (int index = 0; index < self->view_count; index++) {
        PyBuffer_Release(&self->views[index]);
    }
    PyMem_Free(self->views);
    PyMem_Free(self->writes);
    PyMem_Free(self->pieces);
    free(call->text);
    free(call->saved);
    PyObject *arguments = self->arguments, *made = self->made;
    PyMem_Free(self);
    Py_XDECREF(arguments);
    Py_XDECREF(made);
}

/* For the metrics: the rows, or the number of calls of a model without batches. */
static int count_of_rows(const run_object *self) {
    return self->rows < 0 ? self->count : (int)self->rows;
}

static void fill_pieces(const run_object *self, native *made) {
    aio_piece *next = made->pieces;
    for (int input = 0; input < self->spec->inputs; input++) {
        for (int index = 0; index < self->count; index++) {
            const Py_buffer *view = &self->each[index]->views[input].buffer;
            *next++ = (aio_piece){NULL, view->buf, (size_t)view->len, input};
        }
    }
    made->call.pieces = made->pieces;
    made->call.piece_count = (int)(next - made->pieces);
}

/* The bytes of one row of an output; 0: a result is the whole output. The rows of several Arguments are split
 * also if the model has no gears of batches. */
static size_t row_bytes(const run_object *self, int output) {
    bool split = self->several || self->spec->tensors[self->spec->inputs + output].batched;
    return split ? self->gear->row_bytes[output] : 0;
}

static void fill_transfers(const run_object *self, native *made) {
    const spec_object *spec = self->spec;
    memcpy(made->transfers, self->gear->transfers, (size_t)(spec->inputs + spec->outputs) * sizeof(size_t));
    for (int output = 0; output < spec->outputs; output++) {
        size_t *transfer = &made->transfers[spec->inputs + output];
        size_t nbytes = row_bytes(self, output) * (size_t)self->rows;
        if (nbytes && nbytes < *transfer) {
            *transfer = nbytes;
        }
    }
    made->call.transfers = made->transfers;
}

static native *new_native(const run_object *self) {
    const spec_object *spec = self->spec;
    size_t tensors = (size_t)(spec->inputs + spec->outputs);
    native *made = PyMem_Calloc(1, sizeof *made + tensors * sizeof(size_t));
    aio_piece *pieces = PyMem_Calloc((size_t)(spec->inputs * self->count) + 1, sizeof *pieces);
    if (made == NULL || pieces == NULL) {
        PyMem_Free(made);
        PyMem_Free(pieces);
        return NULL;
    }
    made->arguments = Py_NewRef(self->arguments);
    made->pieces = pieces;
    made->call.function = -1;
    made->call.held = self->held;
    made->call.gear = self->gear->values;
    made->call.gear_size = self->gear->value_count;
    made->call.rows = count_of_rows(self);
    fill_pieces(self, made);
    fill_transfers(self, made);
    return made;
}

/* --- the run ---------------------------------------------------------------------------------------------- */

static size_t bytes_of_downloads(const run_object *self) {
    size_t size = 0;
    for (int output = 0; output < self->spec->outputs; output++) {
        size += self->native->transfers[self->spec->inputs + output];
    }
    return size;
}

int run_begin(PyObject *object, aio_port *port, uint64_t key, bool patient) {
    run_object *self = (run_object *)object;
    self->native = new_native(self);
    self->phase = BEGUN;
    if (self->native == NULL) {
        self->code = AIO_NO_MEMORY;
    } else {
        self->native->call.patient = patient && bytes_of_downloads(self) <= SAVED_EARLY;
        self->code = aio_model_begin(self->slots->calls, &self->native->call, port, key, self->wait);
    }
    if (self->code) {
        self->result = aio_failed(self->code);
        run_leave(object);
    }
    return self->code;
}

static void count(const run_object *self, enum aio_ending ending) {
    aio_count_request(self->slots->calls->counts, ending);
}

/* A call that has ended was counted when it ended. A refusal of the gate is not counted: the call is repeated.
 */
static void count_left(const run_object *self) {
    bool refused = self->code == AIO_QUEUE_FULL;
    if (refused || (self->phase == BEGUN && !self->code) || self->phase == WRITING) {
        count(self, refused ? AIO_ENDING_REFUSED : AIO_ENDING_CANCELLED);
    }
}

bool run_leave(PyObject *object) {
    run_object *self = (run_object *)object;
    native *left = self->native;
    if (left != NULL) {
        count_left(self);
    }
    self->native = NULL;
    self->phase = ENDED;
    bool begun = false;
    if (left != NULL && !atomic_load(&aio_in_child) &&
        aio_model_leave(self->slots->calls, &left->call, &begun)) {
        free_call(&left->call);
    }
    return begun;
}

/* Copies what Python needs for the error. The slot stays in use until the error was made, so that its failure
 * is not reported as one that no caller has received. */
static void note_failure(run_object *self) {
    const aio_model_call *call = &self->native->call;
    if (call->code) {
        self->code = call->code;
    } else {
        self->code = aio_code(self->result);
        self->position = call->position;
    }
    self->function = call->function;
    self->begun = call->begun;
    if (call->text != NULL) {
        self->text = strdup(call->text);
    }
    if (call->slot != NULL) {
        self->core = Py_XNewRef(self->slots->cores[call->slot->index]);
    }
}

/* Not counted: a call that has not begun, and that Python repeats because a reset or an earlier failure of the
 * stream came first (`must_repeat`). */
static void count_failure(const run_object *self) {
    int32_t code = self->code;
    bool repeated = code == AIO_STALE || code == AIO_RESETTING_NOW || code == AIO_DRAINING_NOW ||
                    code == AIO_QUARANTINE || code == AIO_STREAM_FAILED;
    if (self->begun || !repeated) {
        count(self, aio_ending_of(aio_failed(code)));
    }
}

/* Asks Python for the function that makes arrays, once. */
static int find_arrays(spec_object *spec) {
    if (spec->empty != NULL) {
        return 0;
    }
    PyObject *found = PyObject_CallNoArgs(spec->arrays);
    PyObject *empty, *dtypes;
    if (found == NULL || !PyArg_ParseTuple(found, "OO!", &empty, &PyTuple_Type, &dtypes)) {
        Py_XDECREF(found);
        return -1;
    }
    replace(&spec->empty, Py_NewRef(empty));
    replace(&spec->dtypes, Py_NewRef(dtypes));
    Py_DECREF(found);
    return 0;
}

/* Returns the shape of a result: that of the gear, with the rows of the caller. */
static PyObject *shape_of(const run_object *self, Py_ssize_t rows, int output) {
    PyObject *whole = PyTuple_GetItem(self->gear->shapes, output);
    bool all = self->spec->kind == AIO_BATCHES && rows == self->gear->values[0];
    if (!row_bytes(self, output) || all) {
        return Py_XNewRef(whole);
    }
    PyObject *rest = PyTuple_GetSlice(whole, 1, PyTuple_Size(whole));
    PyObject *first = PyLong_FromSsize_t(rows);
    PyObject *head = first ? PyTuple_Pack(1, first) : NULL;
    PyObject *shape = head && rest ? PySequence_Concat(head, rest) : NULL;
    Py_XDECREF(rest);
    Py_XDECREF(first);
    Py_XDECREF(head);
    return shape;
}

/* Where the results of an output are: in the slot, or in the copy that the thread has made of them. */
static const char *source_of(const run_object *self, int output) {
    const native *call = self->native;
    const size_t *counts = call->transfers + self->spec->inputs;
    if (call->call.slot != NULL) {
        return call->call.slot->parts[self->spec->inputs + output].pinned;
    }
    const char *at = call->call.saved;
    for (int before = 0; before < output; before++) {
        at += counts[before];
    }
    return at;
}

/* Takes a view of the memory of one result, and notes what is to be written there. `at` is its first byte in
 * the slot's memory. The list of the results gets the reference to the memory. */
static int take_view(const run_object *self, PyObject *memory, int number, size_t at) {
    native *call = self->native;
    int output = number % self->spec->outputs;
    size_t size = call->transfers[self->spec->inputs + output];
    Py_buffer *view = &call->views[number];
    if (memory == NULL || PyList_SetItem(call->made, number, memory) < 0 ||
        PyObject_GetBuffer(memory, view, PyBUF_WRITABLE) < 0) {
        return -1;
    }
    size_t count = (size_t)view->len, most = at < size ? size - at : 0;
    call->writes[number] =
        (aio_piece){view->buf, source_of(self, output) + at, count < most ? count : most, output};
    return 0;
}

/* Prepares the results of one output for each Arguments. Those with equal rows share the shape. */
static int prepare_output(const run_object *self, int output) {
    PyObject *dtype = self->targets ? NULL : PyTuple_GetItem(self->spec->dtypes, output), *shape = NULL;
    size_t at = 0;
    int code = 0;
    for (int index = 0; code == 0 && index < self->count; index++) {
        Py_ssize_t rows = self->each[index]->rows;
        if (dtype != NULL && (shape == NULL || rows != self->each[index - 1]->rows)) {
            replace(&shape, shape_of(self, rows, output));
        }
        PyObject *memory = self->targets ? Py_XNewRef(PyTuple_GetItem(self->targets, output))
                           : shape       ? PyObject_CallFunctionObjArgs(self->spec->empty, shape, dtype, NULL)
                                         : NULL;
        code = take_view(self, memory, index * self->spec->outputs + output, at);
        at += row_bytes(self, output) * (size_t)rows;
    }
    Py_XDECREF(shape);
    return code;
}

/* Fills the list `made` with the memory of the results, in the order of the outputs of each Arguments. */
static int prepare_results(run_object *self) {
    native *call = self->native;
    size_t count = (size_t)(self->spec->outputs * self->count);
    call->made = PyList_New((Py_ssize_t)count);
    call->views = PyMem_Calloc(count + 1, sizeof *call->views);
    call->writes = PyMem_Calloc(count + 1, sizeof *call->writes);
    if (call->made == NULL || call->views == NULL || call->writes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    call->view_count = (int)count;
    int code = self->targets ? 0 : find_arrays(self->spec);
    for (int output = 0; code == 0 && output < self->spec->outputs; output++) {
        code = prepare_output(self, output);
    }
    call->call.writes = call->writes;
    call->call.write_count = call->view_count;
    return code;
}

/* Returns the dict of the arrays by name. `first` is the number of the first array. */
static PyObject *by_name(const run_object *self, PyObject *made, int first) {
    PyObject *result = PyDict_New();
    for (int output = 0; result != NULL && output < self->spec->outputs; output++) {
        PyObject *name = PyTuple_GetItem(self->spec->names, output);
        if (PyDict_SetItem(result, name, PyList_GetItem(made, first + output)) < 0) {
            Py_CLEAR(result);
        }
    }
    return result;
}

/* The result of a call is the array of a model with one output, else a dict. */
static PyObject *results_of(const run_object *self, PyObject *made) {
    int outputs = self->spec->outputs;
    if (self->targets != NULL) {
        return Py_NewRef(self->out);
    }
    if (!self->several) {
        return outputs == 1 ? Py_XNewRef(PyList_GetItem(made, 0)) : by_name(self, made, 0);
    }
    if (outputs == 1) {
        return Py_NewRef(made);
    }
    PyObject *all = PyList_New(0);
    for (int index = 0; all != NULL && index < self->count; index++) {
        PyObject *one = by_name(self, made, index * outputs);
        if (one == NULL || PyList_Append(all, one) < 0) {
            Py_CLEAR(all);
        }
        Py_XDECREF(one);
    }
    return all;
}

/* The results are written. */
static enum run_end end_well(run_object *self, PyObject **result) {
    PyObject *made = Py_NewRef(self->native->made);
    count(self, AIO_ENDING_DONE);
    self->phase = ENDED;
    run_leave((PyObject *)self);
    *result = results_of(self, made);
    Py_DECREF(made);
    return *result ? RUN_OVER : RUN_ERROR;
}

static size_t bytes_of_results(const native *call) {
    size_t all = 0;
    for (int index = 0; index < call->view_count; index++) {
        all += call->writes[index].count;
    }
    return all;
}

static void write_here(const native *call, bool large) {
    PyThreadState *thread = large ? PyEval_SaveThread() : NULL;
    for (int index = 0; index < call->view_count; index++) {
        memcpy(call->writes[index].target, call->writes[index].source, call->writes[index].count);
    }
    if (thread != NULL) {
        PyEval_RestoreThread(thread);
    }
}

static enum run_end fetch(run_object *self, aio_port *port, uint64_t key, PyObject **result) {
    if (prepare_results(self) < 0) {
        count(self, AIO_ENDING_FAILED);
        run_leave((PyObject *)self);
        return RUN_ERROR;
    }
    bool large = bytes_of_results(self->native) > WRITTEN_HERE;
    if (large && self->native->call.slot != NULL && port != NULL &&
        aio_model_write(self->slots->calls, &self->native->call, port, key) == 0) {
        self->phase = WRITING;
        return RUN_WRITES;
    }
    self->phase = WRITING; /* a call of this function on another thread is refused */
    write_here(self->native, large);
    return end_well(self, result);
}

enum run_end run_end(PyObject *object, aio_result result, aio_port *port, uint64_t key, PyObject **made) {
    run_object *self = (run_object *)object;
    bool written = self->phase == WRITING;
    if (self->phase == ENDED && result < 0) { /* the begin was refused */
        *made = Py_NewRef(Py_None);
        return RUN_OVER;
    }
    if (self->native == NULL || self->phase == FRESH || (written && port == NULL)) {
        PyErr_SetString(PyExc_RuntimeError, "expected a run that has begun, got another; call the model again");
        return RUN_ERROR;
    }
    if (written) {
        return end_well(self, made);
    }
    self->phase = ARRIVED;
    aio_model_take(self->slots->calls, &self->native->call);
    /* Results that the thread has saved are valid, even if the wait for them was refused or ended by a reset.
     */
    self->result = self->native->call.saved != NULL ? 0 : result;
    if (self->result < 0) {
        note_failure(self);
        count_failure(self);
        *made = Py_NewRef(Py_None);
        return RUN_OVER;
    }
    return fetch(self, port, key, made);
}

static await_object *first_with_run(await_object *list) {
    while (list != NULL && list->run == NULL) {
        list = list->next;
    }
    return list;
}

/* The loop was closed: gives up its calls of models, because their tasks may never end. The search begins again
 * after each call, because the end of a call may run finalizers, which change the lists. */
void leave_runs(const awaits_object *self) {
    await_object *each;
    while ((each = first_with_run(self->first)) != NULL || (each = first_with_run(self->ready)) != NULL) {
        PyObject *run = each->run;
        each->run = NULL;
        run_leave(run);
        Py_DECREF(run);
    }
}

/* --- the type --------------------------------------------------------------------------------------------- */

/* Whether the memory of each input has room for all arguments, and each output begins with the rows. */
static bool has_room(const run_object *self, const gear *chosen) {
    const spec_object *spec = self->spec;
    for (int input = 0; input < spec->inputs; input++) {
        size_t room = chosen->transfers[input];
        for (int index = 0; index < self->count; index++) {
            const arguments_object *one = self->each[index];
            size_t nbytes = (size_t)one->views[input].buffer.len;
            if (one->rows < 1 || nbytes > room) {
                return false;
            }
            room -= nbytes;
        }
    }
    for (int output = 0; output < spec->outputs; output++) {
        if (chosen->row_bytes[output] * (size_t)self->rows > chosen->transfers[spec->inputs + output]) {
            return false;
        }
    }
    return true;
}

static bool all_batched(const spec_object *spec) {
    bool all = spec->kind == AIO_BATCHES;
    for (int output = 0; output < spec->outputs; output++) {
        all = all && spec->tensors[spec->inputs + output].batched;
    }
    return all;
}

/* Selects the gear: that of the arguments; or for several of them the given one, or if it is -1, the smallest
 * for all rows. NULL: there is none. */
static const gear *gear_of(const run_object *self, int given) {
    const spec_object *spec = self->spec;
    if (!self->several) {
        return &spec->gears[self->each[0]->gear];
    }
    int found = given < 0 && all_batched(spec) ? gear_for_rows(spec, self->rows) : given;
    bool fits = found >= 0 && found < spec->gear_count && has_room(self, &spec->gears[found]);
    return fits ? &spec->gears[found] : NULL;
}

/* Takes the Arguments: one object, or a tuple of those of one model. Returns -1 with an exception. */
static int take_arguments(run_object *self, PyObject *given) {
    self->several = PyTuple_Check(given);
    self->count = self->several ? (int)PyTuple_Size(given) : 1;
    self->arguments = Py_NewRef(given);
    self->each = PyMem_Calloc((size_t)self->count + 1, sizeof(PyObject *));
    if (self->each == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    bool good = self->count > 0;
    for (int index = 0; good && index < self->count; index++) {
        PyObject *one = self->several ? PyTuple_GetItem(given, index) : given;
        good = PyObject_TypeCheck(one, arguments_type);
        if (good) {
            self->each[index] = (arguments_object *)one;
            self->rows += self->each[index]->rows;
            good = self->each[index]->spec == self->each[0]->spec;
        }
    }
    if (!good) {
        PyErr_SetString(PyExc_TypeError, "expected Arguments, or a tuple of Arguments of one model");
        return -1;
    }
    self->spec = (spec_object *)Py_NewRef((PyObject *)self->each[0]->spec);
    return 0;
}

/* Whether the slots have memory for the tensors. */
static bool are_of_model(const spec_object *spec, const slots_object *slots) {
    const aio_calls *calls = slots->calls;
    return spec->inputs == calls->inputs && spec->outputs == calls->outputs && spec->kind == calls->gears;
}

static int fill_run(run_object *self, PyObject *slots, PyObject *arguments, int chosen) {
    self->function = -1;
    self->slots = (slots_object *)Py_NewRef(slots);
    self->result = aio_failed(AIO_PENDING);
    if (take_arguments(self, arguments) < 0) {
        return -1;
    }
    if (!are_of_model(self->spec, self->slots)) {
        PyErr_SetString(PyExc_ValueError, "expected arguments of this model, got those of another one");
        return -1;
    }
    self->gear = gear_of(self, chosen);
    if (self->gear == NULL) {
        PyErr_SetString(PyExc_ValueError, "expected rows that fit into one gear of the model");
        return -1;
    }
    return 0;
}

/* Run(slots, arguments, targets, out, wait, held, gear=-1). `gear` is that of several Arguments. */
static PyObject *run_new(PyTypeObject *type, PyObject *given, PyObject *Py_UNUSED(keywords)) {
    PyObject *slots, *arguments, *targets, *out;
    int wait, held, chosen = -1;
    if (!PyArg_ParseTuple(given, "O!OOOpp|i", slots_type, &slots, &arguments, &targets, &out, &wait, &held,
                          &chosen)) {
        return NULL;
    }
    if (targets != Py_None && !PyTuple_Check(targets)) {
        return PyErr_Format(PyExc_TypeError, "expected a tuple of targets, or None");
    }
    run_object *self = (run_object *)PyType_GenericAlloc(type, 0);
    if (self == NULL || fill_run(self, slots, arguments, chosen) < 0) {
        Py_XDECREF((PyObject *)self);
        return NULL;
    }
    self->targets = targets == Py_None ? NULL : Py_NewRef(targets);
    self->out = Py_NewRef(out);
    self->wait = (char)wait;
    self->held = (char)held;
    return (PyObject *)self;
}

/* _begin(port, key): begins the call for a wait of Python. Returns 0 or the code of a refusal. */
static PyObject *run_begin_in_python(PyObject *object, PyObject *given) {
    unsigned long long port, key;
    if (!PyArg_ParseTuple(given, "KK", &port, &key)) {
        return NULL;
    }
    if (!run_is_new(object)) {
        return PyErr_Format(PyExc_RuntimeError, "expected a new run, got one that was begun");
    }
    return PyLong_FromLong(run_begin(object, (aio_port *)(uintptr_t)port, key, false));
}

/* _arrived(result): stores the result of a wait of Python. A later await then returns the results. */
static PyObject *run_arrived(PyObject *object, PyObject *result) {
    long long number = PyLong_AsLongLong(result);
    if (number == -1 && PyErr_Occurred()) {
        return NULL;
    }
    ((run_object *)object)->result = number;
    Py_RETURN_NONE;
}

/* _end(): the results, or None if the call has failed. Blocks while it copies. */
static PyObject *run_end_in_python(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    PyObject *made = NULL;
    return run_end(object, run_result(object), NULL, 0, &made) == RUN_OVER ? made : NULL;
}

static PyObject *run_leave_in_python(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong(run_leave(object));
}

static PyObject *run_waits(PyObject *object, void *Py_UNUSED(closure)) {
    const native *call = ((run_object *)object)->native;
    return PyBool_FromLong(call != NULL && call->call.state == AIO_CALL_WAITING);
}

static int run_traverse(PyObject *object, visitproc visit, void *arg) {
    const run_object *self = (run_object *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->slots);
    Py_VISIT(self->spec);
    Py_VISIT(self->arguments);
    Py_VISIT(self->targets);
    Py_VISIT(self->out);
    Py_VISIT(self->core);
    return 0;
}

static int run_clear(PyObject *object) {
    run_object *self = (run_object *)object;
    run_leave(object);
    Py_CLEAR(self->targets);
    Py_CLEAR(self->out);
    Py_CLEAR(self->core);
    return 0;
}

static void run_dealloc(PyObject *object) {
    run_object *self = (run_object *)object;
    PyObject_GC_UnTrack(object);
    if (self->slots != NULL) {
        run_clear(object);
    }
    PyMem_Free(self->each);
    Py_CLEAR(self->arguments);
    Py_CLEAR(self->spec);
    Py_CLEAR(self->slots);
    free(self->text);
    free_object(object);
}

static PyMemberDef run_members[] = {
    {"result", T_LONGLONG, offsetof(run_object, result), READONLY, NULL},
    {"code", T_INT, offsetof(run_object, code), READONLY, NULL},
    {"function", T_INT, offsetof(run_object, function), READONLY, NULL},
    {"position", T_ULONGLONG, offsetof(run_object, position), READONLY, NULL},
    {"text", T_STRING, offsetof(run_object, text), READONLY, NULL},
    {"begun", T_BOOL, offsetof(run_object, begun), READONLY, NULL},
    {"core", T_OBJECT, offsetof(run_object, core), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* _start(notify): begins the call. Returns its Await, whose `take` returns the results when it is done.
 * `notify`: a function that is called then, or None. */
static PyObject *run_start(PyObject *object, PyObject *notify) {
    return start_await(object, notify);
}

static PyMethodDef run_methods[] = {
    {"_start", run_start, METH_O, NULL},
    {"_begin", run_begin_in_python, METH_VARARGS, NULL},
    {"_arrived", run_arrived, METH_O, NULL},
    {"_end", run_end_in_python, METH_NOARGS, NULL},
    {"leave", run_leave_in_python, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyObject *run_device(PyObject *object, void *Py_UNUSED(closure)) {
    return PyLong_FromLong(((run_object *)object)->slots->calls->device);
}

static PyObject *run_is_fresh(PyObject *object, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(run_is_new(object));
}

static PyGetSetDef run_getters[] = {
    {"fresh", run_is_fresh, NULL, "Whether the run has not begun.", NULL},
    {"device", run_device, NULL, "The index of the device.", NULL},
    {"waits", run_waits, NULL, "Whether the call waits for a slot.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot run_slots[] = {
    {Py_tp_doc,
     (void *)"One run of a call of a model. An await returns the results, or None if it has failed."},
    {Py_tp_new, (void *)run_new},
    {Py_tp_dealloc, (void *)run_dealloc},
    {Py_tp_traverse, (void *)run_traverse},
    {Py_tp_clear, (void *)run_clear},
    {Py_tp_methods, run_methods},
    {Py_tp_members, run_members},
    {Py_tp_getset, run_getters},
    {Py_am_await, (void *)awaitable_await},
    {0, NULL},
};

static PyType_Spec run_spec = {
    .name = "aioacl._await.Run",
    .basicsize = sizeof(run_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = run_slots,
};

int add_runs(PyObject *module) {
    run_type = add_type(module, "Run", &run_spec);
    return run_type ? 0 : -1;
}
