# What people type. The work is done by cargo and by the scripts, which can be called by themselves.

CARGO ?= cargo
TARGET = $(or $(CARGO_TARGET_DIR),target)

PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
BINARIES ?= $(TARGET)/release

.DEFAULT_GOAL := help
.PHONY: help setup build install deb test demo bench fmt clean

help:
	@echo "make demo    build, serve DNS and run nginx over AF_XDP in a laboratory, compare with others (root)"
	@echo "make test    format, lints, all tests, documentation; what CI runs (root, or some are skipped)"
	@echo "make bench   every figure with its conditions (root); make bench FIGURES=veth for one"
	@echo "make setup   install the Debian packages that demo, bench and test need; each of them installs its own first"
	@echo "make build   target/release/sidestep and its library"
	@echo "make install   what was built, to PREFIX=$(PREFIX) below DESTDIR=$(DESTDIR); docs/install.md"
	@echo "make deb     a Debian package of what was built, in $(TARGET)"
	@echo "make fmt     format the code"
	@echo "make clean   remove what was built"

setup:
	@scripts/setup.sh

build:
	$(CARGO) build --release --package sidestep --package preload

install:
	@PREFIX=$(PREFIX) SYSCONFDIR=$(SYSCONFDIR) DESTDIR=$(DESTDIR) packaging/install.sh $(BINARIES)

deb:
	@packaging/deb.sh $(BINARIES) $(TARGET)

test:
	@scripts/setup.sh test
	@scripts/test.sh

demo:
	@scripts/setup.sh demo
	@echo "demo: building sidestep, which takes some minutes the first time"
	@$(CARGO) build --release --package sidestep --package lab --bins
	@$(CARGO) build --release --package preload
	@SIDESTEP_BIN=$(TARGET)/release/sidestep $(TARGET)/release/demo

bench:
	@scripts/setup.sh bench
	@scripts/bench.sh $(FIGURES)

fmt:
	$(CARGO) fmt --all

clean:
	$(CARGO) clean
