// Package store is the contract of the SQL store, which is the truth about every
// task. Adapters live beside it, one folder a database; package storetest is the
// suite each of them passes.
//
// # Rules every adapter keeps
//
// All methods are safe for concurrent use by many goroutines and processes. All
// times are compared with the database's clock only; durations are given, never
// moments of the caller's clock, except in NewTask.At. A method either does all
// of what it says and commits, or returns an error and has done nothing, unless
// its comment says otherwise; after an error that is an [holdfast.ErrUnavailable]
// the caller cannot know which, and every method may then simply be called
// again. Errors wrap the sentinels of package holdfast; no driver's error type is
// part of the contract. Slices of results are in the order of the slices asked
// about.
package store

import (
	"context"
	"database/sql"
	"errors"
)

// ErrFenced says that a run is no longer live: it was declared dead, or closed.
// Whoever acts for it must stop.
var ErrFenced = errors.New("this run was fenced")

// ErrSchema says that the database's schema is not the one this build needs. Its
// text says whether it is behind or ahead, and its hint what to do.
var ErrSchema = errors.New("schema mismatch")

// Store is the sum of the roles, for wiring and for the suite. Services ask for the roles they need.
type Store interface {
	Inserter
	Dispatch
	Leases
	Work
	Tickets
	Fencing
	Patrol
	Repair
	Upkeep
	Desk
	Migrations

	// Close frees the connections. It may be called more than once.
	Close() error
}

// Tx is a caller's own transaction: *sql.Tx, *sqlx.Tx and *sql.Conn fit.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}
