package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// clocksApart is a difference of clocks that NTP would never leave.
const clocksApart = 2 * time.Second

// System is what a doctor examines. The doctor closes what it opens.
type System struct {
	Database string   // its address, without a password
	Brokers  []string // their addresses, without passwords
	Prefix   string   // of the topology
	Shards   int      // of the topology

	// OpenStore opens the store as it is. It returns holdfast.ErrNotFound if no process has made the database yet.
	OpenStore func(context.Context) (OpenStore, error)
	// OpenBroker returns a broker that answers.
	OpenBroker func(context.Context) (OpenBroker, error)
	// Served is set if the broker is inside the process that serves the database file; then there is no OpenBroker. It
	// returns an error if no process serves the file. The doctor calls it only while the store is open.
	Served func() error
}

// OpenStore is a store to close.
type OpenStore interface {
	Store
	Close() error
}

// OpenBroker is a broker to close.
type OpenBroker interface {
	Broker
	Close() error
}

// Examine checks the store, the broker, and whether work gets done.
func Examine(ctx context.Context, s System) Report {
	e := &examination{system: s}
	e.ok("configuration", "it is valid: %s", strings.Join(append([]string{s.Database}, s.Brokers...), ", "))
	e.examineStore(ctx)
	if e.absent {
		return e.Report
	}
	if e.store != nil {
		defer func() { _ = e.store.Close() }() // it was only read
	}
	e.examineBroker(ctx)
	if e.broker != nil {
		defer func() { _ = e.broker.Close() }()
	}
	if e.migrated {
		e.examineWork(ctx)
	}
	return e.Report
}

// examination is an examination in progress.
type examination struct {
	Report
	system   System
	store    OpenStore  // nil if it cannot be opened
	broker   OpenBroker // nil if it does not answer, or is in another process
	topology broker.Topology
	absent   bool // there is no database file yet
	migrated bool // the schema is there
	served   bool // a process serves the file
}

// embedded reports whether the broker is inside the process that serves the file.
func (e *examination) embedded() bool { return e.system.Served != nil }

func (e *examination) add(checks ...Check) { e.Checks = append(e.Checks, checks...) }

func (e *examination) ok(name, detail string, args ...any) {
	e.add(Check{Name: name, Severity: OK, Detail: fmt.Sprintf(detail, args...)})
}

func (e *examination) skipped(name, why string) {
	e.add(Check{Name: name, Severity: Skipped, Detail: why})
}

// failed adds a check that ended with an error. If the error has no hint, the remedy is otherwise.
func (e *examination) failed(name string, err error, otherwise holdfast.HintKind) {
	e.Unreachable = e.Unreachable || errors.Is(err, holdfast.ErrUnavailable)
	e.add(Failure(name, err, holdfast.Hint{Kind: otherwise}))
}

// Failure returns the check that ended with an error. Its remedy is the hint of the error, or otherwise if it has none.
func Failure(name string, err error, otherwise holdfast.Hint) Check {
	remedy := holdfast.HintOf(err)
	if remedy == (holdfast.Hint{}) {
		remedy = otherwise
	}
	detail := strings.TrimPrefix(err.Error(), holdfast.ErrInvalid.Error()+": ")
	return Check{Name: name, Severity: Failed, Detail: detail, Remedy: remedy}
}

func (e *examination) examineStore(ctx context.Context) {
	opened, err := e.system.OpenStore(ctx)
	switch {
	case errors.Is(err, holdfast.ErrNotFound):
		e.absent = true
		absent := Failure("store", err, holdfast.Hint{Kind: holdfast.HintServe})
		absent.Severity = Warning
		e.add(absent)
		return
	case err != nil:
		e.failed("store", err, holdfast.HintRetry)
		return
	}
	e.store = opened
	e.examineClock(ctx)
	if checker, ok := e.store.(StoreChecker); ok {
		checks, err := checker.Settings(ctx)
		if err != nil {
			e.failed("store settings", err, holdfast.HintRetry)
		}
		e.add(checks...)
	}
	e.examineSchema(ctx)
}

