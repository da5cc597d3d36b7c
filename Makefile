# Targets with a "##" comment are listed by `make help`.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GOVULNCHECK = golang.org/x/vuln/cmd/govulncheck@v1.1.4
GOLANGCI = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
STATICCHECK = bin/tools/staticcheck-v0.8.2
GOTESTSUM = bin/tools/gotestsum-v1.13.0
# Commands with this environment use the build cache of `make build` and need no C compiler.
SHARED = CGO_ENABLED=0 GOFLAGS="$$GOFLAGS -trimpath"
# The race detector needs a C compiler; without one the tests run without it.
RACE := $(shell command -v "$$(go env CC 2>/dev/null || echo cc)" >/dev/null && echo -race)
# Two packages run at a time, with several tests each, on any number of cores, because the tests mostly wait for servers
# and leases. No test measures time.
TESTARGS = -count=1 -p 2 -parallel 6
GOTEST = go test $(TESTARGS)
# The packages that need no server. Those that the race detector makes many times slower are left to `make test-all`.
SERVERLESS = $$(go list ./... | grep -vE '/(broker/rabbitmq|cmd/holdfast|workshop/(docs|e2e|sim|measure|faults|storetest)(/.*)?|store/.*)$$')
MODULES = . bench queue/pgxqueue examples/registration workshop/browser
# The tests create thousands of tables. They kill processes, but never the machine. So PostgreSQL does not sync its disk
# and has no frequent checkpoints. On a slow disk, a checkpoint would delay the tests by up to a minute.
PG_FOR_TESTS = HOLDFAST_PG_OPTS="-c fsync=off -c checkpoint_timeout=1h"
TESTFLAGS ?=
# With RERUNS=2, gotestsum repeats at most five failed tests at most twice, and $(TESTLOG) gets what every run printed.
RERUNS ?=
TESTLOG = bin/test.json
ifdef RERUNS
MODULETEST = $(CURDIR)/$(GOTESTSUM) --format=pkgname --hide-summary=skipped --rerun-fails=$(RERUNS) --rerun-fails-max-failures=5 \
	--packages=./... --jsonfile=$(CURDIR)/$(1) -- $(TESTARGS) $(2) $(TESTFLAGS)
else
MODULETEST = $(GOTEST) $(2) $(TESTFLAGS) ./...
endif
BASE ?= $(shell git rev-parse -q --verify origin/main >/dev/null && echo origin/main || echo main)
BENCHFLAGS ?=
PACKAGES ?= ./...
SEED ?= 1
RUNS ?= $(if $(filter command line,$(origin SEED)),1,1000)
FUZZTIME ?= 30s
MINUTES ?= 30
FAULTFLAGS ?=
RECOVERYFLAGS ?=
FUZZFLAGS ?=

.DEFAULT_GOAL := help
.PHONY: help build check tools test test-all test-browser screenshots test-changed test-modules test-race test-short demo demo-servers bench bench-scale bench-features bench-pressure compare microbench recovery sim faults soak fuzz lint vulncheck servers-up servers-down servers-env clean go test-rabbitmq4

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

build: go ## build bin/holdfast
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-X main.version=$(VERSION)" -o bin/holdfast ./cmd/holdfast

test: build $(if $(RERUNS),$(GOTESTSUM)) ## test every package; starts the servers if necessary (TESTFLAGS="-run Name")
	$(PG_FOR_TESTS) scripts/servers run $(MAKE) --no-print-directory test-modules

test-modules: # test, on the servers of the environment
	env $(SHARED) $(call MODULETEST,$(TESTLOG),-timeout 30m)
	cd queue/pgxqueue && env $(SHARED) $(call MODULETEST,$(TESTLOG).pgxqueue,-timeout 30m)
	cd examples/registration && env $(SHARED) $(call MODULETEST,$(TESTLOG).registration,-timeout 30m)
	cd workshop/browser && env $(SHARED) $(call MODULETEST,$(TESTLOG).browser,-timeout 30m)

test-all: build ## test every package with the race detector and the slow tests; hours on two cores (TESTFLAGS, PACKAGES="./store/...")
	@test -n "$(RACE)" || echo "no C compiler: testing without the race detector (apt-get install gcc libc6-dev)"
	HOLDFAST_TEST_ALL=1 $(PG_FOR_TESTS) scripts/servers run env GOFLAGS="$$GOFLAGS -trimpath" $(GOTEST) $(RACE) -timeout 60m $(TESTFLAGS) $(PACKAGES)
	$(if $(filter ./...,$(PACKAGES)),$(MAKE) --no-print-directory test-browser)

