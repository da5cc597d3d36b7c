package simstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast/presence"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Gate decides when a step of a client takes place. It calls effect at most once, never while another effect of the
// same Store takes place, and returns afterwards; if it returns nil it has called it. An error says that the client
// cannot know whether the effect took place: the client's call fails with an ErrUnavailable, or as the context ended.
//
// A gate may also call effect later, after it has returned an error: as a server carries out a statement that nobody waits for
// any more.
type Gate func(ctx context.Context, step Step, effect func()) error

// open is the gate of those who have none.
func (s *Store) open(_ context.Context, _ Step, effect func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	effect()
	return nil
}

// Client is what one process has of a Store: its connections, and what its adapter remembers. It is safe for
// concurrent use.
type Client struct {
	store    *Store
	gate     Gate
	herald   Herald // nil: what the server says unasked arrives at once
	closed   atomic.Bool
	sweeping atomic.Bool // Abandoned has found tasks at its last look at all
	lives    int         // of its connections: ends open transactions by growing; belongs to effects

	mu    sync.Mutex
	heard map[holdfast.RunID][]int64 // cancellations that the last renewal brought; the next one deletes them
	lanes map[string]bool            // that it has stored, and does not store again
	own   map[holdfast.RunID]*renewer
}

var (
	_ store.Store    = (*Client)(nil)
	_ presence.Store = (*Client)(nil)
)

// Disconnect breaks the client's connections: what it has open is rolled back, and its sessions end. It has new ones for its
// next step, and learns that the others are gone. It is called as an effect is, never beside one.
func (c *Client) Disconnect() {
	c.lives++
	c.store.endAll(func(other *Client) bool { return other == c })
}

// Close implements store.Store: signs end. If the server does not hear of it, Disconnect tells it.
func (c *Client) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	_ = c.do(ctx, Step{Op: "Close", tableless: true}, func(time.Time) error {
		c.Disconnect()
		return nil
	})
	return nil
}

// do sends a step through the gate and returns the error of f, which is the effect. After another error f may take place
// at any time, so what it reads must be nobody else's, and what it writes must not be looked at.
func (c *Client) do(ctx context.Context, step Step, f func(now time.Time) error) error {
	if err := ctx.Err(); err != nil {
		return ended(step.Op, err)
	}
	e := &effect{store: c.store, op: step.Op, tableless: step.tableless, f: f}
	err := c.gate(ctx, step, e.take)
	switch {
	case err != nil && ctx.Err() != nil:
		return ended(step.Op, ctx.Err())
	case errors.Is(err, holdfast.ErrUnavailable):
		return fmt.Errorf("%s: %w", step.Op, err)
	case err != nil:
		return fmt.Errorf("%s: %w: %w", step.Op, holdfast.ErrUnavailable, err)
	case !e.took:
		panic("simstore: the gate let " + step.Op + " pass without its effect")
	case e.failed != nil:
		return fmt.Errorf("%s: %w", step.Op, e.failed)
	}
	return nil
}

// effect is an atomic action that may take place once.
type effect struct {
	store     *Store
	op        string
	tableless bool
	f         func(now time.Time) error

	took   bool
	failed error
}

func (e *effect) take() {
	if e.took || !e.store.busy.CompareAndSwap(false, true) {
		panic("simstore: the gate lets " + e.op + " take place twice, or beside another effect")
	}
	defer e.store.busy.Store(false)
	e.took = true
	if e.store.db.migratedAt.IsZero() && !e.tableless {
		e.failed = fmt.Errorf("%w: there are no tables; migrate up", store.ErrSchema)
		return
	}
	e.failed = e.f(e.store.now())
}

// ended is the error for a context that is over. Whether the server would have answered in time nobody knows.
func ended(op string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w: no answer in time: %w", op, holdfast.ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", op, err)
}

// transaction is what holds the locks of rows that a client has in its hands between two effects. The rows
// point to it, and are free as soon as it does not hold any more.
type transaction struct {
	client *Client
	epoch  int
	lives  int
	began  time.Time
	over   atomic.Bool // set by the client, which may do so beside an effect of somebody else
}

// idleLimit is how long a server waits for the next statement of a transaction. A process that is frozen meanwhile lets
// its rows go after it.
const idleLimit = 11 * time.Second

// begin must come inside an effect.
func (t *transaction) begin(now time.Time) {
	t.epoch, t.lives, t.began = t.client.store.epoch, t.client.lives, now
}

func (t *transaction) holds(now time.Time) bool {
	return t != nil && t.client != nil && !t.over.Load() &&
		t.epoch == t.client.store.epoch && t.lives == t.client.lives && now.Sub(t.began) <= idleLimit
}

// commit ends the transaction. It is an ErrUnavailable if it is gone already.
func (t *transaction) commit(now time.Time) error {
	if !t.holds(now) {
		return fmt.Errorf("%w: the connection was lost and the transaction with it", holdfast.ErrUnavailable)
	}
	t.over.Store(true)
	return nil
}
