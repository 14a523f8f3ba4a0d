/* module.c - puts the parts of godwit._native together. */
#include "module.h"

static const gwi_part *const parts[] = {
    &gwi_errors_part, /* first: the others raise these */
    &gwi_intake_part,     &gwi_world_part,  &gwi_comm_part,    &gwi_params_part,
    &gwi_worker_part,     &gwi_launch_part, &gwi_jobs_part,    &gwi_probe_part,
    &gwi_checkpoint_part, &gwi_memory_part, &gwi_backend_part, &gwi_rows_part,
};
#define N_PARTS (sizeof parts / sizeof parts[0])

static int module_exec(PyObject *module)
{
    for (size_t i = 0; i < N_PARTS; i++) {
        if (PyModule_AddFunctions(module, parts[i]->methods) < 0)
            return -1;
        if (parts[i]->exec != NULL && parts[i]->exec(module) < 0)
            return -1;
    }
    return PyModule_AddStringConstant(module, "version", gw_version());
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    gwi_state *state = gwi_state_of(module);

    for (size_t i = 0; i < N_PARTS && state != NULL; i++) {
        int stop = parts[i]->traverse != NULL ? parts[i]->traverse(state, visit, arg) : 0;
        if (stop != 0)
            return stop;
    }
    return 0;
}

static int module_clear(PyObject *module)
{
    gwi_state *state = gwi_state_of(module);

    for (size_t i = N_PARTS; i-- > 0 && state != NULL;)
        if (parts[i]->clear != NULL)
            parts[i]->clear(state);
    return 0;
}

static void module_free(void *module)
{
    module_clear(module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)(uintptr_t)module_exec},
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "godwit._native",
    .m_doc = "The C library for Python; see the package godwit for what is public.",
    .m_size = sizeof(gwi_state),
    .m_slots = slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__native(void); /* for -Wmissing-prototypes */

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
