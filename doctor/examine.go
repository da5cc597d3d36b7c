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

// maxClockDifference is a difference that clocks never reach while NTP synchronizes them.
const maxClockDifference = 2 * time.Second

// System describes the store and the broker to examine. Examine closes the store and the broker that it opens.
type System struct {
	Database      string   // address of the database, without a password
	Brokers       []string // addresses of the brokers, without passwords
	Prefix        string   // prefix of the topology
	HoldingQueues int      // number of holding queues in the topology

	// OpenStore opens the store without a migration. It returns holdfast.ErrNotFound if the database file does not
	// exist.
	OpenStore func(context.Context) (OpenStore, error)
	// OpenBroker returns a connected broker. It may be nil if Served is set.
	OpenBroker func(context.Context) (OpenBroker, error)
	// Served is set if the broker is inside the process that serves the database file. It returns an error if no
	// process serves the file. It is called only while the store is open.
	Served func() error
}

// OpenStore is a Store that the caller closes.
type OpenStore interface {
	Store
	Close() error
}

// OpenBroker is a Broker that the caller closes.
type OpenBroker interface {
	Broker
	Close() error
}

// Examine checks the store, the broker, and whether tasks are processed.
func Examine(ctx context.Context, s System) Report {
	e := &examination{system: s}
	e.ok("configuration", "valid: %s", strings.Join(append([]string{s.Database}, s.Brokers...), ", "))
	e.examineStore(ctx)
	if e.noFile {
		return e.Report
	}
	if e.store != nil {
		defer func() { _ = e.store.Close() }() // a failed Close loses nothing, because the store was only read
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

type examination struct {
	Report
	system   System
	store    OpenStore  // nil if the store cannot be opened
	broker   OpenBroker // nil if the broker does not answer, or is inside another process
	topology broker.Topology
	noFile   bool // the database file does not exist
	migrated bool // this build supports the version of the schema
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

// failed adds a check that ended with an error. If the error has no hint, the remedy is fallback.
func (e *examination) failed(name string, err error, fallback holdfast.HintKind) {
	e.Unreachable = e.Unreachable || errors.Is(err, holdfast.ErrUnavailable)
	e.add(Failure(name, err, holdfast.Hint{Kind: fallback}))
}

// Failure returns a failed check with the error as its detail. The remedy is the hint of the error. If the error has no
// hint, the remedy is fallback.
func Failure(name string, err error, fallback holdfast.Hint) Check {
	remedy := holdfast.HintOf(err)
	if remedy == (holdfast.Hint{}) {
		remedy = fallback
	}
	detail := strings.TrimPrefix(err.Error(), holdfast.ErrInvalid.Error()+": ")
	return Check{Name: name, Severity: Failed, Detail: detail, Remedy: remedy}
}

func (e *examination) examineStore(ctx context.Context) {
	opened, err := e.system.OpenStore(ctx)
	switch {
	case errors.Is(err, holdfast.ErrNotFound):
		e.noFile = true
		noFile := Failure("store", err, holdfast.Hint{Kind: holdfast.HintServe})
		noFile.Severity = Warning
		e.add(noFile)
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
	e.ok("store", "answered within %s", took.Round(time.Millisecond))
	if apart := now.Sub(asked.Add(took / 2)).Abs(); apart > maxClockDifference+took/2 {
		e.add(Check{Name: "clock", Severity: Warning,
			Detail: fmt.Sprintf("the clock of the store and the clock of this machine differ by %s", apart.Round(time.Millisecond)),
			Remedy: holdfast.Advice("synchronize both with NTP; leases and delays use only the store's clock, but times that a program passes, and logs, use the clock of its machine")})
		return
	}
	e.ok("clock", "the clock of the store and the clock of this machine agree")
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
		e.failed("schema", errors.Join(err, errors.New("the version of the schema is unknown")), holdfast.HintMigrationStatus)
		return
	}
	e.ok("schema", "this build can use it; its own version is %d", migrations[len(migrations)-1].Version)
	e.migrated = true
	e.topology = broker.NewTopology(e.system.Prefix, e.system.HoldingQueues, incarnation)
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
	e.ok("broker", "connected")
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
		e.skipped("topology", "the names of the AMQP queues depend on the store")
		return
	}
	queues, err := e.store.QueueNames(ctx)
	if err == nil {
		checks, err = CompareTopology(ctx, checker, e.topology, queues)
	}
	if err != nil {
		e.failed("topology", err, holdfast.HintRetry)
		return
	}
	e.add(summarize(checks)...)
}

// CompareTopology compares the broker with the topology of the given queues. It returns one check for each AMQP queue,
// with its name, and a last one for the marker. It changes nothing. Errors are those of BrokerChecker.Compare.
func CompareTopology(ctx context.Context, b BrokerChecker, t broker.Topology, queues []string) ([]Check, error) {
	return b.Compare(ctx, append(t.Queues(queues), t.MarkerObject()))
}

// summarize merges the checks of CompareTopology: one check for all missing AMQP queues, one for each other difference,
// and one if all AMQP queues are correct.
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
		marker.Detail += ": the broker was wiped, or never had the queues of this store; " +
			"when they are declared, every waiting task gets a new ticket"
	}
	return append(found, marker)
}

// examineServed checks that a process serves the file and so provides the broker.
func (e *examination) examineServed() {
	if e.store == nil {
		return
	}
	if err := e.system.Served(); err != nil {
		e.add(Check{Name: "broker", Severity: Warning, Detail: "the broker is inside the process that serves the file, and no process serves it",
			Remedy: holdfast.Hint{Kind: holdfast.HintServe}})
		return
	}
	e.served = true
	e.ok("broker", "inside the process that serves the file, so no other process can query it")
}
