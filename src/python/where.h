/* where.h - at which line of the program a thread is, for the ledger. */
#ifndef GWI_PYTHON_WHERE_H
#define GWI_PYTHON_WHERE_H

void gwi_where_install(void);

#endif
