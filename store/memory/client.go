package memory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/slots"
	"github.com/holdfastq/holdfast/presence"
	"github.com/holdfastq/holdfast/store"
)

// Gate decides when a step of a client takes effect. It must call effect at most once, and never during another effect
// of the same Store. If it returns nil, it has called effect. If it returns an error, the client cannot know whether
// the effect took place. The call of the client then fails with ErrUnavailable, or with the error of its context.
//
// A gate may also call effect after it has returned an error, as a server may carry out a statement although the client
// no longer waits.
type Gate func(ctx context.Context, step Step, effect func()) error

// immediateGate is the gate of clients without one.
func (s *Store) immediateGate(_ context.Context, _ Step, effect func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	effect()
	return nil
}

// Client is the connection of one process to a Store. It is safe for concurrent use.
type Client struct {
	store     *Store
	gate      Gate
	herald    Notifier // nil: notifications of the server arrive at once
	closed    atomic.Bool
	sweeping  atomic.Bool // the last sweep of Abandoned has found tasks
	giving    slotGiving
	permitted map[string]*slots.Permits // what the process knows of the tasks with permits, by queue; used only by effects
	connEpoch int                       // a new value ends the open transactions of the client; used only by effects

	mu       sync.Mutex
	received map[holdfast.WorkerID][]int64 // cancellations that the last renewal returned; the next one deletes them
	queues   map[string]bool               // queues that this client has stored, and does not store again
	renewers map[holdfast.WorkerID]*renewer
}

var (
	_ store.Store    = (*Client)(nil)
	_ presence.Store = (*Client)(nil)
)

// Disconnect breaks the connections of the client: its open transactions are rolled back, and its sessions end. The
// client connects again for its next step, and is notified of the sessions that ended. Disconnect must be called like
// an effect, never during one.
func (c *Client) Disconnect() {
	c.connEpoch++
	c.store.endSessions(func(other *Client) bool { return other == c })
}

// Close implements store.Store: it ends the sessions of the client. If the server does not receive the message,
// Disconnect ends them.
func (c *Client) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	_ = c.do(ctx, Step{Op: "Close"}, func(time.Time) error {
		c.Disconnect()
		return nil
	})
	return nil
}

// do sends a step through the gate and returns the error of f, which is the effect. After any other error, f may run at
// any later time. Therefore f must read only data that the client does not change, and its results must not be used.
func (c *Client) do(ctx context.Context, step Step, f func(now time.Time) error) error {
	if err := ctx.Err(); err != nil {
		return contextError(step.Op, err)
	}
	e := &effect{store: c.store, op: step.Op, f: f}
	err := c.gate(ctx, step, e.take)
	switch {
	case err != nil && ctx.Err() != nil:
		return contextError(step.Op, ctx.Err())
	case errors.Is(err, holdfast.ErrUnavailable):
		return fmt.Errorf("%s: %w", step.Op, err)
	case err != nil:
		return fmt.Errorf("%s: %w: %w", step.Op, holdfast.ErrUnavailable, err)
	case !e.took:
		panic("memory: the gate returned nil for " + step.Op + " but did not call its effect")
	case e.failed != nil:
		return fmt.Errorf("%s: %w", step.Op, e.failed)
	}
	return nil
}

// effect is an atomic action that takes place at most once.
type effect struct {
	store *Store
	op    string
	f     func(now time.Time) error

	took   bool
	failed error
}

func (e *effect) take() {
	if e.took || !e.store.busy.CompareAndSwap(false, true) {
		panic("memory: the gate called the effect of " + e.op + " twice, or during another effect")
	}
	defer e.store.busy.Store(false)
	e.took = true
	e.failed = e.f(e.store.now())
}

// contextError returns the error for a context that has ended. After a deadline it is an ErrUnavailable, because the
// server might not have answered in time.
func contextError(op string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w: no answer in time: %w", op, holdfast.ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", op, err)
}

// transaction holds the locks of rows between two effects of a client. The rows point to the transaction. The rows are
// free as soon as the transaction no longer holds them.
type transaction struct {
	client    *Client
	epoch     int
	connEpoch int
	began     time.Time
	finished  atomic.Bool // set by the client, possibly during an effect of another client
}

// idleLimit is how long a server waits for the next statement of a transaction. If the client's process is frozen for
// longer, the server releases the rows.
const idleLimit = 11 * time.Second

// begin starts the transaction. It must be called inside an effect.
func (t *transaction) begin(now time.Time) {
	t.epoch, t.connEpoch, t.began = t.client.store.epoch, t.client.connEpoch, now
}

func (t *transaction) holds(now time.Time) bool {
	return t != nil && t.client != nil && !t.finished.Load() &&
		t.epoch == t.client.store.epoch && t.connEpoch == t.client.connEpoch && now.Sub(t.began) <= idleLimit
}

// commit ends the transaction. It returns an ErrUnavailable if the transaction has already ended.
func (t *transaction) commit(now time.Time) error {
	if !t.holds(now) {
		return fmt.Errorf("%w: the transaction ended with its connection", holdfast.ErrUnavailable)
	}
	t.finished.Store(true)
	return nil
}
