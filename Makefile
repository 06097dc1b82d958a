# `make help` lists the targets. The head of deploy/dev/stack.sh describes the local stack, including its ports.
SHELL := /bin/bash
BIN := $(CURDIR)/.dev/bin
export PATH := $(BIN):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help build up down status demo test test-race test-long test-soak bench lint vulncheck generate release clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build slipway into .dev/bin
	@deploy/dev/build.sh slipway

up: ## build and start the local stack: Temporal with its Web UI, and Kubernetes (the first build takes 8 to 15 minutes on 2 cores)
	@deploy/dev/stack.sh up

down: ## stop every process of the local stack; keep its data
	@deploy/dev/stack.sh down

status: ## show the processes of the local stack (deploy/dev/stack.sh status exits with 1 if one doesn't run)
	@deploy/dev/stack.sh status || [ $$? -eq 1 ]

demo: ## run the sample releases on the local stack, with live progress
	@deploy/dev/build.sh stack slipway
	@deploy/dev/stack.sh up
	@deploy/dev/demo.sh

test: ## run the tests that a change most likely breaks, against the local stack (12 minutes on 2 cores)
	@deploy/dev/test.sh

test-race: ## run the tests that need no local stack under the race detector (8 minutes on 2 cores)
	@deploy/dev/test.sh --race

test-long: ## run the guarantees that make test leaves out: crashes, outages, sizes, compose, the chart (21 minutes on 2 cores)
	@deploy/dev/test.sh --long

test-soak: ## run every kill, combination and size, in shards; the next call continues after an interruption (hours)
	@deploy/dev/test.sh --soak

bench: ## run the benchmarks, in parts of an hour at most, and print the figures (PART=rollouts: only that one; deploy/dev/bench.sh lists them)
	@deploy/dev/test.sh --bench $(PART)

lint: ## check format, vet, linters, import rules, determinism of the workflows
	@deploy/dev/lint.sh

vulncheck: ## look for known vulnerabilities in what slipway calls (reaches vuln.go.dev, or the copy that GOVULNDB names)
	@deploy/dev/vulncheck.sh

generate: ## write the generated code: API server and client, custom resource definitions
	@deploy/dev/build.sh tools
	. deploy/dev/lib/go.sh && go generate ./...

release: ## build the archives, SBOMs and checksums of a release into dist/ (make release VERSION=v0.9.0)
	@deploy/dev/release.sh "$(VERSION)"

clean: ## stop the local stack and delete its data and slipway's binaries (keeps what is slow to build; rm -r .dev removes everything)
	@deploy/dev/stack.sh down --delete
	rm -f $(BIN)/slipway $(BIN)/slipway-failpoints $(BIN)/testreport
