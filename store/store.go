// Package store defines the contract of the SQL store, the source of truth about every task. Each adapter has a folder
// of its own beside this file. Package storetest is the conformance suite that every adapter passes.
//
// # Rules for every adapter
//
// All methods are safe for concurrent use by many goroutines and processes.
//
// All times are by the clock of the database and are compared only with that clock. Callers pass durations and not
// times, except in NewTask.At.
//
// Unless its comment says otherwise, a method either does everything and commits, or returns an error and has changed
// nothing. After an [holdfast.ErrUnavailable], the caller cannot know which of the two happened. It may then call any
// method again.
//
// A queue has a subqueue for each priority; see holdfast.Subqueue. A queue is a subqueue wherever it belongs to a
// ticket, an outbox entry or a sentinel: in Due, OutboxEntry, Queues, message.Sentinel, TicketCount and
// QueueThroughput, and in the arguments of Repair. The names of known queues, and the sentinels, include type queues;
// see holdfast.TypeQueue. Descriptions of queues for people do not.
//
// Errors wrap the sentinel errors of package holdfast. No error type of a driver is part of the contract. Results in a
// slice have the order of the arguments.
package store

import (
	"context"
	"database/sql"
	"errors"
)

// ErrFenced means that a worker is no longer live: it was fenced, or it has ended. Code that acts as this worker must
// stop.
var ErrFenced = errors.New("the worker is fenced")

// ErrSchema means that this build cannot run on the version of the schema. The text tells whether the schema is older
// or newer, and the hint is the remedy.
var ErrSchema = errors.New("schema mismatch")

// Hot has the roles on the path of every task: it is stored, gets a ticket, is claimed, ends, and is recovered if its
// worker dies. The adapters write most of it by hand, each for its database.
type Hot interface {
	Inserter
	Dispatch
	Leases
	Work
	Tickets
	Fencing
	Patrol
	Repair
	Upkeep
}

// Flow has the roles that decide which ready tasks may start. They run inside claims, results and inserts.
type Flow interface {
	Gates
	Limits
	Breakers
	Order
	Topics
}

// Store is what the store in memory and the adapters for databases have. Services declare only the roles that they need.
// What only people and slow duties use is not part of it: see package desk, and Migrations.
type Store interface {
	Hot
	Flow

	// The roles of people and of work in many steps.
	Inspector
	Audit
	Verification
	Counters
	Operations
	Plans
	Effects
	Settings

	// Close closes the connections. A second call does nothing.
	Close() error
}

// Tx is a transaction of the caller. *sql.Tx, *sqlx.Tx and *sql.Conn implement it.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}
