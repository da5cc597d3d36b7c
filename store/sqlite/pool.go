package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"
	"modernc.org/sqlite"

	"github.com/holdfastq/holdfast/internal/backoff"
)

var errClosed = errors.New("the store is closed")

// pool lends sessions to goroutines in the order of their calls. The pool of database/sql has no such order.
type pool struct {
	db    *sqlx.DB
	texts map[string]string
	free  chan *session // open sessions
	// first passes a returned session to a caller that takes precedence. It has no buffer.
	first chan *session
	// unopened has a value for each connection that may be opened. Opening one costs more than most statements, because
	// SQLite reads the whole schema.
	unopened chan struct{}
	// retryBusy calls a function until no other process holds a lock that it needs; see database.
	retryBusy func(context.Context, func() error) error
	closed    chan struct{}
	once      sync.Once
}

func newPool(c driver.Connector, size int, texts map[string]string) *pool {
	p := &pool{db: sqlx.NewDb(sql.OpenDB(c), "sqlite"), texts: texts, free: make(chan *session, size), first: make(chan *session), unopened: make(chan struct{}, size), closed: make(chan struct{})}
	for range size {
		p.unopened <- struct{}{}
	}
	return p
}

// order is the place of a call among the calls that wait for a session.
type order int

const (
	inTurn order = iota // behind all earlier calls
	first               // before all calls that wait in turn
)

// with calls f with a session of the pool. It replaces the session after an error of the driver, and after a statement
// that may have been interrupted.
func (p *pool) with(ctx context.Context, place order, f func(*session) error) error {
	c, err := p.get(ctx, place)
	if err != nil {
		return err
	}
	reusable := false // stays false if f panics
	defer func() { p.put(c, reusable) }()
	err = f(c)
	_, ofDriver := errors.AsType[*sqlite.Error](err)
	reusable = !ofDriver && (err == nil || ctx.Err() == nil)
	return err
}

// get returns a session. It waits for a free one, and opens a connection only if all open ones are in use.
func (p *pool) get(ctx context.Context, place order) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case <-p.closed:
		return nil, errClosed
	default:
	}
	select {
	case c := <-p.free: // free is empty while other callers wait, so this call cannot overtake them
		return c, nil
	default:
	}
	var early chan *session // nil for a call in turn, which therefore receives nothing from it
	if place == first {
		early = p.first
	}
	select {
	case c := <-early:
		return c, nil
	case c := <-p.free:
		return c, nil
	case <-p.unopened:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.closed:
		return nil, errClosed
	}
	var conn *sqlx.Conn
	err := p.retryBusy(ctx, func() error {
		var err error
		conn, err = p.db.Connx(ctx)
		return err
	})
	if err != nil {
		p.unopened <- struct{}{}
		return nil, fmt.Errorf("connect: %w", err)
	}
	return &session{conn: conn, texts: p.texts, prepared: make(map[string]*sql.Stmt)}, nil
}

// put returns a session to the pool. If the session is not reusable, put closes it.
func (p *pool) put(c *session, reusable bool) {
	if !reusable || c.broken {
		_ = c.close()
		p.unopened <- struct{}{}
		return
	}
	select {
	case p.first <- c:
	default: // no call that takes precedence waits
		p.free <- c
	}
}

// close waits until all sessions are returned, and closes them. A second call does nothing.
func (p *pool) close() error {
	var err error
	p.once.Do(func() {
		close(p.closed)
		for range cap(p.free) {
			select {
			case c := <-p.free:
				err = errors.Join(err, c.close())
			case <-p.unopened:
			}
		}
		err = errors.Join(err, p.db.Close())
	})
	return err
}

// abandon waits until all sessions are returned, as close does, and leaves them open.
func (p *pool) abandon() {
	p.once.Do(func() {
		close(p.closed)
		for range cap(p.free) {
			select {
			case <-p.free:
			case <-p.unopened:
			}
		}
	})
}

const (
	// burstLimit is how long this process writes before it pauses for other processes.
	burstLimit = 20 * time.Millisecond
	// burstPause is the length of that pause. Other processes try to get the lock every millisecond: see retryBusy.
	burstPause = 2 * time.Millisecond
)

// writer is a pool with one session, which writes. SQLite does not order the processes that wait for its lock. A
// process that writes without a pause would block all other processes until their leases expire.
type writer struct {
	*pool
	limit time.Duration // maximum wait for other processes
	early atomic.Int32  // number of calls with the order first that wait or run

	// burstBegan is the start of the current burst of calls, and lastEnded the end of the latest call in it. Only the
	// goroutine that has the session may use them.
	burstBegan, lastEnded time.Time
}

func (w *writer) with(ctx context.Context, place order, f func(*session) error) error {
	if place == first {
		w.early.Add(1)
		defer w.early.Add(-1)
	}
	return w.pool.with(ctx, place, func(c *session) error {
		now := time.Now()
		switch {
		case now.Sub(w.lastEnded) > burstPause:
			w.burstBegan = now
		case now.Sub(w.burstBegan) > burstLimit:
			if err := backoff.Sleep(ctx, burstPause); err != nil {
				return err
			}
			w.burstBegan = time.Now()
		}
		defer func() { w.lastEnded = time.Now() }()
		return f(c)
	})
}
