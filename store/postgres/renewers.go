package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"

	"github.com/jmoiron/sqlx"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// renewers are the sessions that carry the renewals of one run each, and hold a sign of it.
type renewers struct {
	db *sqlx.DB

	mu       sync.Mutex
	sessions map[holdfast.RunID]*sql.Conn
	closed   bool
}

// renewer returns the session for a run's renewals. It opens one if there is none, or if the server has ended it.
func (s *Store) renewer(ctx context.Context, run holdfast.RunID) (store.Tx, error) {
	r := &s.renewers
	r.mu.Lock()
	session := r.sessions[run]
	r.mu.Unlock()
	if session != nil {
		if session.Raw(func(inner any) error { return inner.(driver.SessionResetter).ResetSession(ctx) }) == nil {
			return session, nil
		}
		r.end(run)
	}
	session, err := r.db.DB.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err = one[struct{ Held bool }](ctx, s, session, "presence_renewing", int64(run)); errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("%w: the incarnation is missing; %s", store.ErrSchema, migrateHint)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && r.closed {
		err = fmt.Errorf("%w: the store was closed", holdfast.ErrUnavailable)
	}
	if err != nil {
		_ = session.Close() // the reason is known
		return nil, err
	}
	if r.sessions == nil {
		r.sessions = make(map[holdfast.RunID]*sql.Conn)
	}
	r.sessions[run] = session
	return session, nil
}

// end ends the session for a run's renewals, if there is one.
func (r *renewers) end(run holdfast.RunID) {
	r.mu.Lock()
	session := r.sessions[run]
	delete(r.sessions, run)
	r.mu.Unlock()
	if session != nil {
		_ = session.Close() // an error says that the session has ended already
	}
}

// close ends all sessions.
func (r *renewers) close() error {
	r.mu.Lock()
	sessions := r.sessions
	r.sessions, r.closed = nil, true
	r.mu.Unlock()
	for _, session := range sessions {
		_ = session.Close()
	}
	return r.db.Close()
}
