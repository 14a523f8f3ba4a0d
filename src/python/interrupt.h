/* interrupt.h - lets Ctrl-C, and the closing of a world, end a wait in the library. */
#ifndef GWI_PYTHON_INTERRUPT_H
#define GWI_PYTHON_INTERRUPT_H

/* From now on, long waits in this process run Python's signal handlers about
 * every 100 ms.  If a handler raises, the wait ends with GW_EINTR and the
 * exception is left set in the thread that waits. */
void gwi_interrupt_install(void);

/* Between the two, every wait of every thread ends with GW_EINTR, and the
 * library does not call into Python.  They nest.  No GIL needed. */
void gwi_interrupt_begin_stop(void);
void gwi_interrupt_end_stop(void);

#endif
