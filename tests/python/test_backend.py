"""godwit.backend: libraries are found and told apart, products go where they are sent, calls are counted exactly.

Runs with PyTorch 2.13 (which contains its BLAS) and with Debian's 1.13 (which links the system's).
"""

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import godwit
import godwit.backend
from godwit import _native
from godwit.backend import bench, plot, records, report
from godwit.backend.profile import profile

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")
SOURCES = Path(__file__).resolve().parent.parent / "backend"
DEBIAN = {"openblas-serial": "libopenblas0-serial", "openblas-pthread": "libopenblas0-pthread",
          "openblas-openmp": "libopenblas0-openmp", "blis-serial": "libblis4-serial",
          "blis-pthread": "libblis4-pthread", "blis-openmp": "libblis4-openmp", "atlas": "libatlas3-base",
          "reference": "libblas3"}
NAMES = ("openblas-serial", "openblas-pthread", "openblas-openmp", "blis-pthread", "atlas", "reference")
OLD = torch.__version__.startswith("1.")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The small libraries and programs of tests/backend."""
    cc = shutil.which("cc") or shutil.which("gcc")
    if cc is None:
        pytest.skip("no C compiler")
    where = tmp_path_factory.mktemp("built")
    for name, options in (("tiny", []), ("tiny64", ["-DTINY_64"]), ("wrong", ["-DTINY_WRONG"]), ("crash", ["-DTINY_CRASH"])):
        subprocess.run([cc, "-O2", "-shared", "-fPIC", *options, str(SOURCES / "tiny_blas.c"), "-o",
                        str(where / f"lib{name}.so")], check=True)
    subprocess.run([cc, "-O2", "-shared", "-fPIC", str(SOURCES / "called.c"), "-o", str(where / "libcalled.so")], check=True)
    subprocess.run([cc, "-O2", str(SOURCES / "caller.c"), "-o", str(where / "caller"), "-L", str(where), "-lcalled",
                    f"-Wl,-rpath,{where}", "-pthread", "-ldl"], check=True)
    return where


@pytest.fixture(scope="module")
def libraries():
    return {library.name: library for library in godwit.backend.libraries(users=True)}


def library(libraries, name):
    if name not in libraries:
        pytest.skip(f"{name} is not installed (make backends)")
    return libraries[name]


# ---- which are here ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(DEBIAN))
def test_debians_libraries_are_listed_with_their_versions(libraries, name):
    found = library(libraries, name)
    version = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", DEBIAN[name]], capture_output=True, text=True)
    if version.returncode != 0:
        pytest.skip("not Debian's")
    assert version.stdout.partition("+")[0].partition("-")[0] == found.version
    assert found.int_bits == 32 and found.sgemm and found.dgemm
    assert found.threading == (name.rpartition("-")[2] if "-" in name else "serial")


def test_what_pytorch_and_numpy_use_is_told(libraries):
    used = {package: [one for one in libraries.values() if package in one.used_by] for package in ("torch", "numpy")}
    assert len(used["torch"]) == 1 and len(used["numpy"]) == 1
    if OLD:  # Debian's link the system's
        assert "libblas.so.3" in used["torch"][0].chosen_as and used["numpy"] == used["torch"]
    else:  # the wheels bring their own
        assert used["torch"][0].vendor == "mkl"
        assert used["numpy"][0].vendor == "openblas" and used["numpy"][0].int_bits == 64


def test_a_library_is_found_by_name_by_the_beginning_of_it_and_by_path(libraries):
    library(libraries, "openblas-pthread")
    assert godwit.backend.find("openblas-serial").threading == "serial"
    assert godwit.backend.find("openblas").name == "openblas-pthread"
    assert godwit.backend.find(libraries["atlas"].path).vendor == "atlas"
    with pytest.raises(ValueError, match="there is no BLAS 'nosuch' here"):
        godwit.backend.find("nosuch")
    with pytest.raises(FileNotFoundError):
        godwit.backend.find("/nowhere/libblas.so")


def test_a_file_that_is_no_blas_or_kills_its_process_is_refused(built, tmp_path):
    with pytest.raises(godwit.SystemFailure, match="signal 6"):
        _native.blas_probe(str(built / "libcrash.so"))
    with pytest.raises(godwit.Unsupported, match="is no BLAS"):
        _native.blas_probe("libm.so.6")
    text = tmp_path / "libblas.so"
    text.write_text("not a library")
    with pytest.raises(godwit.SystemFailure, match="cannot be loaded"):
        godwit.backend.use(str(text))


# ---- how fast ----------------------------------------------------------------------------------


def test_products_of_every_library_are_right_and_ranked(libraries, built, tmp_path):
    chosen = [libraries[name] for name in NAMES if name in libraries] + [godwit.backend.find(str(built / "libwrong.so"))]
    result = bench.run("gemm", chosen, bench.parse_shapes("gemm", "48,96x20x60"), ("float32", "float64"), (1,), 2, 0.001, torch=False)
    wrong = {row.library for row in result.rows if not row.correct}
    assert wrong == {"libwrong.so"}
    ranking = [name for name, _ in result.ranking()]
    assert "libwrong.so" not in ranking and len(ranking) == len(chosen) - 1
    if "openblas-serial" in ranking:
        assert ranking.index("openblas-serial") < ranking.index("reference")
    assert all(row.share > 0 for row in result.rows if row.correct)
    picture = plot.svg(result)
    words = [element.text for element in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert {"48", "96x20x60", *ranking} <= set(words) and any("WRONG" in word for word in words)
    assert "not ranked, because something failed or was wrong: libwrong.so" in bench.table(result)


def test_shapes_are_read_and_refused():
    shape = bench.conv_shape("8x64x56x28,32x3x5,s2,d1x2,g4")
    assert shape.key == ((8, 64, 56, 28, 32, 3, 5), (2, 2), (1, 4), (1, 2), 4)
    assert len(bench.parse_shapes("conv2d", None)) == len(bench.RESNET_50)
    for text in ("512x", "0", "2x3", "a"):
        with pytest.raises(ValueError):
            bench.gemm_shape(text)
    for text in ("1x2x3", "1x3x4x4,2x1x1,g2", "1x1x2x2,1x5x5,p0", "1x1x2x2,1x1x1,s0"):
        with pytest.raises(ValueError):
            bench.conv_shape(text)


# ---- switched ----------------------------------------------------------------------------------


def network():
    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2, groups=2), nn.ReLU(),
                         nn.ConvTranspose2d(8, 4, 3, stride=2), nn.Flatten(), nn.Linear(4 * 15 * 15, 10))


def train(steps=5):
    model, losses = network(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x = torch.randn(8, 3, 16, 16, generator=generator)
        y = torch.randint(0, 10, (8,), generator=generator)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", NAMES)
def test_a_network_trains_to_the_same_losses(libraries, name):
    expected = train()
    with godwit.backend.use(library(libraries, name).path) as blas:
        losses = train()
    assert losses == pytest.approx(expected, rel=1e-4)
    # 3 convolutions and a linear layer; the first layer's input needs no gradient.
    assert blas.calls["convolution"] == 15 and blas.calls["convolution_backward"] == 15
    assert blas.calls["addmm"] == 5 and blas.calls["mm"] == 10
    assert not blas.passed and blas.products >= sum(blas.calls.values())
    done = blas.products
    assert train() == expected and blas.products == done  # nothing is left of it


@pytest.fixture(params=["tiny", "tiny64"])
def tiny(request, built):
    """A BLAS with integers of 32 and of 64 bits."""
    with godwit.backend.use(str(built / f"lib{request.param}.so")) as blas:
        yield blas


def exact(function, *tensors):
    """The same in float64, without us."""
    doubles = [t.double() if isinstance(t, torch.Tensor) else t for t in tensors]
    return function(*[t.numpy() if isinstance(t, torch.Tensor) else t for t in doubles])


def close(result, expected):
    return numpy.allclose(result.detach().numpy(), expected, rtol=1e-5, atol=1e-5)


def test_products_of_any_strides_and_sizes(tiny):
    a, b = torch.randn(6, 8), torch.randn(8, 10)
    for x in (a, a.t().contiguous().t(), a[::2], a[:, ::2], a[:1].expand(5, 8), a[:0], a[:, :0], a[:1], a[:, :1]):
        for y in (b, b.t().contiguous().t(), b[:, ::3], b[:, :1], b[:, :0], b[:, :1].expand(8, 4)):
            y = y[:x.shape[1]]
            assert close(x @ y, x.numpy().astype("f8") @ y.numpy().astype("f8"))
    assert tiny.calls["mm"] == 54 and not tiny.passed
    s, t = torch.randn(3, 4, 5), torch.randn(3, 5, 2)
    assert close(torch.bmm(s, t), exact(numpy.matmul, s, t))
    assert close(torch.bmm(s.transpose(0, 1).contiguous().transpose(0, 1), t), exact(numpy.matmul, s, t))
    assert close(torch.nn.functional.linear(torch.randn(4), torch.eye(4)), torch.nn.functional.linear(torch.zeros(4), torch.eye(4))) is False
    v = torch.randn(8)
    assert close(torch.mv(a, v), exact(numpy.matmul, a, v))
    assert close(torch.addmv(torch.ones(6), a, v, alpha=2, beta=3), 3 + 2 * exact(numpy.matmul, a, v))


def test_forms_that_add_and_that_write_in_place(tiny):
    a, b, c = torch.randn(3, 4), torch.randn(4, 5), torch.randn(3, 5)
    product = exact(numpy.matmul, a, b)
    assert close(torch.addmm(c, a, b, beta=0.5, alpha=2), 0.5 * c.numpy() + 2 * product)
    assert close(torch.addmm(c[0], a, b), c[0].numpy() + product)
    assert close(torch.addmm(torch.full((3, 5), float("nan")), a, b, beta=0), product)
    out = torch.empty(5, 3).t()
    assert torch.mm(a, b, out=out) is out and close(out, product)
    every = torch.zeros(3, 10)
    torch.mm(a, b, out=every[:, ::2])
    assert close(every[:, ::2], product) and every[:, 1::2].abs().max() == 0
    d = c.clone()
    assert d.addmm_(a, b, beta=2) is d and close(d, 2 * c.numpy() + product)
    square = torch.randn(4, 4)
    expected = exact(numpy.matmul, square, square)
    assert close(torch.mm(square, square, out=square), expected)  # over its own input
    s, t, u = torch.randn(2, 3, 4), torch.randn(2, 4, 5), torch.randn(2, 3, 5)
    assert close(torch.baddbmm(u, s, t, beta=3), 3 * u.numpy() + exact(numpy.matmul, s, t))
    assert close(u.clone().baddbmm_(s, t, alpha=-1), u.numpy() - exact(numpy.matmul, s, t))
    assert not tiny.passed
    with pytest.raises(RuntimeError):
        torch.mm(a, a)
    with pytest.raises(RuntimeError):
        torch.addmm(torch.zeros(7), a, b)


def test_what_is_not_ours_goes_its_own_way(tiny):
    whole = torch.arange(12).view(3, 4)
    assert torch.equal(whole @ whole.t(), torch.tensor([[14, 38, 62], [38, 126, 214], [62, 214, 366]]))
    for dtype in (torch.bfloat16, torch.complex64):
        x = torch.ones(4, 4, dtype=dtype)
        assert (x @ x == 4).all()
        assert (torch.baddbmm(x[None], x[None], x[None]) == 5).all()
    assert torch.conv2d(torch.ones(1, 1, 3, 3, dtype=torch.bfloat16), torch.ones(1, 1, 3, 3, dtype=torch.bfloat16)).item() == 9
    assert torch.conv1d(torch.ones(1, 2, 5), torch.ones(3, 2, 2)).sum() == 48
    assert (torch.eye(4).to_sparse() @ torch.ones(4, 4) == 1).all()
    meta = torch.empty(3, 4, device="meta")
    assert (meta @ meta.t()).shape == (3, 3)
    x = torch.ones(2, 1, 4, requires_grad=True)
    torch.conv1d(x, torch.ones(1, 1, 2)).sum().backward()
    assert x.grad.sum() == 12
    reasons = {reason for _, reason in tiny.passed}
    assert {"dtype int64", "dtype bfloat16", "dtype complex64", "layout torch.sparse_coo", "device meta",
            "1-D convolution"} <= reasons
    z = torch.randn(4, 4, dtype=torch.complex64).conj().imag  # a minus sign that lives in a bit
    assert z.is_neg() and close(z @ z, exact(numpy.matmul, z.resolve_neg(), z.resolve_neg()))


@pytest.mark.parametrize("options", [{}, {"stride": (2, 1), "padding": (1, 2)}, {"dilation": 2, "padding": 2},
                                     {"groups": 2, "stride": 2}])
@pytest.mark.parametrize("transposed", [False, True])
def test_derivatives_of_convolutions(tiny, options, transposed):
    torch.manual_seed(0)
    x = torch.randn(2, 4, 5, 6, dtype=torch.float64, requires_grad=True)
    w = torch.randn(4, 4 // options.get("groups", 1), 3, 2, dtype=torch.float64, requires_grad=True)
    b = torch.randn(w.shape[1] * options.get("groups", 1) if transposed else 4, dtype=torch.float64, requires_grad=True)
    function = torch.conv_transpose2d if transposed else torch.conv2d
    assert torch.autograd.gradcheck(lambda *a: function(*a, **options), (x, w, b))
    last = x.detach().contiguous(memory_format=torch.channels_last)
    result = function(last, w, b, **options)
    assert result.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(result, function(x, w, b, **options)) and not tiny.passed


def test_blocks_nest_and_end_in_any_way(built):
    a = torch.ones(3, 3)
    with godwit.backend.use(str(built / "libtiny.so")) as outer:
        with pytest.raises(KeyError), godwit.backend.use(str(built / "libwrong.so")) as inner:
            assert (a @ a == 4).all()  # it is off by one: so it was really asked
            raise KeyError
        assert (a @ a == 3).all()
    a @ a
    assert (inner.calls["mm"], outer.calls["mm"]) == (1, 1)
    with pytest.raises(ValueError):
        godwit.backend.use(str(built / "libtiny.so"), threads=0)


def test_numpys_products_are_routed_and_given_back(built):
    rng = numpy.random.default_rng(0)
    for dtype in ("f4", "f8"):
        a, b = rng.standard_normal((7, 5)).astype(dtype), rng.standard_normal((5, 6)).astype(dtype)
        own = a @ b
        with godwit.backend.use(str(built / "libwrong.so")) as blas:
            if blas.numpy != "routed":
                assert "not routed" in blas.numpy
                return
            assert numpy.allclose(a @ b, own + 1, atol=1e-5) and numpy.allclose(numpy.dot(b.T, a.T), own.T + 1, atol=1e-5)
        assert blas.products == 2 and numpy.array_equal(a @ b, own)


# ---- profiles ----------------------------------------------------------------------------------


def calls_of(result, name="called_tick"):
    return sum(function.calls for function in result.run.functions if function.name == name)


def count(built, *arguments, hz=0, **environment):
    os.environ.update(environment)
    try:
        return profile([str(built / "caller"), *arguments], ["libcalled"], hz=hz)
    finally:
        for name in environment:
            del os.environ[name]


def test_calls_of_threads_and_forked_children_are_counted_exactly(built):
    result = count(built, "threads", "1000000", hz=250)
    assert result.exit_code == 0 and calls_of(result) == 8_000_000
    assert sorted(sum(b.calls for b in p.bindings) for p in result.run.processes) == [2_000_000, 2_000_000, 4_000_000]
    function, = (f for f in result.run.functions if f.name == "called_tick")
    assert function.callers == {"caller": 8_000_000} and set(function.sites) == {("caller", "call")}
    assert 0 <= result.call_ns < 100


def test_time_goes_to_the_function_that_spends_it(built):
    result = count(built, "time", "1.2", hz=250)
    times = {f.name: f.total_samples for f in result.run.functions}
    total = times["called_eighty"] + times["called_twenty"]
    assert total > 100
    assert abs(100 * times["called_eighty"] / total - 80) < 3 and abs(100 * times["called_twenty"] / total - 20) < 3


@pytest.mark.parametrize("mode, calls, code", [("crash", 5000, -11), ("kill", 5000, -9), ("exit", 5000, 7),
                                               ("exec", 10000, 0), ("churn", 5000, 0), ("profhandler", 5000, 0)])
def test_programs_that_end_strangely_are_counted_to_the_end(built, mode, calls, code):
    result = count(built, mode, "5000", hz=250)
    assert (result.exit_code, calls_of(result)) == (code, calls)
    assert len(result.run.processes) == (2 if mode == "exec" else 1)
    if mode == "crash":
        assert "ended by signal 11" in report.table(result)
    if mode == "profhandler":
        assert "handles SIGPROF itself" in report.table(result)
    if mode == "churn":  # blocks of threads that have ended are used again
        assert not any(result.run.processes[0].lost.values())


def test_libraries_that_are_opened_and_closed_all_the_time(built, tmp_path):
    copy = tmp_path / "libcalled-again.so"
    shutil.copy(built / "libcalled.so", copy)
    result = count(built, "dlopen", "3000", hz=250, LIBRARY=str(copy))
    assert result.exit_code == 0 and calls_of(result) == 3000
    assert not any(result.run.processes[0].lost.values())


def test_any_program_and_what_it_says(built, tmp_path):
    result = profile([str(built / "caller"), "plain", "1000"], [str(built / "libcalled.so")])
    table = report.table(result)
    assert "called_tick" in table and "1,000" in table and "not counted: calls inside a library" in table
    assert "overhead:" in table and "ns a call" in table
    report.write_json(result, str(tmp_path / "p.json"))
    saved = json.loads((tmp_path / "p.json").read_text())
    assert saved["functions"][0]["calls"] == 1000 and saved["functions"][0]["callers"] == {"caller": 1000}
    report.write_page(result, str(tmp_path / "p.html"))
    assert "called_tick" in (tmp_path / "p.html").read_text()
    nothing = profile([str(built / "caller"), "plain", "10"], ["libnosuch"])
    assert "no library whose name begins with libnosuch was loaded" in report.table(nothing)
    with pytest.raises(FileNotFoundError):
        profile(["no-such-program"], ["libc"])
    with pytest.raises(ValueError):
        profile([str(built / "caller")], [])


def test_what_is_called_before_the_program_begins_costs_no_timer(built):
    """The loader calls the C library's allocator long before there is anybody to take a tick."""
    result = profile([str(built / "caller"), "plain", "1000"], ["libc.so"], hz=250)
    assert not any(result.run.processes[0].lost.values()) and not result.run.processes[0].sampler_gone


