package memory

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/presence"
	"github.com/holdfastq/holdfast/store"
)

// watcherKey is the key of the watcher's lock. No worker has this id.
const watcherKey holdfast.WorkerID = 0

// releaseLimit is how long a release waits for the server. If the server does not receive it, the end of the connection
// releases the lock.
const releaseLimit = time.Second

// presenceLock is a session that holds a key or waits for it. Unless noted otherwise, its fields belong to effects.
type presenceLock struct {
	client *Client
	key    holdfast.WorkerID
	// The server notifies the client of granted and ended.
	granted bool // the session holds the key
	ended   bool // the session has ended at the server
	silent  bool // the session has ended without a notification: see LosePresence

	// The following fields belong to the client.
	held, gone chan struct{} // held is closed when the client learns that it holds the key, gone when the session has ended
	released   atomic.Bool   // the client no longer wants the key; the server learns that later
	givenUp    atomic.Bool   // the client released the key before it knew of the end of the session
}

// Notifier carries a notification from the server to a client. deliver is called once, when the notification arrives,
// or never.
type Notifier func(step Step, deliver func())

// SetNotifier sets the Notifier of the client. Without one, every notification arrives at once. It must be called
// before the client is used.
func (c *Client) SetNotifier(h Notifier) { c.herald = h }

func (c *Client) notify(op string, key holdfast.WorkerID, deliver func()) {
	if c.herald == nil {
		deliver()
		return
	}
	c.herald(Step{Op: op, worker: key}, deliver)
}

// Acquire implements presence.Store.
func (c *Client) Acquire(ctx context.Context, worker holdfast.WorkerID) (<-chan struct{}, func(), error) {
	return c.acquire(ctx, Step{Op: "Acquire", worker: worker})
}

// Watch implements presence.Store.
func (c *Client) Watch(ctx context.Context) (<-chan struct{}, func(), error) {
	return c.acquire(ctx, Step{Op: "Watch", worker: watcherKey})
}

