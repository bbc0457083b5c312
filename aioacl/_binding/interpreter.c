/*
 * The module aioacl._interpreter, which is empty. Its import fails in a sub-interpreter. aioacl/_base/ffi.py
 * imports it before the other two modules of this shared object, which keep their data in static variables. A
 * sub-interpreter would replace the data, and leave the main interpreter with functions whose modules are gone.
 *
 * Python copies modules of single-phase initialisation into sub-interpreters, or calls their PyInit function in
 * the main interpreter. So only a module of multi-phase initialisation can find out who imports it.
 */
#include <Python.h>

/* Of Python 3.12. Without them, a sub-interpreter with its own GIL refuses the module with a text of its own.
 */
enum { MULTIPLE_INTERPRETERS = 3 };
#define OWN_GIL_SUPPORTED ((void *)2)

static int refuse_sub_interpreter(PyObject *Py_UNUSED(module)) {
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) == 0) {
        return 0;
    }
    PyErr_SetString(PyExc_ImportError,
                    "expected an import in the main interpreter, got one in a sub-interpreter; "
                    "import aioacl in the main interpreter, with mod_wsgi by "
                    "`WSGIApplicationGroup %{GLOBAL}`");
    return -1;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)refuse_sub_interpreter},
    {0, NULL},
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_interpreter",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__interpreter(void) {
    if (Py_Version >= 0x030c0000) {
        slots[1] = (PyModuleDef_Slot){MULTIPLE_INTERPRETERS, OWN_GIL_SUPPORTED};
    }
    return PyModuleDef_Init(&definition);
}