def test_programs_that_nothing_can_be_put_into_are_refused(built, tmp_path, monkeypatch):
    source = tmp_path / "nothing.c"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run(["cc", "-static", source, "-o", tmp_path / "alone"], check=True)
    with pytest.raises(godwit.Unsupported, match="alone' is linked statically"):
        profile([str(tmp_path / "alone")], ["libc.so"])
    subprocess.run(["cc", source, "-o", tmp_path / "trusted"], check=True)
    (tmp_path / "trusted").chmod(0o4755)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(godwit.Unsupported, match="trusted' runs with another user's rights"):
        profile([str(tmp_path / "trusted")], ["libc.so"])


def test_damaged_records_are_refused(built, tmp_path):
    keep = tmp_path / "records"
    profile([str(built / "caller"), "plain", "100"], ["libcalled"], directory=str(keep))
    file, = keep.iterdir()
    start = bytearray(file.open("rb").read(1 << 20))
    for cut in (0, 100, 4096, 1 << 20):
        (tmp_path / "cut").write_bytes(start[:cut])
        with pytest.raises(records.BrokenRecord):
            records.read(str(tmp_path / "cut"))
    for at in range(0, 400, 4):
        changed = bytearray(start)
        changed[at:at + 4] = b"\xff\xff\xff\x7f"
        with open(tmp_path / "changed", "wb") as out:
            out.write(changed)
            out.truncate(file.stat().st_size)
        try:
            records.read(str(tmp_path / "changed"))
        except records.BrokenRecord:
            pass


