/* version.c - the library's version, as meson.build states it. */
#include <godwit/base.h>

const char *gw_version(void)
{
    return GWI_VERSION;
}
