"""godwit.comm in a world of one: names, refusals, endings; and all checks of tests/jobs as a job of one and of two.

These run with every PyTorch at hand, the newest and Debian's.  Jobs are in tests/jobs.
"""

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import godwit

torch = pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "jobs"


# ---- names ------------------------------------------------------------------------------------------


def test_importing_godwit_does_not_import_torch(program):
    out = program.run("""
        import sys
        import godwit
        print("torch" in sys.modules, godwit.MPI_SUM, "torch" in sys.modules)
        print(godwit.comm.MPI_SUM, "COMM_WORLD" in dir(godwit))
        try:
            godwit.no_such_name
        except AttributeError as error:
            print(error)
    """)
    assert out.splitlines() == ["False 2 True", "2 True", "module 'godwit' has no attribute 'no_such_name'"]


def test_the_names_of_comm_are_at_the_top_too():
    assert godwit._NAMES_OF_COMM == set(godwit.comm.__all__)
    assert godwit.COMM_WORLD is godwit.comm.COMM_WORLD


def test_operations_have_mpis_order():
    names = "MAX MIN SUM PROD LAND BAND LOR BOR LXOR BXOR MINLOC MAXLOC".split()
    assert [getattr(godwit, f"MPI_{name}") for name in names] == list(range(12))


def test_the_world_joins_at_its_first_use(program):
    out = program.run("""
        import pickle, copy
        import godwit
        from godwit.comm import COMM_WORLD as comm
        print(comm)
        print(comm.rank, comm.size, godwit.world().size)
        print(comm)
        print(pickle.loads(pickle.dumps(comm)) is comm, copy.deepcopy(comm) is comm)
        try:
            pickle.dumps(comm.Dup())
        except godwit.WrongState as error:
            print("COMM_WORLD" in str(error))
    """)
    assert out.splitlines() == ["<godwit.comm.Communicator, not joined yet>", "0 1 1",
                                "<godwit.comm.Communicator: rank 0 of 1>", "True True", "True"]


# ---- endings -------------------------------------------------------------------------------------------


def test_a_world_that_is_left_takes_its_communicators_with_it(program):
    out = program.run("""
        import gc
        import torch
        import godwit
        from godwit.comm import COMM_WORLD as comm

        def refused(call):
            try:
                call()
            except godwit.WrongState as error:
                print(error)

        twin = comm.Dup()
        never = twin.Irecv(torch.empty(3), 0, 0)
        other = comm.Irecv(torch.empty(3), 0, 0)
        sent = twin.Isend(torch.empty(3), 0, 1)
        x = torch.ones(3, requires_grad=True)
        y = comm.Allreduce(x)
        godwit.close()
        for call in (twin.Barrier, comm.Barrier, lambda: comm.rank, lambda: comm.Allreduce(x), lambda: twin.Wait(never),
                     lambda: comm.Wait(other), lambda: y.sum().backward(), lambda: twin.Split(0, 0)):
            refused(call)
        del never, sent, twin, y
        gc.collect()
        godwit.init()
        print(comm.Allreduce(torch.ones(1)).item())
    """)
    lines = out.splitlines()
    assert len(lines) == 9 and lines[-1] == "1.0"
    assert all("closed" in line or "left" in line for line in lines[:-1]), out


def test_requests_and_communicators_may_end_in_any_order(program):
    program.run("""
        import gc, random
        import torch
        from godwit.comm import COMM_WORLD as comm

        chance = random.Random(5)
        for _ in range(50):
            things = [comm.Dup() for _ in range(3)]
            for group in list(things):
                things += [group.Irecv(torch.empty(4), 0, tag) for tag in range(3)]
                things += [group.Isend(torch.ones(4), 0, tag) for tag in range(2)]
            chance.shuffle(things)
            while things:
                thing = things.pop()
                if chance.random() < 0.2 and hasattr(thing, "close"):
                    thing.close()
                del thing
        gc.collect()
        comm.Barrier()
    """)


def test_an_unfinished_send_keeps_the_memory_it_reads(program):
    out = program.run("""
        import gc
        import torch
        from godwit.comm import COMM_WORLD as comm

        x = torch.arange(100_000, dtype=torch.float64)
        handle = comm.Isend(x, 0, 0)
        x.data = torch.zeros(1, dtype=torch.float64)
        del x
        gc.collect()
        got = comm.Recv(torch.empty(100_000, dtype=torch.float64), 0, 0)
        print(torch.equal(got, torch.arange(100_000, dtype=torch.float64)))
        comm.Wait(handle)
    """)
    assert out == "True\n"


def test_a_result_may_be_changed_in_place_before_a_graph_is_made_of_its_derivative(program):
    program.run("""
        import torch
        from godwit.comm import COMM_WORLD as comm
        for n in (1, 100_000):
            x = torch.ones(n, requires_grad=True)
            y = comm.Allreduce(x)
            y *= 3
            loss = (y * y).sum()
            for _ in range(2):
                first, = torch.autograd.grad(loss, x, create_graph=True)
            second, = torch.autograd.grad(first.sum(), x)
            assert first.eq(18).all() and second.eq(18).all()
    """)


def test_the_graph_does_not_keep_a_large_result(program):
    program.run("""
        import torch
        from godwit.comm import COMM_WORLD as comm
        y = comm.Allreduce(torch.ones(100_000, requires_grad=True))
        mark, = y.grad_fn.saved_tensors
        assert mark.numel() == 0 and mark.grad_fn is y.grad_fn
    """)