def test_a_profile_proves_which_sgemm_was_called(libraries, tmp_path):
    path = library(libraries, "openblas-serial").path
    code = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import godwit.backend
from test_backend import train
with godwit.backend.use({path!r}) as blas:
    train()
with open(os.environ["PRODUCTS"], "w") as file:
    file.write(str(blas.products))
"""
    script = tmp_path / "train.py"
    script.write_text(code)
    os.environ["PRODUCTS"] = str(tmp_path / "products")
    try:
        result = profile([sys.executable, str(script)], ["libopenblas", "libblas"])
    finally:
        del os.environ["PRODUCTS"]
    assert result.exit_code == 0
    products = int((tmp_path / "products").read_text())
    counted = sum(n for f in result.run.functions if f.name == "sgemm_" for caller, n in f.callers.items()
                  if caller.startswith("libgodwit"))
    assert counted == products > 0
    # Nobody else multiplied: neither the system's BLAS nor PyTorch's own was reached.
    assert sum(f.calls for f in result.run.functions if f.name == "sgemm_") == products


@pytest.mark.skipif(not OLD, reason="this PyTorch contains its BLAS")
def test_debians_pytorch_is_seen_to_call_the_systems_blas(tmp_path):
    script = tmp_path / "products.py"
    script.write_text("import torch\nfor _ in range(7): torch.mm(torch.ones(64, 64), torch.ones(64, 64))\n")
    result = profile([sys.executable, str(script)], ["libblas", "libopenblas", "libblis"])
    counted = {caller: n for f in result.run.functions if f.name == "sgemm_" for caller, n in f.callers.items()}
    assert [n for caller, n in counted.items() if caller.startswith("libtorch_cpu")] == [7]


@pytest.mark.skipif(OLD, reason="of the newer PyTorch")
def test_the_newer_pytorch_calls_the_mkl_that_it_contains(tmp_path):
    script = tmp_path / "products.py"
    script.write_text("import torch\nfor _ in range(7): torch.mm(torch.ones(64, 64), torch.ones(64, 64))\n")
    result = profile([sys.executable, str(script)], ["libtorch_cpu"])
    names = {f.name: f for f in result.run.functions}
    mm = names["_ZN2at4_ops2mm4callERKNS_6TensorES4_"]  # at::_ops::mm::call
    assert mm.callers == {"libtorch_python.so": 7}
    assert names["sgemm_"].callers == {"libtorch_cpu.so": 7}  # through its own PLT
    assert not any(process.lost["bindings"] for process in result.run.processes)


# ---- the commands ------------------------------------------------------------------------------


def godwit_command(*words, expect=0):
    done = subprocess.run([sys.executable, "-m", "godwit", *words], capture_output=True, text=True, timeout=100)
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout, done.stderr


def test_run_with_another_blas(built, tmp_path):
    script = tmp_path / "program.py"
    script.write_text("import sys, torch\nprint((torch.ones(2, 2) @ torch.ones(2, 2)).tolist(), sys.argv[1:], __name__)\n")
    out, err = godwit_command("run", "--blas", str(built / "libwrong.so"), str(script), "a", "-b")
    assert out == "[[3.0, 3.0], [3.0, 3.0]] ['a', '-b'] __main__\n" and "libwrong.so" in err
    _, err = godwit_command("run", "--blas", "nosuch", str(script), expect=1)
    assert "there is no BLAS 'nosuch'" in err
    _, err = godwit_command("run", "--blas", str(built / "libtiny.so"), "ls", expect=1)
    assert "routes Python programs" in err


def test_list_bench_and_profile_on_the_command_line(built, tmp_path):
    out, _ = godwit_command("backend", "list", "--quick", "--json")
    assert all(one["path"].startswith("/") and one["int_bits"] in (32, 64) for one in json.loads(out))
    picture = tmp_path / "plot.svg"
    out, _ = godwit_command("backend", "bench", "gemm", "--shapes", "32", "--lib", str(built / "libtiny.so"), "--threads", "1",
                            "--repeats", "2", "--seconds", "0", "--no-torch", "--plot", str(picture))
    assert "GFLOP/s" in out and " ok" in out and ElementTree.parse(picture)
    out, _ = godwit_command("backend", "bench", "conv2d", "--shapes", "1x2x6x6,3x3x3", "--lib", str(built / "libwrong.so"),
                            "--threads", "1", "--repeats", "1", "--seconds", "0", "--no-torch", expect=1)
    assert "WRONG" in out
    _, err = godwit_command("backend", "bench", "gemm", "--shapes", "x", expect=1)
    assert "the shape of a product" in err
    for option, name, reason in (("--plot", "picture.png", "must end in .svg"), ("--plot", "/no/folder/p.svg", "'/no/folder' is no folder"),
                                 ("--json", "/no/folder/figures", "'/no/folder' is no folder")):
        _, err = godwit_command("backend", "bench", "gemm", option, name, expect=1)  # at once, not after all the measuring
        assert reason in err
    _, err = godwit_command("profile", "--lib", "libcalled", "--", str(built / "caller"), "crash", "10", expect=139)
    assert "called_tick" in err
