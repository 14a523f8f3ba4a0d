/* interrupt.c - the function that the library calls during long waits.
 *
 * It runs in whichever thread waits, without the GIL.                        */
#include "module.h"
#include "interrupt.h"

#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int n_stops;

void gwi_interrupt_begin_stop(void)
{
    atomic_fetch_add(&n_stops, 1);
}

void gwi_interrupt_end_stop(void)
{
    atomic_fetch_sub(&n_stops, 1);
}

/* Python runs signal handlers in the main thread only, also in a forked child,
 * whose main thread is the one that forked: so it has the number of the process.
 * Other threads need not ask for the GIL, which they might wait for long, or,
 * while the interpreter ends, for ever. */
static int in_main_thread(void)
{
    return syscall(SYS_gettid) == getpid();
}

static int check(void)
{
    if (atomic_load(&n_stops) > 0)
        return 1;
    if (!in_main_thread() || !Py_IsInitialized())
        return 0;

    PyGILState_STATE gil = PyGILState_Ensure();
    /* With an exception on its way already, nobody wants to wait any more. */
    int raised = PyErr_Occurred() != NULL || PyErr_CheckSignals() != 0;
    PyGILState_Release(gil);
    return raised;
}

void gwi_interrupt_install(void)
{
    gw_set_interrupt_check(check);
}