test-browser: go ## test the console in Chromium, with the slow tests; installs Chromium and starts the servers if necessary (Debian or Ubuntu, as root)
	CHROMIUM=$$(scripts/chromium) && export CHROMIUM && HOLDFAST_TEST_ALL=1 $(PG_FOR_TESTS) scripts/servers run env GOFLAGS="$$GOFLAGS -trimpath" go -C workshop/browser test $(TESTARGS) -timeout 30m $(TESTFLAGS) ./...

screenshots: go ## write the screenshots of the console into bin/screenshots, and those in docs/images again; needs Chromium
	CHROMIUM=$$(scripts/chromium) && export CHROMIUM && cd workshop/browser && go test -count=1 -run Screenshots -update .

test-changed: ## test like test-all, but only the packages that differ from the main branch (BASE=origin/main)
	@packages=$$(scripts/changed $(BASE)) && if [ -z "$$packages" ]; then echo "no package differs from $(BASE)"; else $(MAKE) test-all PACKAGES="$$packages"; fi

test-race: go ## test the packages that need no server with the race detector
	@test -n "$(RACE)" || echo "no C compiler: testing without the race detector (apt-get install gcc libc6-dev)"
	env -u DATABASE_URL -u AMQP_URL GOFLAGS="$$GOFLAGS -trimpath" $(GOTEST) $(RACE) -timeout 30m $(TESTFLAGS) $(SERVERLESS)

test-rabbitmq4: build ## test the packages that use a broker with RabbitMQ 4 (Debian or Ubuntu, as root)
	HOLDFAST_TEST_ALL=1 $(PG_FOR_TESTS) HOLDFAST_SERVERS=rabbitmq4 scripts/servers run $(GOTEST) $(RACE) -timeout 20m $(TESTFLAGS) ./broker/rabbitmq/... ./consumer ./janitor ./producer ./workshop/e2e/... ./cmd/...

test-short: go ## run only the tests that need no servers
	env -u DATABASE_URL -u AMQP_URL go test -short $(TESTFLAGS) ./...

demo: build ## run the demo on one file; needs only Go
	bin/holdfast demo

demo-servers: build ## run the demo on PostgreSQL and RabbitMQ; starts the servers if necessary
	scripts/servers run --keep bin/holdfast demo --servers

bench: go ## compare Holdfast with other task queues; writes docs/benchmarks.md
	scripts/servers run scripts/bench -report docs/benchmarks.md $(BENCHFLAGS)

# BEST is the fastest build so far. A build that is faster in every row replaces it.
BEST = 60299d0
COMPARED = $(if $(filter command line,$(origin BASE)),$(BASE),$(BEST))
compare: build ## compare the speed of this tree with that of another commit, in turns, on servers and on a file (BASE=60299d0, 15 minutes)
	rm -rf bin/base && mkdir -p bin/base && git archive $(COMPARED) | tar -x -C bin/base
	cd bin/base && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o ../holdfast-base ./cmd/holdfast
	rm -rf bin/base
	cd bench && go build -buildvcs=false -o ../bin/bench .
	scripts/servers run bin/bench compare -base bin/holdfast-base $(BENCHFLAGS)

bench-scale: go ## measure how the speed of Holdfast scales; writes docs/scale.md (half an hour, 5 GB of disk)
	cd bench && go build -buildvcs=false -o ../bin/bench .
	scripts/servers run bin/bench scale -report docs/scale.md $(BENCHFLAGS)

bench-features: go ## measure what each feature costs the tasks that use it; writes docs/feature-cost.md (40 minutes)
	cd bench && go build -buildvcs=false -o ../bin/bench .
	scripts/servers run bin/bench features -report docs/feature-cost.md $(BENCHFLAGS)

bench-pressure: go ## measure three task queues while PostgreSQL is under pressure; writes docs/pressure.md (three hours, 12 GB of disk)
	scripts/servers run scripts/bench pressure -report docs/pressure.md $(BENCHFLAGS)

