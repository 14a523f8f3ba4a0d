/* route.c - asks a type how its objects can be taken in. */
#include "module.h"
#include "route.h"

/* An attribute of a type, or NULL without an exception if there is none. */
static int find_attribute(PyTypeObject *type, const char *name, PyObject **ret_value)
{
    PyObject *value = PyObject_GetAttrString((PyObject *)type, name);

    if (value == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError))
            return -1;
        PyErr_Clear();
    }
    *ret_value = value;
    return 0;
}

/* A class of a module that is already imported, or NULL.  A module that nobody
 * imported has no objects, so nothing is ever imported here. */
static PyObject *imported_class(const char *module_name, const char *class_name)
{
    PyObject *modules = PySys_GetObject("modules"); /* borrowed */
    PyObject *module = modules != NULL ? PyDict_GetItemString(modules, module_name) : NULL;
    PyObject *class = module != NULL ? PyObject_GetAttrString(module, class_name) : NULL;

    if (class == NULL)
        PyErr_Clear(); /* half imported, for example */
    return class;
}

static bool is_subclass(PyTypeObject *type, const char *module_name, const char *class_name)
{
    PyObject *class = imported_class(module_name, class_name);
    bool result = false;

    if (class != NULL && PyType_Check(class))
        result = PyType_IsSubtype(type, (PyTypeObject *)class);
    Py_XDECREF(class);
    return result;
}

static bool is_class(PyTypeObject *type, const char *module_name, const char *class_name)
{
    PyObject *class = imported_class(module_name, class_name);

    Py_XDECREF(class); /* only its address matters */
    return class == (PyObject *)type;
}

/* What the attribute holds: a capsule, or in the first versions the address as
 * a number.  NULL for anything else. */
static const dl_exchange_api *api_in(PyObject *value)
{
    const dl_exchange_api *api = NULL;

    if (PyCapsule_IsValid(value, "dlpack_exchange_api"))
        api = PyCapsule_GetPointer(value, "dlpack_exchange_api");
    else if (PyLong_Check(value))
        api = PyLong_AsVoidPtr(value);
    if (PyErr_Occurred())
        PyErr_Clear();
    while (api != NULL && api->version.major > DL_MAJOR)
        api = api->older;
    if (api == NULL || api->version.major != DL_MAJOR || api->managed_from_object == NULL)
        return NULL;
    return api;
}

static int find_api(PyTypeObject *type, const dl_exchange_api **ret_api)
{
    static const char *const names[] = {"__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__"};

    for (size_t i = 0; i < 2 && *ret_api == NULL; i++) {
        PyObject *value = NULL;
        if (find_attribute(type, names[i], &value) < 0)
            return -1;
        if (value != NULL)
            *ret_api = api_in(value);
        Py_XDECREF(value);
    }
    return 0;
}

/* Single numbers are no tensors, though np.float64(1) has a buffer. */
static bool is_number(PyObject *object)
{
    return PyLong_Check(object) || PyFloat_Check(object) || PyComplex_Check(object) ||
           is_subclass(Py_TYPE(object), "numpy", "generic");
}

int gwi_route_find(PyObject *object, gwi_route *ret_route)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject *dlpack = NULL;
    gwi_route route = {.type = type, .how = GWI_ROUTE_NONE};

    if (PyType_Check(object) || is_number(object))
        goto found; /* a type is asked for its objects, not for itself */

    route.is_torch = is_subclass(type, "torch", "Tensor");
    if (find_api(type, &route.api) < 0 || find_attribute(type, "__dlpack__", &dlpack) < 0)
        return -1;
    if (route.api != NULL)
        route.how = GWI_ROUTE_EXCHANGE;
    else if (route.is_torch)
        route.how = GWI_ROUTE_TORCH;
    else if (PyObject_CheckBuffer(object)) {
        route.how = GWI_ROUTE_BUFFER;
        route.is_ndarray = is_class(type, "numpy", "ndarray");
    } else if (dlpack != NULL)
        route.how = GWI_ROUTE_CAPSULE;
    Py_XDECREF(dlpack);

found:
    Py_INCREF((PyObject *)type);
    *ret_route = route;
    return 0;
}
