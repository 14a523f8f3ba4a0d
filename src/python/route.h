/* route.h - which way objects of a type are taken in, found once for each type. */
#ifndef GWI_PYTHON_ROUTE_H
#define GWI_PYTHON_ROUTE_H

#include "intake.h"

enum {
    GWI_ROUTE_NONE,     /* no tensor */
    GWI_ROUTE_EXCHANGE, /* DLPack's C functions */
    GWI_ROUTE_TORCH,    /* attributes of a PyTorch tensor */
    GWI_ROUTE_BUFFER,   /* the buffer protocol */
    GWI_ROUTE_CAPSULE,  /* __dlpack__() */
};

/* Ask the type itself.  The route returned owns its `type`. */
int gwi_route_find(PyObject *object, gwi_route *ret_route);

/* The same from memory.  By value: what the object's own code does later may
 * put another type in its place. */
static inline int gwi_route_of(gwi_route *table, PyObject *object, gwi_route *ret_route)
{
    uintptr_t address = (uintptr_t)Py_TYPE(object);
    gwi_route *place = &table[(address >> 4 ^ address >> 10) % GWI_N_ROUTES];

    if (__builtin_expect(place->type != Py_TYPE(object), 0)) {
        gwi_route found;
        if (gwi_route_find(object, &found) < 0)
            return -1;
        PyTypeObject *old = place->type;
        *place = found;
        Py_XDECREF((PyObject *)old);
    }
    *ret_route = *place;
    return 0;
}

#endif
