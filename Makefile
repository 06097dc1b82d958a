# `make help` lists what there is. The local stack is described at the top of deploy/dev/stack.sh, its ports included.
SHELL := /bin/bash
BIN := $(CURDIR)/.dev/bin
export PATH := $(BIN):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help build up down status demo test test-race test-long test-soak bench lint generate clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build slipway into .dev/bin
	@deploy/dev/build.sh slipway

up: ## build and start the local stack: Temporal with its Web UI, and Kubernetes (the first build takes 8 to 15 minutes on 2 cores)
	@deploy/dev/stack.sh up

down: ## stop every process of the local stack; its data stays
	@deploy/dev/stack.sh down

status: ## what runs where (the exit code of deploy/dev/stack.sh status says whether all of it does)
	@deploy/dev/stack.sh status || [ $$? -eq 1 ]

demo: ## run the sample releases on the local stack, with live progress
	@deploy/dev/build.sh stack slipway
	@deploy/dev/stack.sh up
	@deploy/dev/demo.sh

test: ## run the tests against the local stack: what a change most likely breaks (7 minutes on 2 cores)
	@deploy/dev/test.sh

test-race: ## run what needs no local stack under the race detector (4 minutes on 2 cores)
	@deploy/dev/test.sh --race

test-long: ## run what make test leaves out and stands for a promise: crashes, outages, sizes, compose, the chart (20 minutes on 2 cores)
	@deploy/dev/test.sh --long

test-soak: ## run every kill, cell and size, in shards: the next call goes on where one was interrupted (hours)
	@deploy/dev/test.sh --soak

bench: ## measure, in parts of an hour at most, and print the figures (PART=rollouts: that one; deploy/dev/bench.sh lists them)
	@deploy/dev/test.sh --bench $(PART)

lint: ## format, vet, linters, import arrows, determinism of the workflows
	@deploy/dev/lint.sh

generate: ## write the generated code anew: API server and client, custom resource definitions
	@deploy/dev/build.sh tools
	. deploy/dev/lib/go.sh && go generate ./...

clean: ## stop the local stack and delete its data and slipway's binaries (what is slow to build stays: rm -r .dev removes all)
	@deploy/dev/stack.sh down --delete
	rm -f $(BIN)/slipway $(BIN)/slipway-failpoints $(BIN)/testreport
