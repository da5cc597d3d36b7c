package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"
	"modernc.org/sqlite"

	"github.com/holdfastq/holdfast/internal/backoff"
)

var errClosed = errors.New("the store is closed")

// pool lends sessions to goroutines in the order they came, which the pool of database/sql does not.
type pool struct {
	db    *sqlx.DB
	texts map[string]string
	free  chan *session // a nil session is a connection that is not open yet
	// patiently repeats what another process is in the way of.
	patiently func(context.Context, func() error) error
	closed    chan struct{}
	once      sync.Once
}

func newPool(c driver.Connector, size int, texts map[string]string) *pool {
	p := &pool{db: sqlx.NewDb(sql.OpenDB(c), "sqlite"), texts: texts, free: make(chan *session, size), closed: make(chan struct{})}
	for range size {
		p.free <- nil
	}
	return p
}

// with calls f with a session, which goes back to the others afterwards. A session that an error of the driver
// came from, or that may have been interrupted, is replaced.
func (p *pool) with(ctx context.Context, f func(*session) error) error {
	c, err := p.take(ctx)
	if err != nil {
		return err
	}
	sound := false // not if f panics
	defer func() { p.give(c, sound) }()
	err = f(c)
	_, ofDriver := errors.AsType[*sqlite.Error](err)
	sound = !ofDriver && (err == nil || ctx.Err() == nil)
	return err
}

func (p *pool) take(ctx context.Context) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var c *session
	select {
	case c = <-p.free:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.closed:
		return nil, errClosed
	}
	if c != nil {
		return c, nil
	}
	var conn *sqlx.Conn
	err := p.patiently(ctx, func() error {
		var err error
		conn, err = p.db.Connx(ctx)
		return err
	})
	if err != nil {
		p.free <- nil
		return nil, fmt.Errorf("connect: %w", err)
	}
	return &session{conn: conn, texts: p.texts, prepared: make(map[string]*sql.Stmt)}, nil
}

func (p *pool) give(c *session, sound bool) {
	if !sound || c.broken {
		_ = c.close()
		c = nil
	}
	p.free <- c
}

// close waits for those who have a session and ends all of them. It may be called more than once.
func (p *pool) close() error {
	var err error
	p.once.Do(func() {
		close(p.closed)
		for range cap(p.free) {
			if c := <-p.free; c != nil {
				err = errors.Join(err, c.close())
			}
		}
		err = errors.Join(err, p.db.Close())
	})
	return err
}

const (
	// longTurn is for how long this process keeps others from writing before it lets them in.
	longTurn = 20 * time.Millisecond
	// breath is how long it lets other processes write. They try every millisecond: see patiently.
	breath = 2 * time.Millisecond
)

// writer is a pool of one session. SQLite gives its lock to whoever asks at the right moment, so a process that
// writes without a pause would keep out all others, and their leases would run out.
type writer struct {
	*pool
	limit time.Duration // the longest wait for other processes

	began, ended time.Time // of the uninterrupted turn; of its last call. They belong to who has the session.
}

func (w *writer) with(ctx context.Context, f func(*session) error) error {
	return w.pool.with(ctx, func(c *session) error {
		now := time.Now()
		switch {
		case now.Sub(w.ended) > breath:
			w.began = now
		case now.Sub(w.began) > longTurn:
			if err := backoff.Sleep(ctx, breath); err != nil {
				return err
			}
			w.began = time.Now()
		}
		defer func() { w.ended = time.Now() }()
		return f(c)
	})
}
