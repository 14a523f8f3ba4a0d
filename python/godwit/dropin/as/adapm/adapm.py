"""What `import adapm` finds after `godwit run --as adapm`: the look-alike itself, not a copy of its names."""

import sys

import godwit.dropin.adapm

sys.modules[__name__] = godwit.dropin.adapm
