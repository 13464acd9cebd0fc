# The two commands for a newcomer are `make demo` and `make test`; `make help` lists the others.
# scripts/setup fetches what is missing. CMake does the building: `cmake --preset default && cmake --build build`.
.PHONY: help demo test package gpu-check bench docs format lint clean
.DEFAULT_GOAL := help

JOBS ?= $(shell scripts/jobs)
DEMO_ARGUMENTS ?= --output-dir out/demo

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' Makefile

demo: ## Set up, build what the demo needs, and train a small network on two processes
	@JOBS=$(JOBS) scripts/setup demo
	@echo "== compiling the launcher, the library and one trainer (about 3 minutes on two cores)"
	@cmake --preset default
	@cmake --build build --target demo -j $(JOBS)
	@echo "== training on two processes"
	build/bin/lockstep run --nproc-per-node 2 build/bin/image_classification $(DEMO_ARGUMENTS)

test: ## Set up, build everything, and run every test
	@JOBS=$(JOBS) scripts/setup test
	@echo "== compiling everything (about 15 minutes on two cores)"
	@cmake --preset tests
	@cmake --build build -j $(JOBS)
	@echo "== running every test (about 11 minutes)"
	@status=0; ctest --preset tests -j $$(($(JOBS) * 2)) || status=$$?; scripts/slowest_tests; exit $$status

package: ## Build a Python wheel, a tarball and a Debian package into build/packages
	@JOBS=$(JOBS) scripts/setup package
	@echo "== compiling the launcher, the libraries and all programs (about 15 minutes on two cores)"
	@cmake --preset default
	@cmake --build build -j $(JOBS)
	@scripts/make_packages build build/packages

gpu-check: ## Build build/gpu-check, a folder that tests Lockstep on another machine's GPUs
	@JOBS=$(JOBS) scripts/setup package
	@echo "== compiling the launcher, the libraries and the tests for GPUs (about 15 minutes on two cores)"
	@cmake --preset tests
	@cmake --build build --target gpu_check -j $(JOBS)
	@scripts/make_gpu_check build build/gpu-check

bench: ## Measure Lockstep beside its peers: tables and plots in bench/ (QUICK=1, ONLY=launch,save, COMPARE=BUILD_OR_COMMIT)
	@JOBS=$(JOBS) scripts/setup test
	@echo "== compiling what is measured (about 10 minutes on two cores)"
	@cmake --preset tests
	@cmake --build build -j $(JOBS) --target $$(python3 -B tests/benchmarks/bench.py --targets --only "$(ONLY)")
	@python3 -B tests/benchmarks/bench.py --only "$(ONLY)" $(if $(QUICK),--quick) $(if $(COMPARE),--compare $(COMPARE))

docs: ## Write the API reference of headers and pages, with a search that works offline, into build/reference/html
	@scripts/setup docs
	@scripts/make_reference.py build/reference

format: ## Format the C++ sources with clang-format
	@scripts/setup tools
	@git ls-files '*.cpp' '*.hpp' | xargs clang-format -i

lint: ## Run clang-tidy on the sources (FILES="src/a.cpp ..." for some of them)
	@scripts/setup tools
	@scripts/lint $(FILES)

clean: ## Remove the build folders and the output of demo and benchmarks; .venv is kept
	@rm -rf build build-* out bench