func (e *examination) examineClock(ctx context.Context) {
	asked := time.Now()
	now, err := e.store.Now(ctx)
	took := time.Since(asked)
	if err != nil {
		e.failed("store", err, holdfast.HintRetry)
		return
	}
	e.ok("store", "it answers within %s", took.Round(time.Millisecond))
	if apart := now.Sub(asked.Add(took / 2)).Abs(); apart > clocksApart+took/2 {
		e.add(Check{Name: "clock", Severity: Warning,
			Detail: fmt.Sprintf("the clocks of the store and of this machine differ by %s", apart.Round(time.Millisecond)),
			Remedy: holdfast.Advice("let NTP set both: leases and delays go by the store's clock alone, but a time that a program names, and every log, goes by its machine's")})
		return
	}
	e.ok("clock", "that of the store and that of this machine agree")
}

func (e *examination) examineSchema(ctx context.Context) {
	err := e.store.CheckSchema(ctx)
	if err != nil {
		e.failed("schema", err, holdfast.HintRetry)
		return
	}
	incarnation, err := e.store.Incarnation(ctx)
	if err != nil {
		e.failed("schema", err, holdfast.HintRetry)
		return
	}
	migrations, err := e.store.MigrationStatus(ctx)
	if err != nil || len(migrations) == 0 {
		e.failed("schema", errors.Join(err, errors.New("its version is not known")), holdfast.HintMigrationStatus)
		return
	}
	e.ok("schema", "version %d, as this build needs it", migrations[len(migrations)-1].Version)
	e.migrated = true
	e.topology = broker.NewTopology(e.system.Prefix, e.system.Shards, incarnation)
}

func (e *examination) examineBroker(ctx context.Context) {
	if e.embedded() {
		e.examineServed()
		return
	}
	var err error
	if e.broker, err = e.system.OpenBroker(ctx); err != nil {
		e.broker = nil
		e.failed("broker", err, holdfast.HintReachBroker)
		return
	}
	e.ok("broker", "it answers")
	checker, ok := e.broker.(BrokerChecker)
	if !ok {
		return
	}
	checks, err := checker.Server(ctx)
	if err != nil {
		e.failed("broker", err, holdfast.HintRetry)
	}
	e.add(checks...)
	if !e.migrated {
		e.skipped("topology", "its queues are named after what is in the store")
		return
	}
	lanes, err := e.store.LaneNames(ctx)
	if err == nil {
		checks, err = CompareTopology(ctx, checker, e.topology, lanes)
	}
	if err != nil {
		e.failed("topology", err, holdfast.HintRetry)
		return
	}
	e.add(summarize(checks)...)
}

// CompareTopology compares what is in the broker with what the topology needs for the lanes: one check per queue, named
// after it, and the last one for the marker. It changes nothing.
func CompareTopology(ctx context.Context, b BrokerChecker, t broker.Topology, lanes []string) ([]Check, error) {
	return b.Compare(ctx, append(t.Queues(lanes), t.MarkerObject()))
}

// summarize makes one check of all queues that are missing, and one of all queues that are as they should be.
func summarize(objects []Check) []Check {
	queues, marker := objects[:len(objects)-1], objects[len(objects)-1]
	var found []Check
	var missing []string
	for _, c := range queues {
		switch {
		case c.Severity == OK:
		case c.Detail == Missing:
			missing = append(missing, c.Name)
		default:
			c.Name, c.Detail = "topology", c.Name+": "+c.Detail
			found = append(found, c)
		}
	}
	if len(missing) > 0 {
		found = append(found, Check{Name: "topology", Severity: Failed,
			Detail: fmt.Sprintf("%d of %d queues are missing: %s", len(missing), len(queues), strings.Join(missing, ", ")),
			Remedy: holdfast.Hint{Kind: holdfast.HintDeclareTopology}})
	}
	if len(found) == 0 {
		found = append(found, Check{Name: "topology", Severity: OK, Detail: counted(int64(len(queues)), "queue is as it should be", "queues are as they should be")})
	}
	marker.Name = "marker"
	if marker.Severity == Failed && marker.Detail == Missing {
		marker.Detail += ": this broker was wiped, or never had the queues of this store; " +
			"once they are declared, every waiting task gets a new ticket"
	}
	return append(found, marker)
}

// examineServed checks that a process serves the file, with the broker inside.
func (e *examination) examineServed() {
	if e.store == nil {
		return
	}
	if err := e.system.Served(); err != nil {
		e.add(Check{Name: "broker", Severity: Warning, Detail: "it lives inside the process that serves the file, and none does now",
			Remedy: holdfast.Hint{Kind: holdfast.HintServe}})
		return
	}
	e.served = true
	e.ok("broker", "inside the process that serves the file; no other process can ask it")
}
