# The front doors.  `make` alone lists them; meson does the building, tools/ the rest.
# Nothing needs to be prepared: each target first sets up what it lacks (tools/setup.sh).
SHELL := /bin/bash
.DEFAULT_GOAL := help
.SUFFIXES:

PREFIX ?= /usr/local
DESTDIR ?=
STAGES ?=
BENCH ?=
FUZZ_SECONDS ?= 600
STRESS_SECONDS ?= 60
SEEDS ?= 1000000
CHECKPOINT_KILLS ?= 200

MEMORY_CASES ?= 100
PROG ?= apps/conv2d_example.py
ARGS ?=

bin := .venv/bin

.PHONY: help demo build test test-faults test-jobs test-starts test-dropin test-programs test-checkpoints test-stress test-memory \
	test-peers test-asan test-tsan test-clang sim-scale sim-campaign fuzz bench report backends backends-remove blas-profile \
	torch-profile format install uninstall clean

help: ## show this list
	@echo "Godwit $$(cat VERSION): distributed memory for PyTorch"
	@echo
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1\t\2/p' Makefile | while IFS=$$'\t' read -r target text; do \
		printf '  make %-12s %s\n' "$$target" "$$text"; done
	@echo
	@echo "Parts and options:"
	@echo "  make test STAGES=\"unit asan\"   make bench BENCH=\"fabric -- --quick\"   make install PREFIX=/opt/godwit"

demo: build ## install what is missing, build, and let 4 processes learn a knowledge graph
	@$(bin)/godwit run -n 4 --node-size 2 apps/kge --config apps/kge/configs/demo.json --output build/demo

build: ## make .venv/bin/python and .venv/bin/godwit, with both MPIs where they can be had
	@tools/setup.sh build

test: ## set up, then run all tests; the last line counts them
	@tools/setup.sh test || { echo "0 passed, 1 failed"; exit 1; }
	@$(bin)/python tools/test.py $(STAGES)

test-faults: build ## kill -9 of a random rank at a random moment, 200 times, and as often amid traffic of parameters
	@GODWIT_FAULT_RUNS=200 $(bin)/python -m pytest -q -p no:cacheprovider tests/jobs/test_faults.py

test-starts: build ## 500 starts of a job of 8 processes with parameters on several nodes
	@GODWIT_STARTS=500 $(bin)/python -m pytest -q -s -p no:cacheprovider tests/jobs/test_starts.py

test-jobs: build ## all tests of whole jobs, also those that make test leaves out
	@GODWIT_ALL_JOBS=1 $(bin)/python -m pytest -q -p no:cacheprovider --durations=20 --timeout=300 tests/jobs

test-dropin: build ## the examples for AdaPM and Lapse as they are, 100 runs each
	@GODWIT_DROPIN_RUNS=100 $(bin)/python -m pytest -q -s -p no:cacheprovider -k examples tests/jobs/test_dropin_params.py

test-programs: build ## random programs of collectives and messages against one process, 1,000 of them
	@GODWIT_RANDOM_PROGRAMS=1000 $(bin)/python -m pytest -q -p no:cacheprovider tests/jobs/test_comm_programs.py

test-checkpoints: ## kill -9 at 200 random moments of saving parameters (CHECKPOINT_KILLS=...); full disks
	@tools/setup.sh test
	@GODWIT_KILLS=$(CHECKPOINT_KILLS) $(bin)/python tools/test.py checkpoints

test-stress: ## parameters: every number of processes and threads, 60 s each (STRESS_SECONDS=...)
	@tools/setup.sh test
	@GODWIT_STRESS_SECONDS=$(STRESS_SECONDS) $(bin)/python tools/test.py stress

test-memory: build ## whole memory: random programs on every fabric and node size, 2.4 GiB in one copy, optimizers (MEMORY_CASES=...)
	@GODWIT_ALL_JOBS=1 GODWIT_MEMORY_CASES=$(MEMORY_CASES) $(bin)/python -m pytest -q -p no:cacheprovider tests/jobs/test_memory.py

test-peers: ## build mpi4torch in build/peers, run its tests on Godwit, compare values and gradients
	@tools/setup.sh test
	@$(bin)/python tools/peers.py

test-asan: ## the C unit tests under AddressSanitizer and UBSan
	@tools/setup.sh test
	@$(bin)/python tools/test.py asan

test-tsan: ## the C unit tests under ThreadSanitizer
	@tools/setup.sh test
	@$(bin)/python tools/test.py tsan

test-clang: ## build everything with gcc and with clang, warnings being errors
	@tools/setup.sh test
	@$(bin)/python tools/test.py warnings

sim-scale: ## the parameter protocol on 8 to 1,024 simulated nodes; figures and picture go to docs/ (4 GB, minutes)
	@tools/setup.sh test
	@tools/sim.sh scale

sim-campaign: ## a million random jobs of the parameter protocol under simulation (SEEDS=...)
	@tools/setup.sh test
	@tools/sim.sh campaign --seeds $(SEEDS)

fuzz: ## feed made-up input to every decoder for 10 minutes (FUZZ_SECONDS=...)
	@tools/setup.sh test
	@$(bin)/python tools/fuzz.py --seconds $(FUZZ_SECONDS)

bench: build ## measure against Open MPI, MPICH and the machine's limits, in the same run
	@tools/bench.sh $(BENCH)

report: build ## run the benchmarks, all or BENCH="...", and put what they print into docs/benchmarks.md
	@$(bin)/python tools/report.py $(BENCH)

backends: ## install Debian's OpenBLAS (3 threadings), BLIS, ATLAS and reference BLAS side by side
	@tools/backends.sh install

backends-remove: ## take away what `make backends` installed
	@tools/backends.sh remove

blas-profile: build ## who calls the BLAS in PROG=program.py, how often, and the time
	@$(bin)/godwit profile --lib libopenblas --lib libblas --lib libblis --lib libmkl --html build/blas-profile.html -- $(PROG) $(ARGS)
	@echo "the page: build/blas-profile.html"

torch-profile: build ## the same for PyTorch's own library below Python
	@$(bin)/godwit profile --lib libtorch_python --html build/torch-profile.html -- $(PROG) $(ARGS)
	@echo "the page: build/torch-profile.html"

format: ## lay out the C files as .clang-format says
	@tools/setup.sh format
	@find include src tests bench apps -name '*.[ch]' -exec clang-format -i {} +

install: ## install library, headers, pkg-config file and Python package below PREFIX
	@tools/setup.sh venv
	@tools/install.sh install "$(PREFIX)" "$(DESTDIR)"

uninstall: ## remove what install put there
	@tools/setup.sh venv
	@tools/install.sh uninstall "$(PREFIX)" "$(DESTDIR)"

clean: ## remove build/ (.venv stays; it is a directory like any other)
	rm -rf build
