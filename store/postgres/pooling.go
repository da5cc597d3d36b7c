package postgres

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"github.com/holdfastq/holdfast"
)

// pooling is how connections share the sessions of the server.
type pooling int

const (
	// ownSession: each connection has a session of its own. There is no pooler, or the pooler is in session mode.
	ownSession pooling = iota
	// lentSession: a pooler lends a session for each transaction, and tracks the prepared statements of each
	// connection.
	lentSession
	// mixedSession: a pooler lends a session for each transaction, and does not track prepared statements. A connection
	// may find the prepared statements of another connection in its session.
	mixedSession
)

const (
	// poolingRounds is how many times the probe queries the sessions of its two connections.
	poolingRounds = 8
	// sessionWait is how long the second connection may wait for a session.
	sessionWait = 2 * time.Second
)

// errCrowded means that the second connection of a probe got no session. Either the pooler is in session mode and has
// only one session, or it is in transaction mode and other clients use all its sessions.
var errCrowded = holdfast.WithHint(
	fmt.Errorf("%w: a connection pooler gave no session to a second connection within %s, so its mode is unknown", holdfast.ErrUnavailable, sessionWait),
	holdfast.Advice("try again when it is less busy, or give it more sessions (PgBouncer: default_pool_size), see docs/poolers.md"))

// errMixed is the error for poolers of the kind mixedSession.
var errMixed = holdfast.WithHint(
	fmt.Errorf("%w: a connection pooler lends the sessions of PostgreSQL for single transactions and does not track prepared statements", holdfast.ErrInvalid),
	holdfast.Advice("connect directly, or in the pooler's session mode, or let it track them (PgBouncer 1.21 or later: max_prepared_statements), see docs/poolers.md"))

// poolingOf returns how connections share sessions. If the server reports the client's own port, the connection is
// direct, and one statement is enough. Otherwise poolingOf compares the sessions of two connections. A pooler with few
// sessions gives the same session to both connections. A pooler that spreads connections changes the session of each
// connection. If the second connection gets no session, poolingOf returns an error, because both modes are possible.
func poolingOf(ctx context.Context, config pq.Config) (pooling, error) {
	db := open(&connector{config: config, readTimeout: readTimeout}, 2)
	defer db.Close()
	var conns [2]*sqlx.Conn
	var sessions [2]int64
	for i := range conns {
		var err error
		if conns[i], err = db.Connx(ctx); err != nil {
			return 0, err
		}
		defer conns[i].Close()
		limited, cancel := ctx, context.CancelFunc(func() {})
		if i == 1 {
			limited, cancel = context.WithTimeout(ctx, sessionWait)
		}
		port, err := backend(limited, conns[i], &sessions[i])
		late := limited.Err() != nil
		cancel()
		switch {
		case err != nil && late && ctx.Err() == nil:
			return 0, errCrowded
		case err != nil:
			return 0, err
		}
		if i == 0 && port == localPort(conns[0]) {
			return ownSession, nil
		}
	}
	for range poolingRounds {
		for _, i := range []int{1, 0, 0, 1} {
			var session int64
			if _, err := backend(ctx, conns[i], &session); err != nil {
				return 0, err
			}
			if session != sessions[i] || session == sessions[1-i] {
				return tracking(ctx, conns)
			}
		}
	}
	return ownSession, nil
}

//go:embed sql/pooler_session.sql
var sessionText string

// backend sets session to the ID of the connection's server process, and returns the client's port as the server sees
// it. The port of a Unix socket is 0.
func backend(ctx context.Context, conn *sqlx.Conn, session *int64) (port int, err error) {
	err = conn.QueryRowContext(ctx, sessionText).Scan(session, &port)
	return port, err
}

// localPort returns the local port of a connection, or -1 if it has none.
func localPort(db *sqlx.Conn) int {
	port := -1
	_ = db.Raw(func(driver any) error {
		if address, ok := driver.(*conn).wire.LocalAddr().(*net.TCPAddr); ok {
			port = address.Port
		}
		return nil
	})
	return port
}

// tracking returns lentSession if the pooler tracks the prepared statements of each connection, and mixedSession if it
// does not. Both connections give their statements the same names.
func tracking(ctx context.Context, conns [2]*sqlx.Conn) (pooling, error) {
	kind, err := lentSession, error(nil)
	texts := [2]string{"select $1::int + 0", "select $1::int + 1"}
	var prepared [2]*sql.Stmt
	for i, conn := range conns {
		if prepared[i], err = conn.PrepareContext(ctx, texts[i]); err != nil {
			break
		}
		defer prepared[i].Close()
	}
	for range poolingRounds {
		for _, i := range []int{0, 1, 1, 0} {
			if err != nil || kind == mixedSession {
				break
			}
			var sum int
			err = prepared[i].QueryRowContext(ctx, 40).Scan(&sum)
			if err == nil && sum != 40+i {
				kind = mixedSession
			}
		}
	}
	if isMixed(err) {
		kind, err = mixedSession, nil
	}
	if kind == mixedSession { // leave no prepared statement in a session that other connections use
		for _, conn := range conns {
			_, _ = conn.ExecContext(ctx, "deallocate all")
		}
	}
	return kind, err
}

// isMixed reports whether err means that a connection found the prepared statement of another connection, or did not
// find its own.
func isMixed(err error) bool {
	return pq.As(err, pqerror.InvalidSQLStatementName, pqerror.DuplicatePstatement, pqerror.ProtocolViolation) != nil
}

// Ready returns an error that wraps holdfast.ErrInvalid if a pooler does not track prepared statements. It probes the
// pooler again only after a connection has not found its prepared statement.
func (s *Store) Ready(ctx context.Context) error {
	if !s.mixed.Load() {
		return nil
	}
	kind, err := poolingOf(ctx, s.config)
	switch {
	case err != nil:
		return translate(ctx, "probe the connection pooler", err)
	case kind == mixedSession:
		return errMixed
	case kind != s.pooling:
		return errors.New("the connection pooler has changed its mode since the start: restart this process")
	}
	s.mixed.Store(false)
	return nil
}

// KeepsSessions reports whether the store has sessions of its own. Presence requires them.
func (s *Store) KeepsSessions() bool { return s.sessions }
