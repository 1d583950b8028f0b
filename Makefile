# Entry points of the project. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

CARGO ?= cargo
# The agent is static on the gnu target: no musl toolchain is needed.
GUEST_TARGET := x86_64-unknown-linux-gnu
GUEST_FLAGS := CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C target-feature=+crt-static"

.PHONY: help build guest quickstart test check fmt fmt-check lint deny unit conformance machine load fuzz bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

build: guest ## target/release/warren and, beside it, the guest agent
	$(CARGO) build --locked --release -p warren
	install -m 755 target/$(GUEST_TARGET)/guest/warren-guest target/release/warren-guest

guest:
	$(GUEST_FLAGS) $(CARGO) build --locked -p warren-guest --profile guest --target $(GUEST_TARGET)

quickstart: ## set this machine up, start the server, run a command in a sandbox
	scripts/quickstart.sh

test: check build unit conformance ## everything, the unmodified clients included

check: fmt-check lint deny ## all that needs no machine

fmt: ## format
	$(CARGO) fmt --all

fmt-check:
	$(CARGO) fmt --all --check

lint: ## clippy, warnings are errors
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

deny: ## licenses, advisories, banned crates
	scripts/deny.sh

unit: ## the tests beside the code
	scripts/unit.sh

conformance: ## the unmodified `prime` clients against a real server and real VMs; images, faults, loads, isolation
	tests/conformance/run.sh -m 'not hard' --ignore-glob='*/test_machine*.py' --ignore-glob='*/test_image_b*.py' --ignore-glob='*/test_load.py' --ignore-glob='*/test_hard*.py'

machine: ## Docker, systemd, modules and devices inside a sandbox, and builds of Dockerfiles in one: slower, with images of their own
	tests/conformance/run.sh tests/conformance/test_machine*.py tests/conformance/test_image_b*.py

load: ## what takes minutes and much memory: 5,000 creates over 500 tags, 200 machines of one image; operations in any order, kills amid them, 200 lives, 1 GiB
	WARREN_LOAD=1 $(CARGO) test --locked -p warren-node --test lifecycle -- many_tags --nocapture
	tests/conformance/run.sh -s tests/conformance/test_load.py tests/conformance/test_hard*.py
	tests/conformance/run.sh -m hard tests/conformance/test_behaviour.py

fuzz: ## feed the parsers of foreign bytes with arbitrary ones, a minute each; needs nightly Rust
	scripts/fuzz.sh

bench: build ## the speed table, both sides in one run
	bench/run.sh

clean: ## what was built; data directories stay
	$(CARGO) clean
