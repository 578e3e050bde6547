# Everything a fresh Debian 12 with cargo needs; as root or with sudo. `make help` lists the targets.

PREFIX ?= /usr/local
export CARGO_TARGET_DIR ?= $(CURDIR)/target
CARGO ?= cargo
BIN := $(CARGO_TARGET_DIR)/release/longhaul
SOURCES := Cargo.toml Cargo.lock rust-toolchain.toml $(shell find crates -name '*.rs' -o -name Cargo.toml)
SHARE := $(DESTDIR)$(PREFIX)/share

.PHONY: build test test-paths faults kills fuzz demo demo-browser bench browser docs install deb static dist cross clean help

build: ## Build the longhaul program (the default)
	scripts/setup.sh build
	$(CARGO) build --release --locked --package longhaul
	@touch $(BIN) # cargo leaves it where nothing it is made of has changed; `install` compares times

test: ## Check everything that must pass: format, lints, dependencies, documentation, tests (15 minutes)
	scripts/setup.sh test
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --package longhaul --package longhaul-lab --test paths --locked -- -D warnings
	scripts/deny.sh
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked
	CARGO=$(CARGO) scripts/test.sh --workspace

test-paths: build ## Run what judges rates and times on emulated paths, and every browser test (30 minutes, an idle machine)
	scripts/setup.sh test
	LONGHAUL_PACING_SEEDS=10000 $(CARGO) test --release --locked --package longhaul-core --lib lossless_path
	LONGHAUL_RELEASE=$(abspath $(BIN)) CARGO=$(CARGO) \
	    scripts/test.sh --package longhaul --package longhaul-lab --test paths -- --test-threads=1
	npm run --prefix browser build
	LONGHAUL=$(abspath $(BIN)) npm run --prefix browser e2e:all
	LONGHAUL=$(abspath $(BIN)) npm run --prefix dashboard e2e:all

faults: ## Play 2,000 schedules of faults against get and put
	scripts/setup.sh test
	LONGHAUL_FAULT_SEEDS=$${LONGHAUL_FAULT_SEEDS:-2000} env --default-signal=HUP,INT,TERM \
	    $(CARGO) test --package longhaul --locked --test e2e faults:: -- --nocapture

kills: ## Kill and stop workers, agents, databases and nodes of Slurm in 100 rounds each (45 minutes)
	scripts/setup.sh test
	LONGHAUL_KILL_ROUNDS=$${LONGHAUL_KILL_ROUNDS:-100} env --default-signal=HUP,INT,TERM \
	    $(CARGO) test --package longhaul --locked --test e2e kills:: -- --nocapture --test-threads=1

demo: ## Fetch a file across an emulated 10 Gbit/s, 200 ms path, next to curl (under 3 minutes)
	scripts/setup.sh demo
	$(CARGO) build --release --locked --package longhaul
	scripts/demo.sh $(BIN)

demo-browser: ## Click a link in a real Firefox, across the same path; leaves pictures and the report in out/demo-browser
	scripts/setup.sh demo-browser
	$(CARGO) build --release --locked --package longhaul
	npm run --prefix browser build
	scripts/demo-browser.sh $(BIN)

bench: ## Measure against nginx and curl in the lab; ARGS="..." goes to the benchmark
	scripts/setup.sh test
	$(CARGO) build --release --locked --package longhaul
	$(CARGO) run --release --locked --package longhaul-bench -- $(ARGS)

fuzz: ## Fuzz every parser for TIME seconds (60); needs cargo-fuzz and a nightly compiler (fuzz/README.md)
	cd fuzz && for target in $$($(CARGO) +nightly fuzz list); do mkdir -p target/corpus/$$target && \
	$(CARGO) +nightly fuzz run $$target -s none target/corpus/$$target corpus/$$target -- -max_total_time=$(or $(TIME),60) || exit; done

browser: ## Build the browser extension into browser/dist, and its packages into browser/packages
	scripts/setup.sh browser
	npm run --prefix browser build
	npm run --prefix browser package

docs: ## Build the crates' documentation
	scripts/setup.sh build
	$(CARGO) doc --workspace --no-deps --locked

# Builds where sources have changed; after `make`, `sudo make install` compiles nothing as root.
install: $(BIN) ## Install program, manual pages and shell completions under PREFIX
	install -D -m 755 $(BIN) $(DESTDIR)$(PREFIX)/bin/longhaul
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/user
	sed 's,/usr/bin/,$(PREFIX)/bin/,' packaging/longhaul-agent.service > $(DESTDIR)$(PREFIX)/lib/systemd/user/longhaul-agent.service
	install -d $(SHARE)/man/man1 $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d
	$(BIN) man $(SHARE)/man/man1
	$(BIN) completions bash > $(SHARE)/bash-completion/completions/longhaul
	$(BIN) completions zsh > $(SHARE)/zsh/site-functions/_longhaul
	$(BIN) completions fish > $(SHARE)/fish/vendor_completions.d/longhaul.fish

DIST ?= $(CARGO_TARGET_DIR)/dist
MUSL := $(shell uname -m)-unknown-linux-musl
STATIC_DIR ?= $(CARGO_TARGET_DIR)/$(MUSL)/release

deb: $(BIN) ## Make a Debian package in target/dist: program, manuals, completions, systemd units
	scripts/deb.sh $(BIN) $(DIST)

static: ## Build a program without shared libraries (musl); STATIC_DIR=DIR puts it there too
	scripts/setup.sh static
	$(CARGO) build --release --locked --package longhaul --target $(MUSL)
	@[ $(STATIC_DIR) = $(CARGO_TARGET_DIR)/$(MUSL)/release ] || install -D -m 755 $(CARGO_TARGET_DIR)/$(MUSL)/release/longhaul $(STATIC_DIR)/longhaul

dist: static ## Make the archive of the static program that `cargo binstall` fetches, in target/dist
	scripts/dist.sh $(CARGO_TARGET_DIR)/$(MUSL)/release/longhaul $(MUSL) $(DIST)

cross: ## Check that everything compiles for musl and for aarch64, and that the tests of longhaul-core pass there, under qemu-user
	scripts/setup.sh static
	$(CARGO) check --package longhaul --locked --target $(MUSL)
	scripts/setup.sh cross
	$(CARGO) check --workspace --locked --target aarch64-unknown-linux-gnu
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
	    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu" \
	    $(CARGO) test --package longhaul-core --lib --locked --target aarch64-unknown-linux-gnu -- --skip tune:: # too slow

$(BIN): $(SOURCES)
	$(MAKE) build

clean: ## Remove everything built
	$(CARGO) clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22
