# "make" lists the targets.

SHELL   := /bin/bash
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
# What "make run", "make test-integration", "make test-vm" and "make fuzz" take from the command line.
ONCE     ?=
API      ?=
RUNTIME  ?=
BOOT     ?=
FUZZTIME ?= 10s
# The folder in which "make apiserver" puts its program. packaging/build names another one.
BIN      := bin
# One way to build our programs, so that none of their packages is compiled twice.
# nri_no_wasm leaves out what runs NRI plugins in WebAssembly: 3 MB.
GOBUILD  := CGO_ENABLED=0 go build -trimpath -tags nri_no_wasm
# The release of Kubernetes that bin/berth-apiserver says it is of: the one that its module pins. gitCommit stays
# upstream's placeholder: the module does not say its commit, and one of berth is none of Kubernetes.
KUBERNETES = $(shell awk '$$1 == "k8s.io/kubernetes" { print $$2 }' apiserver/go.mod)
KUBEFLAGS  = $(LDFLAGS) -X k8s.io/component-base/version.gitVersion=$(KUBERNETES) \
	-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$(word 2,$(subst ., ,$(KUBERNETES)))

.DEFAULT_GOAL := help
.PHONY: help build apiserver pause package run test test-unit test-crashes test-integration test-service test-vm test-cluster test-conformance bench bench-growth bench-cluster bench-apiserver lint fuzz deps clean

help: ## list the targets
	@echo 'berth: a node agent that runs pods on containerd'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/berth
	@mkdir -p bin
	@scripts/step 'make: building bin/berth' env $(GOBUILD) -ldflags '$(LDFLAGS)' -o bin/berth ./cmd/berth

apiserver: ## build bin/berth-apiserver (the first time compiles Kubernetes: some minutes)
	@mkdir -p $(BIN)
	@scripts/step 'make: building $(BIN)/berth-apiserver' env -C apiserver $(GOBUILD) -ldflags '$(KUBEFLAGS)' -o $(abspath $(BIN))/berth-apiserver ./cmd/berth-apiserver

pause: ## make dist/pause.tar, the image for sandboxes on machines without a registry
	@mkdir -p dist
	@scripts/step 'make: building dist/pause.tar' go run -trimpath ./test/images/build -pause dist/pause.tar

package: ## build dist/*.deb and dist/*.rpm of berth and berth-apiserver, for amd64 and arm64 (the first time compiles Kubernetes twice; ARCHES=amd64: once)
	@scripts/deps packager
	packaging/build

run: ## run the sample pods on this machine until Ctrl-C (ONCE=1: until all are ready; API=1: with berth-apiserver and kubectl); needs root
	@scripts/deps run $(if $(filter-out 0,$(API)),containerd kubectl services)
	@scripts/step 'make: building bin/berth, and what runs the samples' env $(GOBUILD) -ldflags '$(LDFLAGS)' -o bin/ ./cmd/berth ./test/run
	@$(if $(filter-out 0,$(API)),$(MAKE) --no-print-directory apiserver)
	@BERTH_BIN=bin/berth bin/run $(if $(filter-out 0,$(ONCE)),--once) $(if $(filter-out 0,$(API)),--api bin/berth-apiserver)

test: deps build ## lint, unit, scenario and integration tests; needs root
	@$(GOBUILD) -o .cache/runner ./test/runner
	@BERTH_BIN=$(CURDIR)/bin/berth .cache/runner lint unit integration

test-unit: ## unit and scenario tests only
	@scripts/deps gotestsum
	@$(GOBUILD) -o .cache/runner ./test/runner
	@.cache/runner unit

test-crashes: ## kill the agent at every call of the scenario tests' pods, not at every third
	@scripts/deps gotestsum
	@$(GOBUILD) -o .cache/runner ./test/runner
	@CRASHES=all .cache/runner crashes

test-integration: ## the tests on a real containerd (RUNTIME=native: by the native runtime); needs root
	@scripts/deps host containerd gotestsum
	@$(MAKE) --no-print-directory build
	@$(GOBUILD) -o .cache/runner ./test/runner
	@BERTH_BIN=$(CURDIR)/bin/berth $(if $(RUNTIME),BERTH_TEST_RUNTIME=$(RUNTIME)) .cache/runner integration

