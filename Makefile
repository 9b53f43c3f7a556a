# make demo   compare zone attachment methods on this machine: builds for about 4 minutes, measures for 2 to 3
# make test   run all tests; needs root, for namespaces. PART="unit kernel" runs some parts (see CONTRIBUTING.md)
# make crash  vtax killed before each call that changes something (STEP=10: each tenth); needs root, takes long
# make kernel a kernel for guests, unpacked into the cache (nothing is installed)
# make soak   labs, guests and runs for an hour, most of them killed (MINUTES=60); needs root
# make install  vtax, its agent, manual pages and completions below PREFIX=/usr/local (DESTDIR for packages)
# make deb      a Debian package of the same: target/vtax_VERSION_ARCHITECTURE.deb
# make lint   formatting, clippy, documentation
# make bench  our engine beside iperf3, sockperf and qperf, our engines beside each other, labs
#             beside the `ip` command, what a guest and the emulated server cost; needs root
# make fuzz   hostile input for what reads foreign bytes, with libFuzzer, and the corpus that comes of it:
#             RUNS=1000000 for fewer inputs, TARGETS="fuzz_studies fuzz_orders" for some targets; hours

TARGET  := $(shell rustc --print host-tuple 2>/dev/null)
DEBUG   := target/$(TARGET)/debug
RELEASE := target/$(TARGET)/release
SUITE   := VTAX_AGENT=$(CURDIR)/$(RELEASE)/vtax-agent RUSTDOCFLAGS="-D warnings" \
    cargo run --quiet --locked --package vtax-suite --

RUNS    := 10000000

.PHONY: demo test crash soak install deb lint bench fuzz build kernel agent

# Compiled as the tests are, which is fast: what measures and what draws is optimized (see Cargo.toml).
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

PREFIX := /usr/local
install: build
	sh scripts/install.sh $(RELEASE)/vtax $(RELEASE)/vtax-agent $(DESTDIR)$(PREFIX)

deb: build
	sh scripts/deb.sh $(RELEASE)/vtax $(RELEASE)/vtax-agent target

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
