"""What the tests with several processes share."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from processes import assert_no_more_than, traces

# Who is started in the background has Ctrl-C ignored, and so would be the programs that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What `make test` leaves to `make test-jobs` (GODWIT_ALL_JOBS=1), because every rank that imports PyTorch takes two
# seconds of a processor: more numbers of ranks, the other MPI, and other variants of what is tested anyway.
LONG = re.compile("|".join((
    r"test_compiled_functions\w+\[inductor\]",
    r"test_nobody_waits_for_ever\w+\[(openmpi|mpich)-(?!one rank missing)",
    r"test_gradients_are_those\w+\[(openmpi|mpich)-[14]\]",
    r"test_a_program_for_mpi4torch_runs_unchanged\[[247]\]",
    r"test_a_program_for_mpi4torch_runs_unchanged_under_mpirun\[\w+-4\]",
    r"test_random_programs_by_mpi\[\w+-2\]",
    r"test_totals_are_exact\w+\[(4-1|8-8)\]",
    r"test_params_nodes.py::test_the_same_with_mpi\[\w+-4-2\]",
    r"test_a_trace_of_other_jobs\[(4-2-2|2-2-1)\]",
    r"test_a_trace_under_mpi\[mpich\]",
    r"test_a_program_of_wholegraph_runs_with_mpi4py\[\w+-[14]\]",
    r"test_nodes_get_ranks\w+\[forkserver\]",
    r"test_samples_may_meet_a_longer_vector\[(naive|pool)\]",
    r"test_a_server_that_is_killed_while_all_come_together\w+\[(before the room|when the others)",
    r"test_what_is_left_of_a_killed_program\w+\[1\]",
    r"test_models_and_losses_on_nodes_of_their_own\[more1\]",
    r"test_graphsage\w+\[1-nodes0\]",
    r"test_(heat|regression)\w+\[1\]",
    r"test_nobody_waits_for_ever\w+\[mpich-one rank missing",
    r"test_gradients_are_those\w+\[(openmpi-3|mpich-2)\]",
    r"test_scripted_functions_give_what_plain_ones_give\[1\]",
    r"test_params.py::test_values\[4-2\]",
    r"test_an_idle_job_takes_hardly_any_processor_time\[\w+-1\]",
    r"test_random_programs_by_mpi\[mpich",
    r"test_ctrl_c_ends_(the_turns_of_blocks_on_all_ranks|all_ranks_after_the_same_batch)",
)))


def pytest_collection_modifyitems(config, items):
    if os.environ.get("GODWIT_ALL_JOBS"):
        return
    long = [item for item in items if LONG.search(item.nodeid)]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if item not in set(long)]


@pytest.fixture
def leaves_nothing():
    """The test may not leave more behind than there was before."""
    before = traces()
    yield
    assert_no_more_than(before)


@pytest.fixture
def program(tmp_path):
    """Write a program and return its path."""
    def write(text: str, name: str = "program.py") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path
    return write
