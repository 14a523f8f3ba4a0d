"""What `import lapse` finds after `godwit run --as lapse`: the look-alike itself, not a copy of its names."""

import sys

import godwit.dropin.lapse

sys.modules[__name__] = godwit.dropin.lapse
