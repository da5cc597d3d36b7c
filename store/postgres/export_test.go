package postgres

import (
	"context"
	"database/sql"
	"strings"
)

// RangeSize is how many ids one statement of a walk looks at.
const RangeSize = rangeSize

// Text returns a statement as it is sent.
func (s *Store) Text(name string) string { return s.text(name) }

// Conn returns a connection with the settings that all of the store's have.
func (s *Store) Conn(ctx context.Context) (*sql.Conn, error) { return s.db.Conn(ctx) }

// Begin begins a transaction on one of the store's connections.
func (s *Store) Begin(ctx context.Context) (*sql.Tx, error) { return s.db.DB.BeginTx(ctx, nil) }

// SetHistory has renewals ask for something else than the timeline.
func (s *Store) SetHistory(expression string) {
	s.statements[renew] = strings.Replace(s.statements[renew], s.statements[history], expression, 1)
}

// SetClock has another clock decide whether published tasks are due, until the function it returns is called.
func (s *Store) SetClock(expression string) (restore func()) {
	before := s.statements["dispatch_due_mark"]
	s.statements["dispatch_due_mark"] = strings.ReplaceAll(before, "clock_timestamp()", expression)
	return func() { s.statements["dispatch_due_mark"] = before }
}
