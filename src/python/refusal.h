/* refusal.h - says why a tensor cannot be taken in, and what to do about it.
 *
 * Each raises an exception that begins with the name of the argument and
 * returns -1.                                                               */
#ifndef GWI_PYTHON_REFUSAL_H
#define GWI_PYTHON_REFUSAL_H

#include "intake.h"

/* "name: " and the sentence in `format`, as PyUnicode_FromFormat. */
int gwi_refuse(const gwi_state *state, int err, const gwi_need *need, const char *format, ...);

int gwi_refuse_stranger(const gwi_state *state, PyObject *object, const gwi_need *need);
int gwi_refuse_dims(const gwi_state *state, long long ndim, const gwi_need *need);
int gwi_refuse_strides(const gwi_state *state, const gwi_layout *layout, const gwi_need *need,
                       const char *problem, const char *advice);

/* The type of the entries: one that Godwit does not know, or not one of those
 * that are allowed. `format` is what the object calls it if it has no dtype. */
int gwi_refuse_unknown_dtype(const gwi_state *state, PyObject *object, const char *format,
                             const gwi_need *need);
int gwi_refuse_dtype(const gwi_state *state, const gwi_layout *layout, const gwi_need *need);

/* Memory elsewhere: the object's own word for its device, else DLPack's number. */
int gwi_refuse_device(const gwi_state *state, PyObject *object, int dl_device,
                      const gwi_need *need);

/* An exception is set, because the object's own library refused.  Finds out
 * why from what the object says about itself (layout, device...).  What has
 * nothing to do with it, such as KeyboardInterrupt, is left as it is. */
int gwi_refuse_by_maker(const gwi_state *state, PyObject *object, const gwi_need *need);

#endif
