# Targets with a "##" comment are listed by `make help`.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GOVULNCHECK = golang.org/x/vuln/cmd/govulncheck@v1.1.4
GOLANGCI = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
# What has this environment shares what `make build` has compiled, and needs no C compiler.
SHARED = CGO_ENABLED=0 GOFLAGS="$$GOFLAGS -trimpath"
# The race detector needs a C compiler; without one the tests run without it.
RACE := $(shell command -v "$$(go env CC 2>/dev/null || echo cc)" >/dev/null && echo -race)
# Two packages at a time, and several tests of each, however few the cores: most of their time they wait for servers and
# leases. No test measures time.
GOTEST = go test -count=1 -p 2 -parallel 6
# The tests make thousands of tables, and they kill processes, never the machine. Their PostgreSQL does not wait for its
# disk and makes no checkpoint by time: a slow disk would hold up the tests that run meanwhile for up to a minute.
PG_FOR_TESTS = HOLDFAST_PG_OPTS="-c fsync=off -c checkpoint_timeout=1h"
TESTFLAGS ?=
BENCHFLAGS ?=
SEED ?= 1
RUNS ?= $(if $(filter command line,$(origin SEED)),1,1000)
FUZZTIME ?= 30s
MINUTES ?= 30
FAULTFLAGS ?=
RECOVERYFLAGS ?=
FUZZFLAGS ?=

.DEFAULT_GOAL := help
.PHONY: help build test test-all test-short demo demo-servers bench bench-scale bench-recovery microbench recovery sim faults soak fuzz lint vulncheck servers-up servers-down servers-env clean go test-rabbitmq4

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

build: go ## build bin/holdfast
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-X main.version=$(VERSION)" -o bin/holdfast ./cmd/holdfast

test: build ## every package on real servers, started if need be: at most 5 minutes (TESTFLAGS="-run Name")
	$(PG_FOR_TESTS) scripts/servers run env $(SHARED) $(GOTEST) -timeout 15m $(TESTFLAGS) ./...
	cd queue/pgxqueue && $(PG_FOR_TESTS) ../../scripts/servers run env $(SHARED) $(GOTEST) -timeout 5m $(TESTFLAGS) ./...

test-all: build ## the same with the race detector, and the slow tests too: at most 30 minutes
	@test -n "$(RACE)" || echo "no C compiler: testing without the race detector (apt-get install gcc libc6-dev)"
	HOLDFAST_TEST_ALL=1 $(PG_FOR_TESTS) scripts/servers run env GOFLAGS="$$GOFLAGS -trimpath" $(GOTEST) $(RACE) -timeout 30m $(TESTFLAGS) ./...

test-rabbitmq4: build ## what talks to a broker, against RabbitMQ 4 (Debian or Ubuntu, as root)
	HOLDFAST_TEST_ALL=1 $(PG_FOR_TESTS) HOLDFAST_SERVERS=rabbitmq4 scripts/servers run $(GOTEST) $(RACE) -timeout 20m $(TESTFLAGS) ./broker/rabbitmq/... ./consumer ./janitor ./producer ./internal/e2e/... ./cmd/...

test-short: go ## only the tests that need no servers
	env -u DATABASE_URL -u AMQP_URL go test -short $(TESTFLAGS) ./...

demo: build ## see it work, with nothing installed but Go
	bin/holdfast demo

demo-servers: build ## the tour on PostgreSQL and RabbitMQ, started if need be
	scripts/servers run --keep bin/holdfast demo --servers

bench: go ## Holdfast beside its peers, writes docs/benchmarks.md
	scripts/servers run scripts/bench -report docs/benchmarks.md $(BENCHFLAGS)

bench-scale: go ## how its own speed holds, writes docs/scale.md (half an hour, 5 GB of disk)
	cd bench && go build -buildvcs=false -o ../bin/bench .
	scripts/servers run bin/bench scale -report docs/scale.md $(BENCHFLAGS)

bench-recovery: go ## what it and its peers do after a kill -9, writes docs/recovery-peers.md (half an hour; BENCHFLAGS="-patience 75m" for River)
	scripts/servers run scripts/bench recovery -report docs/recovery-peers.md $(BENCHFLAGS)

microbench: go ## the benchmarks of single parts, with servers
	scripts/servers run go test -run '^$$' -bench . $(BENCHFLAGS) ./internal/benchmarks/...

recovery: build ## how soon work goes on, writes docs/recovery.md (a quarter of an hour; RECOVERYFLAGS="-trials 50")
	go build -o bin/measure ./internal/recovery/measure
	scripts/servers run bin/measure -report docs/recovery.md -command 'make recovery$(if $(RECOVERYFLAGS), RECOVERYFLAGS="$(RECOVERYFLAGS)")' $(RECOVERYFLAGS)

sim: go ## the simulator (SEED=1 RUNS=1000, to replay SEED=... RUNS=1 WITHOUT=... JOURNAL=1)
	go run ./internal/sim/simulate -seed $(SEED) -runs $(RUNS) $(if $(WITHOUT),-without $(WITHOUT)) $(if $(JOURNAL),-journal)

faults: go ## break a cluster on purpose, write docs/fault-report.md (SEED=1 MINUTES=30; Linux, root)
	go build -o bin/inflict ./internal/faults/inflict
	bin/inflict -seed $(SEED) -for $(MINUTES)m -report docs/fault-report.md $(FAULTFLAGS)

soak: go ## the same for long, and measure what grows, write docs/soak-report.md
	go build -o bin/inflict ./internal/faults/inflict
	bin/inflict -soak -seed $(SEED) -for $(MINUTES)m -report docs/soak-report.md $(FAULTFLAGS)

fuzz: go ## every fuzz target in turn (FUZZTIME=30s); what it finds is kept in testdata/fuzz
	@for folder in $$(grep -rl --include='*_test.go' --exclude-dir='.*' '^func Fuzz' * | xargs -n 1 dirname | sort -u); do \
		for target in $$(go test -list '^Fuzz' "./$$folder" | grep '^Fuzz'); do \
			echo "== $$folder $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $(FUZZFLAGS) "./$$folder" || exit 1; \
		done; \
	done

lint: go ## gofmt, go vet and the linters of .golangci.yml, also of the other modules
	@files=$$(gofmt -l $$(find . -name '.?*' -prune -o -name '*.go' -print)) && test -z "$$files" || { echo "run gofmt -w on:" $$files; exit 1; }
	for module in . bench queue/pgxqueue; do (cd $$module && env $(SHARED) go vet ./... && env $(SHARED) go run $(GOLANGCI) run --timeout 30m ./...) || exit 1; done

vulncheck: go ## known vulnerabilities in what is linked; needs the network
	go run $(GOVULNCHECK) ./...

servers-up: ## start PostgreSQL and RabbitMQ and leave them running
	scripts/servers up

servers-down: ## stop them, keep their data
	scripts/servers down

servers-env: ## DATABASE_URL and AMQP_URL: eval "$(make -s servers-env)"
	@scripts/servers env

clean: ## stop the servers, delete their data and all build output
	scripts/servers clean
	rm -rf bin .sim coverage.*

go:
	@command -v go >/dev/null || { echo "Go is not installed or not in PATH: https://go.dev/doc/install" >&2; exit 1; }
