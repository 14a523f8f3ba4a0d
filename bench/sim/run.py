"""How many messages a second the simulation delivers, against the 1 M that was promised.

    python bench/sim/run.py [--quick] [--program build/bench/bench/sim-deliveries]

The exit code is 1 if a line with 8 to 64 ranks is below that.
"""

import argparse
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent.parent.parent / "build" / "bench" / "bench" / "sim-deliveries"

parser = argparse.ArgumentParser(description="Deliveries a second under simulation.")
parser.add_argument("--quick", action="store_true", help="fewer messages")
parser.add_argument("--program", type=Path, default=PROGRAM)
arguments = parser.parse_args()
sys.exit(subprocess.run([arguments.program, "0.5" if arguments.quick else "8"]).returncode)
