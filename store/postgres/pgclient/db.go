// Package pgclient connects the store to PostgreSQL. It knows nothing of tasks and workers.
//
// [Open] reads the URLs, finds out whether a connection pooler is in between, and returns a [DB]. A DB has pools of
// connections, executes the statements of the store by name, and repeats operations that fail with a conflict. A
// [Session] is a connection that one caller keeps. A [Migrator] changes the tables.
//
// # What the package promises
//
// Every call returns soon after its context ends, even if the network or the server hangs. A call whose context has no
// deadline fails after 35 s without an answer. The pool Unlimited, and sessions without a statement_timeout, do not
// have this limit of 35 s.
//
// If the answer to a statement is lost, the package does not send the statement again, because the server may have
// executed it.
//
// A connection pooler in transaction mode must track prepared statements. Behind such a pooler, the package sets no
// parameters of sessions, and it can keep sessions only with a direct URL.
package pgclient

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/statement"
)

// DB is one database of one server. It is safe for concurrent use.
//
// Errors of its methods are untranslated, so that a caller can inspect them and Do can repeat an operation, unless the
// comment of the method says otherwise.
type DB struct {
	// Main is the pool for most statements. Its connections keep the prepared statements.
	Main *sqlx.DB
	// Reserved is a small pool for statements that must not wait until a connection of Main is free.
	Reserved *sqlx.DB
	// Unlimited is a pool for long transactions. They have no time limits, wait only a short time for locks, and have
	// the schema as their search_path.
	Unlimited *sqlx.DB

	config     pq.Config
	direct     target // address of the sessions that callers keep
	pooling    pooling
	sessions   bool         // callers can keep sessions
	mixed      *atomic.Bool // set if a connection has not found its prepared statement
	schema     string
	statements map[string]string
	ownTexts   map[string]string // the statements of this package
	log        logrus.FieldLogger
}

// User returns the role that the connections log in as.
func (d *DB) User() string { return d.config.User }

// Close closes the three pools. Calls in progress fail.
func (d *DB) Close() error {
	return errors.Join(d.Main.Close(), d.Reserved.Close(), d.Unlimited.Close())
}

// Text returns the text of a statement of the store. It panics if there is no statement with that name.
func (d *DB) Text(name string) string { return statement.Text(d.statements, name) }

func (d *DB) own(name string) string { return statement.Text(d.ownTexts, name) }

// All reads every row of a statement into dest, a pointer to a slice of structs. q is a pool, a session or a
// transaction.
func (d *DB) All(ctx context.Context, q store.Tx, dest any, name string, args ...any) error {
	return all(ctx, q, dest, d.Text(name), args...)
}

func all(ctx context.Context, q store.Tx, dest any, text string, args ...any) error {
	rows, err := q.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	return column.Rows(rows, dest)
}

// One returns the first row of a statement, or sql.ErrNoRows if there is none.
func One[Row any](ctx context.Context, d *DB, q store.Tx, name string, args ...any) (Row, error) {
	return one[Row](ctx, q, d.Text(name), args...)
}

func one[Row any](ctx context.Context, q store.Tx, text string, args ...any) (Row, error) {
	var rows []Row
	err := all(ctx, q, &rows, text, args...)
	if err == nil && len(rows) == 0 {
		err = sql.ErrNoRows
	}
	if err != nil {
		var none Row
		return none, err
	}
	return rows[0], nil
}

// Exec runs a statement and returns the number of rows that it changed.
func (d *DB) Exec(ctx context.Context, q store.Tx, name string, args ...any) (int, error) {
	return exec(ctx, q, d.Text(name), args...)
}

func exec(ctx context.Context, q store.Tx, text string, args ...any) (int, error) {
	result, err := q.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// Tx runs f in a transaction on Main. It rolls the transaction back if f returns an error or panics.
func (d *DB) Tx(ctx context.Context, f func(*sqlx.Tx) error) error {
	tx, err := d.Main.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// tries is the maximum number of calls of an operation by Do, if each call fails with a conflict.
const tries = 6

// The first and the longest pause between tries.
const (
	firstPause = 10 * time.Millisecond
	longPause  = 100 * time.Millisecond
)

// Do calls f and translates its error. If f fails with a deadlock or a serialization failure, Do calls it again, at
// most five times. f must reset the variables that it writes, because an earlier call may have failed halfway.
func (d *DB) Do(ctx context.Context, operation string, f func() error) error {
	pause := backoff.New(firstPause, longPause)
	for attempt := 1; ; attempt++ {
		err := f()
		if err == nil || attempt == tries || !Transient(err) || pause.Wait(ctx) != nil {
			return Translate(ctx, operation, err)
		}
		d.log.WithError(err).WithField("operation", operation).Debug("conflict with another transaction, trying again")
	}
}