test-service: ## install, kill, hang, upgrade, reboot and purge the packages on a Debian with systemd (systemd-nspawn); needs root
	@scripts/deps host containerd packager lab
	@test/service/run

test-vm: ## pods' slices and limits under cgroup v2 with the systemd driver, and NFS volumes, in virtual machines (QEMU, emulated: slow; BOOT=cgroups or nfs: one); needs root
	@scripts/deps host packager lab vm
	@test/service/run-vm $(BOOT)

test-cluster: ## berth-apiserver, and berth as a node of a real control plane, with kubectl and kube-proxy; needs root (the first time builds Kubernetes: five minutes)
	@scripts/deps host containerd cluster gotestsum
	@$(MAKE) --no-print-directory build apiserver
	@$(GOBUILD) -o .cache/runner ./test/runner
	@BERTH_BIN=$(CURDIR)/bin/berth BERTH_APISERVER_BIN=$(CURDIR)/bin/berth-apiserver .cache/runner cluster

test-conformance: ## Kubernetes' own tests of a cluster and of a node (SUITE=TestConformance, TestNodeConformance or TestNodeSuites, FOCUS=, SKIP=: which; SERVER=bundled: on berth-apiserver; KUBELET=1: TestNodeSuites of a kubelet); needs root (the first time builds them)
	@scripts/deps host containerd cluster conformance
	@$(MAKE) --no-print-directory build $(if $(SERVER),apiserver)
	@BERTH_BIN=$(CURDIR)/bin/berth BERTH_APISERVER_BIN=$(CURDIR)/bin/berth-apiserver BERTH_SERVER=$(SERVER) go test -tags conformance -count=1 -timeout 4h -run '$(or $(SUITE),Conformance)$$' ./test/cluster -v -args $(if $(FOCUS),-focus '$(FOCUS)') $(if $(SKIP),-skip '$(SKIP)') $(if $(KUBELET),-kubelet)

bench: ## measure berth beside bare CRI calls (KUBELET=/path/to/kubelet: and beside a kubelet); needs root
	@scripts/deps host containerd
	@$(MAKE) --no-print-directory build
	@BERTH_BIN=$(CURDIR)/bin/berth go run ./test/bench

bench-growth: ## measure what 50 to 500 pods at once, and statistics of 100, cost the agent (KUBELET=: statistics also of a kubelet); needs root
	@scripts/deps host containerd
	@$(MAKE) --no-print-directory build
	@BERTH_BIN=$(CURDIR)/bin/berth go run ./test/bench -growth

bench-cluster: ## measure pods of a real control plane under berth and a kubelet, beside bare CRI calls; needs root
	@scripts/deps host containerd cluster
	@$(MAKE) --no-print-directory build
	@BERTH_BIN=$(CURDIR)/bin/berth go test -tags cluster -count 1 -run '^$$' -bench BenchmarkNode -benchtime 1x -timeout 60m -v ./test/cluster

bench-apiserver: ## measure berth-apiserver beside kube-apiserver and etcd: memory, starts, rates; a quarter of an hour
	@scripts/deps cluster
	@$(MAKE) --no-print-directory apiserver
	@BERTH_APISERVER_BIN=$(CURDIR)/bin/berth-apiserver go test -C apiserver -trimpath -vet=off -tags cluster -count 1 -run '^$$' -bench BenchmarkServer -benchtime 1x -timeout 60m -v ./test

lint: ## gofumpt, golangci-lint (with go vet in it), and figures of the structure
	@scripts/deps tools
	@$(GOBUILD) -o .cache/runner ./test/runner
	@go run ./test/structure -strict
	@.cache/runner lint

fuzz: ## run every fuzz target for FUZZTIME
	@$(GOBUILD) -o .cache/runner ./test/runner
	@FUZZTIME=$(FUZZTIME) .cache/runner fuzz

deps: ## install what is missing: packages, containerd, gotestsum, linters
	@scripts/deps

clean: ## remove what was built
	rm -rf bin dist .cache