def test_a_gradient_that_is_not_dense_is_summed_and_left_as_it_is(program):
    program.run("""
        import torch
        from godwit.comm import COMM_WORLD as comm
        x = torch.ones(3, requires_grad=True)
        one = torch.ones(())
        comm.Allreduce(x).backward(one.expand(3))
        assert x.grad.eq(1).all() and x.grad.is_contiguous() and one == 1
    """)


def test_a_wait_that_timed_out_can_be_repeated(program):
    out = program.run("""
        import torch
        import godwit
        godwit.init(timeout=0.2)
        comm = godwit.COMM_WORLD
        handle = comm.Irecv(torch.empty(2), 0, 5)
        try:
            comm.Wait(handle)
        except godwit.TimedOut as error:
            print("tag 5" in str(error))
        sent = comm.Isend(torch.ones(2), 0, 5)
        print(comm.Wait(handle).tolist())
        comm.Wait(sent)
    """)
    assert out.splitlines() == ["True", "[1.0, 1.0]"]


def test_a_forked_child_is_refused_and_leaves_all_to_its_parent(program):
    out = program.run("""
        import gc, os
        import torch
        import godwit
        from godwit.comm import COMM_WORLD as comm

        twin = comm.Dup()
        handle = twin.Irecv(torch.empty(1), 0, 0)
        child = os.fork()
        if child == 0:
            try:
                twin.Barrier()
            except godwit.WrongState:
                del handle, twin
                gc.collect()
                os._exit(3)
            os._exit(4)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        sent = twin.Isend(torch.ones(1), 0, 0)
        print(twin.Wait(handle).item())
        twin.Wait(sent)
    """)
    assert out.splitlines() == ["3", "1.0"]


# ---- refusals -----------------------------------------------------------------------------------------------


def test_bad_arguments_are_named(program):
    out = program.run("""
        import torch
        import godwit
        from godwit.comm import *

        comm, x = COMM_WORLD, torch.ones(2, 3)

        def refused(kind, word, call):
            try:
                call()
            except kind as error:
                if word in str(error):
                    return
                print("unclear:", error)
            except BaseException as error:
                print("wrong kind:", type(error), error)
            else:
                print("accepted:", word)

        refused(godwit.OutOfRange, "root", lambda: comm.Bcast_(x, 1))
        refused(godwit.InvalidType, "root", lambda: comm.Bcast_(x, "0"))
        refused(godwit.OutOfRange, "axis", lambda: comm.Gather(x, 2, 0))
        refused(godwit.OutOfRange, "axis", lambda: comm.Allgather(x, -3))
        refused(godwit.OutOfRange, "axis", lambda: comm.Alltoall(x, 0, 5, 1))
        refused(godwit.RanksDisagree, "Scatter", lambda: comm.Scatter(x, 0, 1, 0))
        refused(godwit.InvalidType, "tensor", lambda: comm.Allreduce(None))
        refused(godwit.InvalidType, "tensor", lambda: comm.Scatter(None, 0, 1, 0))
        refused(godwit.InvalidType, "tensor", lambda: comm.Allreduce(3.0))
        refused(godwit.InvalidType, "layout", lambda: comm.Allreduce(x.to_sparse()))
        refused(godwit.Error, "dim", lambda: comm.Allreduce(torch.ones([1] * 9)))
        refused(godwit.InvalidType, "color", lambda: comm.Split("red", 0))
        refused(godwit.InvalidType, "comm", lambda: comm_from_mpi4py(3))
        refused(godwit.InvalidType, "loopthrough", lambda: JoinDummies(torch.ones(1, dtype=torch.int64),
                                                                       [torch.ones(1, requires_grad=True)]))
        print("done")
    """)
    assert out == "done\n"


# ---- all checks of the jobs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("words", [["comm_values.py"], ["comm_scripted.py", "script"]])
def test_the_checks_of_the_jobs_pass_with_this_pytorch(words, n):
    program, *arguments = words
    env = {**os.environ, "GODWIT_TIMEOUT": "60", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-m", "godwit", "run", "-n", str(n), str(PROGRAMS / program), *arguments],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stdout[-4000:]
    assert done.stdout.count("passed") >= 5 * n


# ---- examples -----------------------------------------------------------------------------------------------------


def docstrings():
    """The indented examples in the docstrings of godwit.comm."""
    directory = Path(godwit.__file__).parent / "comm"
    for path in sorted(directory.glob("*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                continue
            text = ast.get_docstring(node) or ""
            for block in text.split("\n\n"):
                indented = all(line.startswith("    ") for line in block.splitlines())
                if indented and ("comm" in block or "import" in block):
                    yield pytest.param(textwrap.dedent(block), id=f"{path.stem}.{getattr(node, 'name', 'module')}")


@pytest.mark.parametrize("example", list(docstrings()))
def test_examples_in_docstrings_run(program, example):
    if "mpi4py" in example:
        pytest.skip("needs mpi4py")
    prelude = textwrap.dedent("""
        import torch
        import godwit
        from godwit.comm import *
        comm = COMM_WORLD
        left = right = 0
        a = edge = torch.ones(3, requires_grad=True)
        loss = a.sum()
    """)
    program.run(prelude + example)