microbench: go ## run the benchmarks of single parts on servers
	scripts/servers run go test -run '^$$' -bench . $(BENCHFLAGS) ./workshop/benchmarks/...

recovery: build ## measure how soon work resumes; writes docs/recovery.md (15 minutes; RECOVERYFLAGS="-trials 50")
	go build -o bin/measure ./workshop/measure/run
	scripts/servers run bin/measure -report docs/recovery.md -command 'make recovery$(if $(RECOVERYFLAGS), RECOVERYFLAGS="$(RECOVERYFLAGS)")' $(RECOVERYFLAGS)

sim: go ## run the simulator (SEED=1 RUNS=1000; to replay: SEED=... RUNS=1 WITHOUT=... JOURNAL=1)
	go run ./workshop/sim/run -seed $(SEED) -runs $(RUNS) $(if $(WITHOUT),-without $(WITHOUT)) $(if $(JOURNAL),-journal)

faults: go ## break a cluster on purpose; writes docs/fault-report.md (SEED=1 MINUTES=30; Linux, root)
	go build -o bin/inflict ./workshop/faults/inflict
	bin/inflict -seed $(SEED) -for $(MINUTES)m -report docs/fault-report.md $(FAULTFLAGS)

soak: go ## break a cluster and measure what grows; writes docs/soak-report.md (SEED=1 MINUTES=30; Linux, root)
	go build -o bin/inflict ./workshop/faults/inflict
	bin/inflict -soak -seed $(SEED) -for $(MINUTES)m -report docs/soak-report.md $(FAULTFLAGS)

fuzz: go ## run every fuzz target (FUZZTIME=30s); keeps failing inputs in testdata/fuzz
	@for folder in $$(grep -rl --include='*_test.go' --exclude-dir='.*' '^func Fuzz' * | xargs -n 1 dirname | sort -u); do \
		for target in $$(go test -list '^Fuzz' "./$$folder" | grep '^Fuzz'); do \
			echo "== $$folder $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $(FUZZFLAGS) "./$$folder" || exit 1; \
		done; \
	done

# The checks of staticcheck are those of .golangci.yml. It does not check bench, because it would analyze all systems that
# bench compares, for minutes.
check: $(STATICCHECK) ## run gofmt and go vet in all modules, and staticcheck
	@files=$$(gofmt -l $$(find . -name '.?*' -prune -o -name '*.go' -print)) && test -z "$$files" || { echo "run gofmt -w on:" $$files; exit 1; }
	for module in $(MODULES); do (cd $$module && env $(SHARED) go vet ./...) || exit 1; done
	for module in $(filter-out bench,$(MODULES)); do (cd $$module && env $(SHARED) $(CURDIR)/$(STATICCHECK) -checks 'all,-ST1000,-ST1003,-ST1016,-ST1020,-ST1021,-ST1022,-QF*' ./...) || exit 1; done

lint: check ## run check and the linters of .golangci.yml in all modules; compiles golangci-lint, which takes minutes
	for module in $(MODULES); do (cd $$module && env $(SHARED) go run $(GOLANGCI) run --timeout 30m ./...) || exit 1; done

tools: $(STATICCHECK) $(GOTESTSUM) ## build the programs that the checks and .ci/run use, into bin/tools

$(STATICCHECK): | go
	GOBIN=$(CURDIR)/bin/tools go install honnef.co/go/tools/cmd/staticcheck@$(lastword $(subst -, ,$@)) && mv bin/tools/staticcheck $@

$(GOTESTSUM): | go
	GOBIN=$(CURDIR)/bin/tools go install gotest.tools/gotestsum@$(lastword $(subst -, ,$@)) && mv bin/tools/gotestsum $@

vulncheck: go ## look for known vulnerabilities in the dependencies; needs the network
	go run $(GOVULNCHECK) ./...

servers-up: ## start PostgreSQL and RabbitMQ and keep them running
	scripts/servers up

servers-down: ## stop the servers and keep their data
	scripts/servers down

servers-env: ## print DATABASE_URL and AMQP_URL for: eval "$(make -s servers-env)"
	@scripts/servers env

clean: ## stop the servers, and delete their data and all build output
	scripts/servers clean
	rm -rf bin .sim coverage.*

go:
	@command -v go >/dev/null || { echo "Go is not installed or not in PATH: https://go.dev/doc/install" >&2; exit 1; }
