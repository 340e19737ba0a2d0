# Short names for what CMake does. `make help` lists them.
BUILD ?= build
PREFIX ?= /usr/local
CMAKE_FLAGS ?=
# CUDA kernels: none, native (this machine's GPUs), all, or capabilities such as 8.6,9.0; empty: native where there is a GPU.
CUDA ?=
FLAGS = -DMO_CUDA=$(CUDA) $(CMAKE_FLAGS)

.PHONY: all program everything demo test check sanitize sweep lint bench peer fuzz gpu-test gpu-bench soak soak-server soak-page pictures install deb tarball release release-test cross setup clean help

all: ## build the program (build/moraine), the library and the manual; CUDA=none|native|all|8.6,9.0 decides about kernels
	@tools/setup.sh build
	@MO_TARGETS="moraine-cli moraine-shared manual" tools/build.sh $(BUILD) -DBUILD_TESTING=OFF $(FLAGS)

program:
	@tools/setup.sh build
	@MO_TARGETS=moraine-cli tools/build.sh $(BUILD) -DBUILD_TESTING=OFF $(FLAGS)

everything: ## build tests and benchmarks too (build/tests, build/bench)
	@tools/setup.sh check
	@tools/build.sh $(BUILD) -DBUILD_TESTING=ON $(FLAGS)

demo: program ## build the program and show what it does, on this machine
	@tools/demo.sh $(BUILD)

test: ## the tests: native, with sanitizers, the other architecture under qemu, lint
	@tools/setup.sh test
	@tools/test.sh all

check: ## the fast subset, under one minute
	@tools/setup.sh check
	@tools/test.sh quick

sanitize: ## every test program under the address sanitizer, and those with threads under the thread sanitizer
	@tools/setup.sh test
	@tools/test.sh sanitize

sweep: everything ## all combinations of which the tests take a sample, continued after an interruption (SEED=1, PROGRAMS="test_gpu test_store")
	@SEED=$(SEED) tools/sweep.sh $(BUILD) $(PROGRAMS)

lint: ## clang-format, order of the modules, file names in the documentation, clang-tidy with its analyzer on every file, cppcheck
	@tools/setup.sh test
	@tools/lint.sh

bench: everything ## speed of the numeric core: table on stdout, JSON in build/bench.json
	@$(BUILD)/bench/bench_core --json $(BUILD)/bench.json

peer: all ## the server beside llama-server (a build of it named by LLAMA_SERVER) on this machine
	@bench/server.sh

fuzz: ## ten minutes of libFuzzer on the container reader, less on texts (FUZZ_SECONDS=600)
	@tools/setup.sh test
	@tools/fuzz.sh $${FUZZ_SECONDS:-600}

gpu-test: everything ## the device suites on this machine's GPU
	@tools/gpu-test.sh $(BUILD)

gpu-bench: everything ## speed of whole models on this machine's GPU (makes about 150 GB of models in GPU_MODELS_DIR)
	@bench/gpu.sh $(BUILD) $${GPU_MODELS_DIR:-$(BUILD)/models}

soak: soak-server soak-page ## both of these

soak-server: all ## many requests of every kind to a server, which may not grow (SOAK_REQUESTS=100000), then all that clients do, with faults (SOAK_MINUTES=60)
	@MO_SOAK=$${SOAK_REQUESTS:-100000} tests/test_server.py $(BUILD) nothing_grows_with_requests
	@tests/soak_server.py $(BUILD)

soak-page: all ## an hour of the page, which may neither grow nor slow; build/page/soak.txt as it goes (SOAK_MINUTES=60)
	@MO_SOAK=$${SOAK_MINUTES:-60} tests/test_page.py $(BUILD) views.js "a page that is left open does not grow"

pictures: all ## the pictures of the documentation anew (needs Chromium and npm)
	@tools/pictures.py $(BUILD)

install: all ## install to PREFIX (default /usr/local); honours DESTDIR
	@cmake --install $(BUILD) --prefix $(PREFIX)
	@[ ! -e $(BUILD)/moraine-mpi.so ] || cmake --install $(BUILD) --prefix $(PREFIX) --component mpi

deb: ## Debian packages, in build/deb
	@tools/setup.sh package
	@CMAKE_FLAGS="$(CMAKE_FLAGS)" tools/deb.sh $(BUILD)/deb

tarball: all ## the program with its libraries, in build
	@tools/tarball.sh $(BUILD) $(BUILD)

release: ## tarball, Debian packages, container image and checksums in build-release/release, with kernels for all GPUs where there is an nvcc
	@tools/setup.sh release
	@CUDA=$(CUDA) tools/release.sh build-release/release build-release

release-test: ## starts each of them in a bare root directory (needs root)
	@tools/setup.sh release
	@tests/release.sh build-release/release

cross: ## build for the other architecture (x86-64 <-> aarch64), in build-cross
	@tools/setup.sh test
	@tools/build.sh build-cross -DMO_CUDA=none $$(tools/cross.sh flags)

clean: ## remove every build directory
	@rm -rf build build-*

help:
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20
