package postgres

import (
	"context"
	"database/sql"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
)

// RangeSize is the number of ids that one statement of a range scan reads.
const RangeSize = rangeSize

// Text returns the text of a statement as the store sends it.
func (s *Store) Text(name string) string { return s.text(name) }

// Texts returns the texts of all statements by name.
func (s *Store) Texts() map[string]string { return maps.Clone(s.statements) }

// Conn returns a connection with the settings of the store.
func (s *Store) Conn(ctx context.Context) (*sql.Conn, error) { return s.db.Conn(ctx) }

// Begin begins a transaction on a connection of the store.
func (s *Store) Begin(ctx context.Context) (*sql.Tx, error) { return s.db.DB.BeginTx(ctx, nil) }

// SetHistory makes renewals read expression instead of the timeline.
func (s *Store) SetHistory(expression string) {
	pattern := regexp.MustCompile(`(?s)select draining, .*? as history`)
	s.statements[renew] = pattern.ReplaceAllLiteralString(s.statements[renew], "select draining, "+expression+" as history")
}

// SetClock replaces the clock that decides whether published tasks are due, until restore is called.
func (s *Store) SetClock(expression string) (restore func()) {
	before := s.statements["dispatch_due_mark"]
	s.statements["dispatch_due_mark"] = strings.ReplaceAll(before, "clock_timestamp()", expression)
	return func() { s.statements["dispatch_due_mark"] = before }
}

// SetServerStart replaces the start time of the server with expression.
func (s *Store) SetServerStart(expression string) {
	text := s.statements["unticket_lost_bound"]
	s.statements["unticket_lost_bound"] = strings.ReplaceAll(text, "pg_postmaster_start_time()", expression)
}

// LostScan is a call of UnticketLost that executes single steps, and does not wait for transactions.
type LostScan struct {
	s    *Store
	scan lostScan
}

// BeginLostScan begins a call of UnticketLost.
func (s *Store) BeginLostScan(ctx context.Context, slack time.Duration) (*LostScan, error) {
	l := &LostScan{s: s, scan: lostScan{slack: slack}}
	var err error
	if l.scan.queues, l.scan.moments, err = s.proofs(ctx, "scan", slack); err != nil {
		return nil, err
	}
	return l, s.beginLostScan(ctx, &l.scan, 0)
}

// Step executes the next step and reports whether there are more.
func (l *LostScan) Step(ctx context.Context) (more bool, err error) {
	var result lostStep
	err = l.s.tx(ctx, func(tx *sqlx.Tx) error {
		var err error
		result, err = l.s.lostStep(ctx, tx, &l.scan)
		return err
	})
	l.scan.resume = result.resume
	return result.more, err
}

// End ends the call, as UnticketLost does after the last step or at its time limit.
func (l *LostScan) End(ctx context.Context) error {
	_, err := l.s.exec(ctx, l.s.db, "unticket_lost_resume", l.scan.resume)
	return err
}
