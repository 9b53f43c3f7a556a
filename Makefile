# make demo   what each way to attach a zone costs on this machine, in some two minutes
# make test   every test; needs root, for namespaces
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
RELEASE := target/$(TARGET)/release

RUNS    := 10000000

.PHONY: demo test crash soak install deb lint bench fuzz build kernel agent compiled-tests

demo: build
	$(RELEASE)/vtax demo
	@echo 'The program is $(RELEASE)/vtax; `make install` puts it where your shell finds it.'

build:
	sh scripts/setup.sh build
	cargo build --locked --release --package vtax
	$(MAKE) agent

kernel:
	sh scripts/setup.sh kernel

# The agent that users get is built beside the tests, and booted in their guests.
test:
	sh scripts/setup.sh test
	$(MAKE) --jobs=2 agent compiled-tests
	VTAX_AGENT=$(CURDIR)/$(RELEASE)/vtax-agent cargo test --locked --workspace

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
	+sh scripts/agent.sh $(RELEASE)

compiled-tests:
	+cargo test --locked --workspace --no-run

lint:
	sh scripts/setup.sh build
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --document-private-items

fuzz:
	sh scripts/setup.sh fuzz
	sh scripts/fuzz.sh $(RUNS) $(TARGETS)

bench: build
	sh scripts/setup.sh bench
	$(RELEASE)/vtax crosscheck --rounds 13
	VTAX_AGENT=$(CURDIR)/$(RELEASE)/vtax-agent cargo bench --locked --package vtax --bench recording --bench results --bench engines --bench labs --bench guests --bench server --bench domains
	cargo bench --locked --package vtax-console --bench consoles
	cargo bench --locked --package vtax-disk --bench disks
