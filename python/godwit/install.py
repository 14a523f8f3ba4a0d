"""Where the C library of this installation lies, for programs in C."""

import os

from ._paths import INCLUDE_DIR, PKG_CONFIG_DIR

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def get_include() -> str:
    """The directory for the compiler's -I; `#include <godwit/world.h>` then works."""
    return os.path.normpath(os.path.join(_PACKAGE, INCLUDE_DIR))


def get_pkg_config_dir() -> str:
    """The directory of godwit.pc, for PKG_CONFIG_PATH."""
    return os.path.normpath(os.path.join(_PACKAGE, PKG_CONFIG_DIR))