// acquire waits for the key of a step in a new session.
func (c *Client) acquire(ctx context.Context, step Step) (<-chan struct{}, func(), error) {
	if c.closed.Load() {
		return nil, nil, fmt.Errorf("%s: %w: the store is closed", step.Op, holdfast.ErrUnavailable)
	}
	s := &presenceLock{client: c, key: step.worker, held: make(chan struct{}), gone: make(chan struct{})}
	err := c.do(ctx, step, func(time.Time) error {
		if !s.released.Load() { // otherwise the client no longer waits for the answer
			c.store.presenceLocks = append(c.store.presenceLocks, s)
			c.store.grant(s.key)
		}
		return nil
	})
	if err == nil {
		select {
		case <-s.held:
			return s.gone, s.release, nil
		case <-s.gone:
			err = fmt.Errorf("%s: %w: the session ended", step.Op, holdfast.ErrUnavailable)
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%s: %w: %w", step.Op, holdfast.ErrUnavailable, context.Cause(ctx))
	}
	s.release()
	return nil, nil, err
}

// release releases the key. It may be called more than once.
func (s *presenceLock) release() {
	if s.released.Swap(true) {
		return
	}
	select {
	case <-s.gone:
		return
	default:
	}
	s.givenUp.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	_ = s.client.do(ctx, Step{Op: "Release", worker: s.key}, func(time.Time) error {
		s.client.store.endSession(s)
		return nil
	}) // otherwise the server notices at the next effect on that key
}

// holder returns the session that holds a key, or nil. Later sessions wait for the end of that session.
func (s *Store) holder(key holdfast.WorkerID) *presenceLock {
	for _, lock := range s.presenceLocks {
		if lock.key == key && !lock.ended {
			return lock
		}
	}
	return nil
}

// grant notifies the client that now holds a key.
func (s *Store) grant(key holdfast.WorkerID) {
	for _, lock := range s.presenceLocks {
		if lock.key == key && !lock.ended && lock.released.Load() {
			lock.ended = true
		}
	}
	if first := s.holder(key); first != nil && !first.granted {
		first.granted = true
		first.client.notify("held", key, func() { closeOnce(first.held) })
	}
}

// endSession ends a session and grants its key to the next one. If LosePresence has already ended the session, the
// client learns of that now.
func (s *Store) endSession(lock *presenceLock) {
	if lock.ended && !lock.silent {
		return
	}
	lock.ended, lock.silent = true, false
	lock.client.notify("gone", lock.key, func() {
		if !lock.released.Load() {
			closeOnce(lock.gone)
		}
	})
	s.grant(lock.key)
}

// LosePresence ends the presence locks of the client at the server without notifying the client, as if its connections
// were half-open. The returned function notifies the client. The caller must call both like effects, never during one.
func (c *Client) LosePresence() (notify func()) {
	var lost []*presenceLock
	for _, s := range c.store.presenceLocks {
		if s.client == c && s.key != watcherKey && !s.ended {
			s.ended, s.silent = true, true
			lost = append(lost, s)
			c.store.grant(s.key)
		}
	}
	return func() {
		for _, s := range lost {
			if !s.released.Load() {
				closeOnce(s.gone)
			}
		}
	}
}

// endSessions ends all sessions of the clients that match.
func (s *Store) endSessions(match func(*Client) bool) {
	for _, lock := range s.presenceLocks {
		if match(lock.client) {
			s.endSession(lock)
		}
	}
	s.renewers = slices.DeleteFunc(s.renewers, func(r *renewer) bool { return match(r.client) })
}

// Stopped ends all sessions and all statements in progress, as a server does when it stops or fails.
func (s *Store) Stopped() {
	s.claims = nil
	s.endSessions(func(*Client) bool { return true })
}

// renewer is a session that carries the renewals of one worker.
type renewer struct {
	client   *Client
	worker   holdfast.WorkerID
	released atomic.Bool // the client has ended the session; the server learns that later
}

// ownSession returns the session of the worker's renewals, or nil if the renewal does not request one.
func (c *Client) ownSession(r store.Renewal) *renewer {
	if !r.OwnSession {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.renewers == nil {
		c.renewers = make(map[holdfast.WorkerID]*renewer)
	}
	if c.renewers[r.Worker] == nil {
		c.renewers[r.Worker] = &renewer{client: c, worker: r.Worker}
	}
	return c.renewers[r.Worker]
}

func (c *Client) endOwnSession(worker holdfast.WorkerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.renewers[worker]; r != nil {
		r.released.Store(true)
		delete(c.renewers, worker)
	}
}

// openSession records a session at the server. A client whose session has ended opens it again this way.
func (s *Store) openSession(r *renewer) {
	if r != nil && !slices.Contains(s.renewers, r) {
		s.renewers = append(s.renewers, r)
	}
}

// renews reports whether a session carries the renewals of a worker.
func (s *Store) renews(worker holdfast.WorkerID) bool {
	s.renewers = slices.DeleteFunc(s.renewers, func(r *renewer) bool { return r.released.Load() })
	return slices.ContainsFunc(s.renewers, func(r *renewer) bool { return r.worker == worker })
}

// Left reports whether the worker itself released its last presence lock, which means that the worker has ended.
func (s *Store) Left(worker holdfast.WorkerID) bool {
	for _, lock := range slices.Backward(s.presenceLocks) {
		if lock.key == worker {
			return lock.givenUp.Load()
		}
	}
	return false
}

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// missing reports whether a worker is missing, as presence.Store defines it.
func (s *Store) missing(worker *Worker) bool {
	if worker.State != store.WorkerLive || !worker.Present {
		return false
	}
	s.grant(worker.ID)
	return s.holder(worker.ID) == nil && !s.renews(worker.ID)
}

// Missing implements presence.Store.
func (c *Client) Missing(ctx context.Context) ([]presence.MissingWorker, error) {
	var missing []presence.MissingWorker
	err := c.do(ctx, Step{Op: "Missing"}, func(time.Time) error {
		for i := range c.store.db.workers {
			if worker := &c.store.db.workers[i]; c.store.missing(worker) {
				missing = append(missing, presence.MissingWorker{Worker: worker.ID, RenewedAt: worker.RenewedAt})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return missing, nil
}

// Neighbors implements presence.Store.
func (c *Client) Neighbors(ctx context.Context, boot, namespace string) ([]presence.Neighbor, error) {
	var neighbors []presence.Neighbor
	err := c.do(ctx, Step{Op: "Neighbors"}, func(time.Time) error {
		for i := range c.store.db.workers {
			worker := &c.store.db.workers[i]
			of := worker.process
			if worker.State == store.WorkerLive && worker.Present && of.Boot != "" && of.Boot == boot && of.Namespace == namespace && of.Started != 0 {
				neighbors = append(neighbors, presence.Neighbor{Worker: worker.ID, RenewedAt: worker.RenewedAt, PID: worker.PID, Started: of.Started})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return neighbors, nil
}

// FenceMissing implements presence.Store.
func (c *Client) FenceMissing(ctx context.Context, a presence.MissingWorker, asked time.Time, settle time.Duration) (bool, error) {
	fenced := false
	err := c.do(ctx, Step{Op: "FenceMissing", worker: a.Worker}, func(now time.Time) error {
		worker := c.store.db.worker(a.Worker)
		if worker == nil || now.Sub(c.store.started) < settle || now.Sub(asked) >= staleAfter || !c.store.missing(worker) || !worker.RenewedAt.Equal(a.RenewedAt) {
			return nil
		}
		worker.State, worker.EndedAt, worker.Early = store.WorkerDead, now, true
		fenced = true
		return nil
	})
	if err != nil {
		return false, err
	}
	return fenced, nil
}
