"""What `import mpi4torch` finds after `godwit run --as mpi4torch`: the look-alike itself, not a copy of its names."""

import sys

import godwit.dropin.mpi4torch

sys.modules[__name__] = godwit.dropin.mpi4torch
