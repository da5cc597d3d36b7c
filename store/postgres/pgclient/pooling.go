package pgclient

import (
	"context"
	"database/sql"
	"database/sql/driver"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store/internal/statement"
)

// pooling is how connections use the sessions of the server.
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

// probe returns how connections use sessions. If the server reports the client's own port, the connection is direct,
// and one statement is enough. Then probe also returns the connection, without parameters, so that a pool can use it: a
// new session costs the server far more than the statement. The caller closes the connection.
func probe(ctx context.Context, config pq.Config) (kind pooling, first *conn, err error) {
	c := &connector{config: config, readTimeout: readTimeout}
	if first, err = c.open(ctx); err != nil {
		return 0, nil, err
	}
	session, port, err := first.backend(ctx)
	switch {
	case err != nil:
		_ = first.Close()
		return 0, nil, err
	case port == first.localPort():
		return ownSession, first, nil
	}
	c.first.Store(first)
	kind, err = compare(ctx, c, session)
	return kind, nil, err
}

// compare compares the sessions of two connections. If the pooler has few sessions, both connections get the same
// session. If the pooler spreads connections, the session of each connection changes. If the second connection gets no
// session, compare returns an error, because both modes are possible. session is the session of the first connection of
// c.
func compare(ctx context.Context, c *connector, session int64) (pooling, error) {
	db := c.pool(2)
	defer db.Close()
	defer c.dropFirst()
	var conns [2]*sqlx.Conn
	for i := range conns {
		var err error
		if conns[i], err = db.Connx(ctx); err != nil {
			return 0, err
		}
		defer conns[i].Close()
	}
	sessions := [2]int64{session, 0}
	limited, cancel := context.WithTimeout(ctx, sessionWait)
	err := backend(limited, conns[1], &sessions[1])
	late := limited.Err() != nil
	cancel()
	switch {
	case err != nil && late && ctx.Err() == nil:
		return 0, errCrowded
	case err != nil:
		return 0, err
	}
	for range poolingRounds {
		for _, i := range []int{1, 0, 0, 1} {
			var session int64
			if err := backend(ctx, conns[i], &session); err != nil {
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
var sessionFile string

var sessionText = statement.Compact(sessionFile)

// backend sets session to the ID of the connection's server process.
func backend(ctx context.Context, conn *sqlx.Conn, session *int64) error {
	return conn.QueryRowContext(ctx, sessionText).Scan(session, new(int))
}

// backend returns the ID of the connection's server process, and the client's port as the server sees it. The port of a
// Unix socket is 0.
func (c *conn) backend(ctx context.Context) (session int64, port int, err error) {
	rows, err := c.QueryContext(ctx, sessionText, nil)
	if err != nil {
		return 0, 0, err
	}
	row := make([]driver.Value, 2)
	err = rows.Next(row)
	if closed := rows.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return 0, 0, err
	}
	return row[0].(int64), int(row[1].(int64)), nil
}

// localPort returns the local port of a connection, or -1 if it has none.
func (c *conn) localPort() int {
	if address, ok := c.wire.LocalAddr().(*net.TCPAddr); ok {
		return address.Port
	}
	return -1
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
	if kind == mixedSession { // other connections use the session, so leave no prepared statement in it
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
func (d *DB) Ready(ctx context.Context) error {
	if !d.mixed.Load() {
		return nil
	}
	kind, first, err := probe(ctx, d.config)
	if first != nil {
		_ = first.Close()
	}
	switch {
	case err != nil:
		return Translate(ctx, "probe the connection pooler", err)
	case kind == mixedSession:
		return errMixed
	case kind != d.pooling:
		return errors.New("the connection pooler has changed its mode since the start: restart this process")
	}
	d.mixed.Store(false)
	return nil
}

// Pooled reports whether a connection pooler lends sessions of the server for single transactions.
func (d *DB) Pooled() bool { return d.pooling == lentSession }

// KeepsSessions reports whether callers can keep sessions: no pooler is in between, or there is a direct URL.
func (d *DB) KeepsSessions() bool { return d.sessions }
