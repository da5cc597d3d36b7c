package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/lib/pq"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/presence"
	"github.com/holdfastq/holdfast/schema"
	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/postgres/pgclient"
)

// The presence lock of a worker is an advisory lock of a session that does nothing else. Its key has two numbers. The
// first is a hash of the incarnation, so that the schemas of one database do not conflict. The second is the worker's
// ID.

// presenter is the role presence.Store.
type presenter struct {
	*database
	// locks opens the sessions that hold presence locks. Each session serves one caller and is then closed.
	locks            *sql.DB
	presenceSessions *presenceSessions
}

var _ presence.Store = (*Store)(nil)

const (
	// watcherKey is the second number of the watcher lock. The IDs of workers begin with 1.
	watcherKey = 0
	// waitRound is how long one statement waits for a lock. While a statement waits, VACUUM cannot remove row versions
	// that died since it began, and a janitor may wait for the watcher lock for weeks.
	waitRound = 10 * time.Second
)

// presenceSessions is the set of sessions that hold a presence lock or wait for one.
type presenceSessions struct {
	ending context.Context // done when the store closes
	end    context.CancelFunc
	work   sync.WaitGroup // waits for all sessions

	mu     sync.Mutex
	closed bool
}

func newPresenceSessions() *presenceSessions {
	p := &presenceSessions{}
	p.ending, p.end = context.WithCancel(context.Background())
	return p
}

// enter adds a session, and leave removes it. enter fails if the store was closed.
func (p *presenceSessions) enter() (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("%w: the store was closed", holdfast.ErrUnavailable)
	}
	p.work.Add(1)
	return p.work.Done, nil
}

// close ends all sessions, and returns when they have ended.
func (p *presenceSessions) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.end()
	p.work.Wait()
}

// presenceParameters are the parameters of the sessions that hold presence locks. They are idle while their process
// lives.
var presenceParameters = pgclient.Parameters{"statement_timeout": "0", "lock_timeout": strconv.FormatInt(waitRound.Milliseconds(), 10)}

// Acquire implements presence.Store. If the server sends anything on the idle session, Acquire closes the session and
// the channel gone.
func (s *presenter) Acquire(ctx context.Context, worker holdfast.WorkerID) (gone <-chan struct{}, release func(), err error) {
	return s.acquire(ctx, fmt.Sprintf("acquire the presence of worker %s", worker), int32(uint32(worker)))
}

// Watch implements presence.Store. It closes the channel gone in the same cases as Acquire.
func (s *presenter) Watch(ctx context.Context) (gone <-chan struct{}, release func(), err error) {
	return s.acquire(ctx, "acquire the watcher lock", watcherKey)
}

// acquire opens a session and acquires the lock with the key.
func (s *presenter) acquire(ctx context.Context, operation string, key int32) (<-chan struct{}, func(), error) {
	if !s.client.KeepsSessions() {
		err := fmt.Errorf("%s: %w: the connection pooler keeps no session", operation, holdfast.ErrInvalid)
		return nil, nil, holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintDirectURL})
	}
	leave, err := s.presenceSessions.enter()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", operation, err)
	}
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.presenceSessions.ending, func() { cancel(errors.New("the store was closed")) })()
	p, err := s.open(waiting)
	if err == nil {
		if err = s.lock(waiting, p, key); err == nil {
			err = p.Err()
		}
		if err != nil {
			_ = p.Conn.Close() // the first error is the one to report
		}
	}
	if err != nil {
		leave()
		if waiting.Err() != nil {
			return nil, nil, fmt.Errorf("%s: %w: %w", operation, holdfast.ErrUnavailable, context.Cause(waiting))
		}
		return nil, nil, pgclient.Translate(ctx, operation, err)
	}
	go func() {
		defer leave()
		defer context.AfterFunc(s.presenceSessions.ending, p.End)()
		p.Watch()
	}()
	return p.Gone(), p.Release, nil
}

// open opens a session without time limits. Older servers do not know some of the limits, so presenceParameters cannot
// have these limits.
func (s *presenter) open(ctx context.Context) (*pgclient.Session, error) {
	p, err := pgclient.OpenSession(ctx, s.locks)
	if err != nil {
		return nil, err
	}
	if _, err = s.exec(ctx, p.Conn, "presence_settings", pq.StringArray{"idle_session_timeout", "transaction_timeout"}); err != nil {
		_ = p.Conn.Close()
		return nil, err
	}
	return p, nil
}

// lock returns when the session holds the lock. Usually the first statement acquires it.
func (s *presenter) lock(ctx context.Context, p *pgclient.Session, key int32) error {
	for waiting := false; ; waiting = true {
		got, err := one[struct{ Held bool }](ctx, s, p.Conn, "presence_take", key)
		if errors.Is(err, sql.ErrNoRows) {
			return schema.Outdated("the incarnation is missing")
		}
		if err != nil || got.Held {
			return err
		}
		if !waiting {
			if err := p.Set(ctx, pgclient.Parameters{"presence.key": strconv.Itoa(int(key))}); err != nil {
				return err
			}
		}
		if _, err := s.exec(ctx, p.Conn, "presence_wait"); err != nil {
			return err
		}
	}
}

// Missing implements presence.Store.
func (s *presenter) Missing(ctx context.Context) ([]presence.MissingWorker, error) {
	return listOn[presence.MissingWorker](ctx, s, s.leases, "find missing workers", "missing")
}

// Neighbors implements presence.Store.
func (s *presenter) Neighbors(ctx context.Context, boot, namespace string) ([]presence.Neighbor, error) {
	return listOn[presence.Neighbor](ctx, s, s.leases, "find workers of this machine", "neighbors", boot, namespace)
}

// FenceMissing implements presence.Store.
func (s *presenter) FenceMissing(ctx context.Context, a presence.MissingWorker, asked time.Time, settle time.Duration) (bool, error) {
	rows, err := listOn[scan.ID](ctx, s, s.leases, "fence a missing worker", "fence_missing",
		int64(a.Worker), a.RenewedAt, micros(settle), asked)
	return len(rows) > 0, err
}
