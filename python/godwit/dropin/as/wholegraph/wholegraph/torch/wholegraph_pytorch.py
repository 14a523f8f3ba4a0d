"""What `from wholegraph.torch import wholegraph_pytorch` finds: the look-alike itself, not a copy of its names."""

import sys

import godwit.dropin.wholegraph

sys.modules[__name__] = godwit.dropin.wholegraph
