package postgres

import (
	"context"
	"database/sql"
	"regexp"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
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
	asked := regexp.MustCompile(`(?s)select draining, .*? as history`)
	s.statements[renew] = asked.ReplaceAllLiteralString(s.statements[renew], "select draining, "+expression+" as history")
}

// SetClock has another clock decide whether published tasks are due, until the function it returns is called.
func (s *Store) SetClock(expression string) (restore func()) {
	before := s.statements["dispatch_due_mark"]
	s.statements["dispatch_due_mark"] = strings.ReplaceAll(before, "clock_timestamp()", expression)
	return func() { s.statements["dispatch_due_mark"] = before }
}

// SetServerStart has another expression say when the server started.
func (s *Store) SetServerStart(expression string) {
	text := s.statements["unticket_lost_bound"]
	s.statements["unticket_lost_bound"] = strings.ReplaceAll(text, "pg_postmaster_start_time()", expression)
}

// Look is a call of UnticketLost that does one step at a time, and waits for no transaction.
type Look struct {
	s    *Store
	scan lostScan
}

// BeginLook begins a call of UnticketLost.
func (s *Store) BeginLook(ctx context.Context, slack time.Duration) (*Look, error) {
	l := &Look{s: s, scan: lostScan{slack: slack}}
	var err error
	if l.scan.lanes, l.scan.moments, err = s.proofs(ctx, "look", slack); err != nil {
		return nil, err
	}
	return l, s.beginLostScan(ctx, &l.scan, 0)
}

// Step does the next step and reports whether there are more.
func (l *Look) Step(ctx context.Context) (more bool, err error) {
	var did lostStep
	err = l.s.tx(ctx, func(tx *sqlx.Tx) error {
		var err error
		did, err = l.s.lostStep(ctx, tx, &l.scan)
		return err
	})
	l.scan.resume = did.resume
	return did.more, err
}

// End ends the call, as after its last step or at its limit.
func (l *Look) End(ctx context.Context) error {
	_, err := l.s.exec(ctx, l.s.db, "unticket_lost_resume", l.scan.resume)
	return err
}
