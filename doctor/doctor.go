// Package doctor checks a whole system: its store, its broker, and whether work gets done. It changes nothing.
//
// [Examine] makes every check in the order in which one builds on another. A [Check] has a severity and a detail for a
// person. Its remedy is data, which the command line words. What is wrong is always in the answer, never an error: if a
// server does not answer, the checks that need it fail or are skipped, and the others are made all the same.
//
// The doctor knows no backend. What it reads of a store and a broker are the roles [Store] and [Broker]. An adapter that
// can check its own server also implements [StoreChecker] or [BrokerChecker]. These two are for a doctor only: no other
// part of the program decides anything by what they answer.
package doctor

import (
	"context"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/store"
)

// Check is one thing that was checked.
type Check struct {
	Name     string // in a word or two
	Severity Severity
	Detail   string        // what was found
	Remedy   holdfast.Hint // zero if there is nothing to do
}

// Severity says how a check ended.
type Severity string

// The severities, from good to bad.
const (
	OK      Severity = "ok"
	Skipped Severity = "skipped" // the check could not be made; the detail says why
	Warning Severity = "warning" // everything works, but something can go wrong or get lost
	Failed  Severity = "failed"
)

// Report is what a doctor found.
type Report struct {
	Checks      []Check
	Unreachable bool // a server did not answer, so that some checks could not be made
}

// Count returns how many checks ended with the severity.
func (r Report) Count(s Severity) int {
	return len(r.Checks) - len(slices.DeleteFunc(slices.Clone(r.Checks), func(c Check) bool { return c.Severity == s }))
}

// Store is what the doctor reads of a store. The methods are those of package store.
type Store interface {
	StoreSchema
	StoreWork
	Now(ctx context.Context) (time.Time, error)
}

// StoreSchema answers about the schema.
type StoreSchema interface {
	CheckSchema(ctx context.Context) error
	Incarnation(ctx context.Context) (string, error)
	MigrationStatus(ctx context.Context) ([]store.Migration, error)
}

// StoreWork answers about workers and about what waits for them.
type StoreWork interface {
	LaneNames(ctx context.Context) ([]string, error)
	Lanes(ctx context.Context) ([]store.Lane, error)
	Runs(ctx context.Context, ended bool) ([]store.Run, error)
}

// StoreChecker is a store that checks its own database.
type StoreChecker interface {
	// Settings checks what the store cannot rule out by itself: settings and surroundings under which accepted tasks
	// can get lost. The answer has every check, also those that are OK. Settings needs no schema.
	Settings(ctx context.Context) ([]Check, error)
	// Janitors returns what janitors have left undone, and when one was last at work. It counts outbox entries that
	// are older than age.
	Janitors(ctx context.Context, age time.Duration) (Janitors, error)
}

// Janitors is what a store knows of the work of janitors.
type Janitors struct {
	OutboxEntries int64         // that are older than the age
	Oldest        time.Duration // the age of the oldest of them
	// LastTurn is how long ago a janitor last took a turn at a duty that janitors share; negative if none has yet.
	LastTurn time.Duration
	// LostCommits is when a worker last found that the store had lost a renewal, as after a restore; zero if never.
	LostCommits time.Time
}

// Broker is what the doctor reads of a broker.
type Broker interface {
	Depths(ctx context.Context, queues []string) (map[string]broker.Depth, error)
}

// BrokerChecker is a broker that checks its own server. Without a connection its methods wait a few seconds for one, and
// then return a holdfast.ErrUnavailable.
type BrokerChecker interface {
	// Server checks product, version and abilities, and says what AMQP cannot tell.
	Server(ctx context.Context) ([]Check, error)
	// Compare compares each object with what is in the broker. It returns one check per object, named after it, in
	// their order. An object that is missing has the detail Missing.
	Compare(ctx context.Context, objects []broker.Object) ([]Check, error)
}

// Missing is the detail of an object that does not exist.
const Missing = "missing"
