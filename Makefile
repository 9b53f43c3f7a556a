# make demo   compare zone attachment methods on this machine: about 4 minutes to build, 2 to 3 to measure
# make test   run all tests; requires root, for namespaces. PART="unit kernel" selects parts (see CONTRIBUTING.md)
# make crash  kill vtax before each call that changes something (STEP=10: every tenth); requires root, takes long
# make kernel unpack a kernel for guests into the cache (nothing is installed)
# make soak   run labs, guests and runs for an hour and kill most of them (MINUTES=60); requires root
# make install  install vtax, its agent, manual pages and completions in PREFIX=/usr/local (DESTDIR for packages)
# make deb      build a Debian package of the same: target/vtax_VERSION_ARCHITECTURE.deb
# make image    build an image archive of both programs for Podman, Docker and containerd: target/vtax_VERSION_ARCHITECTURE.oci.tar
# make pods   measure between pods of a real Kubernetes cluster of two nodes on this machine, and run the study `pods`
#             there; requires root and Go, and builds the cluster's programs once (20 minutes of CPU time)
# make lint   check formatting, wording, clippy, documentation
# make bench  compare our engines with iperf3, sockperf and qperf and with each other, compare labs with
#             the `ip` command, measure the cost of a guest and of the emulated server; requires root
# make fuzz   fuzz all parsers of untrusted input with libFuzzer, and update the corpus; takes hours
#             (RUNS=1000000 for fewer inputs, TARGETS="fuzz_studies fuzz_orders" for some targets)

TARGET  := $(shell rustc --print host-tuple 2>/dev/null)
DEBUG   := target/$(TARGET)/debug
RELEASE := target/$(TARGET)/release
SUITE   := VTAX_AGENT=$(CURDIR)/$(RELEASE)/vtax-agent RUSTDOCFLAGS="-D warnings" \
    cargo run --quiet --locked --package vtax-suite --

RUNS    := 10000000

.PHONY: demo test crash soak pods install deb image lint bench fuzz build kernel agent

# Uses the tests' profile, which compiles fast; only the measurement and chart code is optimized (see Cargo.toml).
demo:
	sh scripts/setup.sh build
	cargo build --locked --package vtax --package vtax-agent
	$(DEBUG)/vtax demo
	@echo 'The program is $(DEBUG)/vtax; `make install` builds an optimized one and installs it.'

build:
	sh scripts/setup.sh build
	cargo build --locked --release --package vtax
	$(MAKE) agent

kernel:
	sh scripts/setup.sh kernel

test:
	sh scripts/setup.sh test
	$(SUITE) $(PART)

STEP := 1
crash:
	sh scripts/setup.sh test
	$(MAKE) agent
	VTAX_CRASH=$(STEP) VTAX_AGENT=$(CURDIR)/$(RELEASE)/vtax-agent \
	    cargo test --locked --workspace --test kernel --test emulated -- crash --nocapture --test-threads=1

MINUTES := 60
soak: build
	VTAX_AGENT=$(CURDIR)/$(RELEASE)/vtax-agent bash scripts/soak.sh $(MINUTES) $(RELEASE)/vtax

pods: build
	sh scripts/setup.sh pods
	bash scripts/pods.sh $(RELEASE)/vtax $(RELEASE)/vtax-agent

PREFIX := /usr/local
install: build
	sh scripts/install.sh $(RELEASE)/vtax $(RELEASE)/vtax-agent $(DESTDIR)$(PREFIX)

deb: build
	sh scripts/deb.sh $(RELEASE)/vtax $(RELEASE)/vtax-agent target

image: build
	sh scripts/image.sh $(RELEASE)/vtax $(RELEASE)/vtax-agent target

agent:
	sh scripts/agent.sh

lint:
	sh scripts/setup.sh build
	$(SUITE) lint

fuzz:
	sh scripts/setup.sh fuzz
	sh scripts/fuzz.sh $(RUNS) $(TARGETS)

bench: build
	sh scripts/setup.sh bench
	$(RELEASE)/vtax crosscheck --rounds 13
	VTAX_AGENT=$(CURDIR)/$(RELEASE)/vtax-agent cargo bench --locked --package vtax --bench recording --bench results --bench engines --bench labs --bench guests --bench server --bench domains
	cargo bench --locked --package vtax-console --bench consoles
	cargo bench --locked --package vtax-disk --bench disks
