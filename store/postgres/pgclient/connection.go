package pgclient

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
)

// lib/pq waits for the server's answer even after the context has ended. If a connection breaks, database/sql repeats
// the statement, even if the server may have committed it. The types of this file wrap lib/pq and change both. The end
// of a context ends the network connection. If a connection breaks after something was sent, the error is errLost.

const (
	statementTimeout = 30 * time.Second
	connectTimeout   = 5 * time.Second
	// idleInTransaction ends the transaction of a frozen process, which unlocks its rows.
	idleInTransaction = 30 * time.Second
	// cancelGrace is how long the server has to answer a cancel request, which lib/pq sends over a second connection
	// when a context ends. After that time the connection is cut.
	cancelGrace = 50 * time.Millisecond
	// cancelLimit is the time limit of a cancel request. The end of a prepared statement waits for the request.
	cancelLimit = time.Second
	// readTimeout is the longest time that one read or write may take. It is longer than statementTimeout, so that a
	// working server reports its own timeout first.
	readTimeout = statementTimeout + 5*time.Second
)

// errLost means that a connection broke after a statement was sent. The server may or may not have executed the
// statement.
var errLost = errors.New("the connection to PostgreSQL was lost")

// connector makes connections with limits and parameters.
type connector struct {
	config      pq.Config
	parameters  Parameters      // parameters of the session
	local       Parameters      // additional parameters of each transaction
	readTimeout time.Duration   // 0 means no limit
	prepare     map[string]bool // texts of the statements that each connection prepares and keeps
	mixed       *atomic.Bool    // set if a connection does not find its prepared statement; nil if connections prepare none

	// first is an open connection without parameters, which the next call of Connect uses; nil if there is none.
	first atomic.Pointer[conn]
}

// pool returns a pool of at most conns connections. It keeps as many idle connections. If conns is unpooled, the pool
// has no limit and keeps none.
func (c *connector) pool(conns int) *sqlx.DB {
	db := sqlx.NewDb(sql.OpenDB(c), "postgres")
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	db.SetConnMaxIdleTime(5 * time.Minute)
	return db
}

// unpooled makes a pool that has no limit and keeps no idle connection.
const unpooled = -1

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	if kept := c.first.Swap(nil); kept != nil {
		if made, err := c.adopt(ctx, kept); err == nil {
			return made, nil
		}
	}
	made, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	return made, nil
}

// adopt prepares kept, an open connection, as this connector prepares its own connections. It closes kept if it returns
// an error.
func (c *connector) adopt(ctx context.Context, kept *conn) (*conn, error) {
	err := kept.ResetSession(ctx) // the server may have closed the connection
	if err == nil && len(c.parameters) > 0 {
		release := kept.guard(ctx)
		err = c.parameters.send(ctx, kept.pqConn, false)
		release()
	}
	if err != nil || !kept.IsValid() {
		_ = kept.Close()
		return nil, errors.Join(driver.ErrBadConn, err)
	}
	return c.wrap(kept.pqConn, kept.wire), nil
}

// dropFirst closes the first connection if Connect has not used it.
func (c *connector) dropFirst() {
	if kept := c.first.Swap(nil); kept != nil {
		_ = kept.Close()
	}
}

// Close implements io.Closer. A pool calls it when it closes.
func (c *connector) Close() error {
	c.dropFirst()
	return nil
}

// open opens a connection with the parameters of the session.
func (c *connector) open(ctx context.Context) (*conn, error) {
	inner, err := pq.NewConnectorConfig(c.config.Clone())
	if err != nil {
		return nil, err
	}
	dialer := &dialer{}
	inner.Dialer(dialer)
	stop := context.AfterFunc(ctx, dialer.cut)
	opened, err := inner.Connect(ctx)
	if err == nil && len(c.parameters) > 0 {
		dialer.last().silence.Store(int64(c.readTimeout))
		if err = c.parameters.send(ctx, opened.(driver.ExecerContext), false); err != nil {
			_ = opened.Close()
			opened = nil
		}
	}
	if !stop() || ctx.Err() != nil {
		if err == nil {
			_ = opened.Close()
		}
		return nil, fmt.Errorf("connect: %w", context.Cause(ctx))
	}
	if err != nil {
		return nil, err
	}
	return c.wrap(opened.(pqConn), dialer.connected()), nil
}

// wrap returns a connection with the properties of the connector.
func (c *connector) wrap(opened pqConn, wire *wire) *conn {
	wire.silence.Store(int64(c.readTimeout))
	return &conn{pqConn: opened, wire: wire, local: c.local, prepare: c.prepare, mixed: c.mixed, prepared: make(map[string]pqStmt)}
}

// Driver implements driver.Connector.
func (c *connector) Driver() driver.Driver { return &pq.Driver{} }

// pqConn has the methods of a connection of lib/pq.
type pqConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
	driver.NamedValueChecker
}

