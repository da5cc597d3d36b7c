// Package doctor checks a whole system: its store, its broker, and whether tasks are processed. It changes nothing.
//
// [Examine] runs all checks in a fixed order, because later checks use the results of earlier ones. A [Check] has a
// severity and a detail for people. Its remedy is data, which the command line turns into words. Examine returns no
// error. If a server does not answer, the checks that need it fail or are skipped, and the other checks still run.
//
// Package doctor does not depend on a backend. It reads a store and a broker through the interfaces [Store] and
// [Broker]. An adapter that can check its own server also implements [StoreChecker] or [BrokerChecker]. No other part
// of the program uses these two.
package doctor

import (
	"context"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/store"
)

// Check is the result of one check.
type Check struct {
	Name     string // one or two words
	Severity Severity
	Detail   string        // what the doctor found
	Remedy   holdfast.Hint // the zero value means that no action is needed
}

// Severity is the outcome of a check.
type Severity string

// The severities, from good to bad.
const (
	OK      Severity = "ok"
	Skipped Severity = "skipped" // the check could not run; the detail gives the reason
	Warning Severity = "warning" // everything works, but there is a risk of failure or loss
	Failed  Severity = "failed"
)

// Report is the result of all checks.
type Report struct {
	Checks      []Check
	Unreachable bool // a server did not answer, so some checks could not run
}

// Count returns the number of checks with the given severity.
func (r Report) Count(s Severity) int {
	return len(r.Checks) - len(slices.DeleteFunc(slices.Clone(r.Checks), func(c Check) bool { return c.Severity == s }))
}

// Store is the part of a store that the doctor reads. Its methods are those of package store.
type Store interface {
	StoreSchema
	StoreWork
	StoreSchedules
	Now(ctx context.Context) (time.Time, error)
}

// StoreSchema reads the state of the schema.
type StoreSchema interface {
	CheckSchema(ctx context.Context) error
	Incarnation(ctx context.Context) (string, error)
	MigrationStatus(ctx context.Context) ([]store.Migration, error)
}

// StoreWork reads the workers, the queues, the gates, the keys of ordered tasks and the topics.
type StoreWork interface {
	Gates(ctx context.Context) ([]store.Gate, error)
	QueueNames(ctx context.Context) ([]string, error)
	Queues(ctx context.Context) ([]store.Queue, error)
	Workers(ctx context.Context, ended bool) ([]store.Worker, error)
	OrderedKeys(ctx context.Context, onlyDead bool, limit int) ([]store.OrderedKey, error)
	TopicQueues(ctx context.Context) ([]store.TopicQueue, error)
}

// StoreSchedules reads the schedules and the sources, and the operations on batches.
type StoreSchedules interface {
	ListPlans(ctx context.Context, f store.PlanFilter) ([]store.Plan, error)
	ListOperations(ctx context.Context, f store.OperationFilter) ([]store.Operation, error)
}

// StoreChecker is a store that checks its own database.
type StoreChecker interface {
	// Settings checks the settings and the environment of the database, because some can lose accepted tasks. It
	// returns every check, also those that are OK. It works without a schema.
	Settings(ctx context.Context) ([]Check, error)
	// Janitors returns when a janitor last worked, and which work the janitors have not done. It counts outbox entries
	// older than age.
	Janitors(ctx context.Context, age time.Duration) (Janitors, error)
}

// Janitors is the state of the janitors' work in the store.
type Janitors struct {
	OutboxEntries int64         // entries older than the given age
	Oldest        time.Duration // age of the oldest one
	// LastTurn is the time since a janitor last took its turn at a shared duty. It is negative if none ever has.
	LastTurn time.Duration
	// LostCommits is when a worker last found that the store had lost its newest renewal, for example after a restore.
	// It is zero if that never happened.
	LostCommits time.Time
	// Failing are the duties that fail in any process, at most 100. Those that have failed the longest come first.
	Failing []store.DutyFailure
}

// Broker is the part of a broker that the doctor reads.
type Broker interface {
	Depths(ctx context.Context, queues []string) (map[string]broker.Depth, error)
}

// BrokerChecker is a broker that checks its own server. Without a connection its methods wait a few seconds for one,
// and then return a holdfast.ErrUnavailable.
type BrokerChecker interface {
	// Server checks product, version and abilities. For facts that AMQP does not report, it returns skipped checks.
	Server(ctx context.Context) ([]Check, error)
	// Compare compares each object with the broker. It returns one check for each object, in the same order, with the
	// name of the object. If the object does not exist, the detail of its check is Missing.
	Compare(ctx context.Context, objects []broker.Object) ([]Check, error)
}

// Missing is the detail of a check of an object that does not exist.
const Missing = "missing"