// pqStmt has the methods of a prepared statement of lib/pq.
type pqStmt interface {
	driver.Stmt
	driver.StmtQueryContext
	driver.StmtExecContext
}

type conn struct {
	pqConn
	wire     *wire
	local    Parameters      // parameters of each transaction
	prepare  map[string]bool // texts of the statements to prepare
	mixed    *atomic.Bool
	prepared map[string]pqStmt
}

// statement returns the prepared statement of a text, or nil if the text is not among those to prepare. Planning a
// statement for a few rows takes longer than executing it.
func (c *conn) statement(ctx context.Context, query string) (pqStmt, error) {
	if !c.prepare[query] {
		return nil, nil
	}
	if kept := c.prepared[query]; kept != nil {
		return kept, nil
	}
	made, err := c.pqConn.PrepareContext(ctx, query)
	if err != nil {
		c.outdated(query, err)
		return nil, err
	}
	c.prepared[query] = made.(pqStmt)
	return c.prepared[query], nil
}

// outdated deletes a prepared statement if err means that the server can no longer execute it. The next call prepares
// it again.
func (c *conn) outdated(query string, err error) {
	if isOutdated(err) {
		delete(c.prepared, query)
	}
	if isMixed(err) {
		c.mixed.Store(true)
	}
}

// guard cuts the connection when ctx ends before the returned function is called.
func (c *conn) guard(ctx context.Context) (release func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	stop := context.AfterFunc(ctx, func() { c.wire.cut(cancelGrace) })
	return func() {
		if !stop() {
			c.wire.cut(0) // the cut has already begun, and must not hit the next user of the connection
		}
	}
}

// lost replaces driver.ErrBadConn with errLost if anything was sent since the mark, because database/sql repeats a
// statement after driver.ErrBadConn.
func (c *conn) lost(err error, mark int64) error {
	if errors.Is(err, driver.ErrBadConn) && c.wire.written.Load() != mark {
		return errLost
	}
	return err
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	mark, release := c.wire.written.Load(), c.guard(ctx)
	var inner driver.Rows
	prepared, err := c.statement(ctx, query)
	switch {
	case err != nil:
	case prepared != nil:
		inner, err = prepared.QueryContext(ctx, args)
		c.outdated(query, err)
	default:
		inner, err = c.pqConn.QueryContext(ctx, query, args)
	}
	if err != nil {
		release()
		return nil, c.lost(err, mark)
	}
	return &rows{Rows: inner, conn: c, mark: mark, release: release}, nil
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	mark, release := c.wire.written.Load(), c.guard(ctx)
	defer release()
	prepared, err := c.statement(ctx, query)
	if err != nil {
		return nil, c.lost(err, mark)
	}
	var result driver.Result
	if prepared != nil {
		result, err = prepared.ExecContext(ctx, args)
		c.outdated(query, err)
	} else {
		result, err = c.pqConn.ExecContext(ctx, query, args)
	}
	return result, c.lost(err, mark)
}

// BeginTx implements driver.ConnBeginTx.
func (c *conn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	release := c.guard(ctx)
	inner, err := c.pqConn.BeginTx(ctx, options)
	if err != nil {
		release()
		return nil, err // repeating a BEGIN is harmless
	}
	if len(c.local) > 0 {
		if err := c.local.send(ctx, c.pqConn, true); err != nil {
			_ = inner.Rollback()
			release()
			return nil, err // the server has also reverted the parameters
		}
	}
	return &tx{Tx: inner, conn: c, release: release}, nil
}

// Ping implements driver.Pinger.
func (c *conn) Ping(ctx context.Context) error {
	defer c.guard(ctx)()
	return c.pqConn.Ping(ctx)
}

// IsValid implements driver.Validator.
func (c *conn) IsValid() bool { return !c.wire.wasCut() && c.pqConn.IsValid() }

// ResetSession implements driver.SessionResetter. It detects that the server has closed the connection while it was
// idle, so that no statement fails after a restart of the server.
func (c *conn) ResetSession(ctx context.Context) error {
	if c.wire.wasCut() || hungUp(c.wire.Conn) {
		return driver.ErrBadConn
	}
	return c.pqConn.ResetSession(ctx)
}

// rows ends the guard when the rows are closed.
type rows struct {
	driver.Rows
	conn    *conn
	mark    int64
	release func()
}

func (r *rows) Next(into []driver.Value) error { return r.conn.lost(r.Rows.Next(into), r.mark) }

func (r *rows) Close() error {
	defer r.release()
	return r.conn.lost(r.Rows.Close(), r.mark)
}

// tx ends the guard at the end of the transaction.
type tx struct {
	driver.Tx
	conn    *conn
	release func()
}

func (t *tx) Commit() error {
	defer t.release()
	return t.conn.lost(t.Tx.Commit(), -1)
}

func (t *tx) Rollback() error {
	defer t.release()
	return t.Tx.Rollback()
}
