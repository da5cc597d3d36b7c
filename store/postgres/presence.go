package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast/presence"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/schema"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

// A sign is an advisory lock of a session that does nothing else. Its key is two numbers: one made of the incarnation,
// so that schemas of one database do not meet, and the run's.

// presenter is the role presence.Store.
type presenter struct {
	*database
	// signs opens the sessions that hold signs. Each is used by one caller and never again.
	signs     *sqlx.DB
	presences *presences
}

var _ presence.Store = (*Store)(nil)

const (
	// watcher is the number of the watcher's place; runs are numbered from 1 on.
	watcher = 0
	// waitRound is how long one statement waits for a sign. While a statement waits, VACUUM must spare every row version
	// that has died since it began; a janitor may wait for the watcher's place for weeks.
	waitRound = 10 * time.Second
	// farewell is how long the server may take to end a session in good order.
	farewell = time.Second
)

// presences are the sessions that hold signs, or wait for one.
type presences struct {
	ending context.Context // done when the store closes
	end    context.CancelFunc
	work   sync.WaitGroup // of all sessions

	mu     sync.Mutex
	closed bool
}

func newPresences() *presences {
	p := &presences{}
	p.ending, p.end = context.WithCancel(context.Background())
	return p
}

// enter begins a session, leave ends it.
func (p *presences) enter() (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("%w: the store was closed", holdfast.ErrUnavailable)
	}
	p.work.Add(1)
	return p.work.Done, nil
}

// close returns when all sessions have ended.
func (p *presences) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.end()
	p.work.Wait()
}

// present are the settings of sessions that hold signs: they are idle for as long as a process lives.
var present = settings{"statement_timeout": "0", "lock_timeout": milliseconds(waitRound)}

// Show implements presence.Store. Whatever the server says on an idle session counts as its end, and ends it: gone is
// closed.
func (s *presenter) Show(ctx context.Context, run holdfast.RunID) (gone <-chan struct{}, release func(), err error) {
	return s.hold(ctx, fmt.Sprintf("show the sign of run %s", run), int32(uint32(run)))
}

// Watch implements presence.Store. Gone is closed as in Show.
func (s *presenter) Watch(ctx context.Context) (gone <-chan struct{}, release func(), err error) {
	return s.hold(ctx, "wait for the watcher's place", watcher)
}

// hold opens a session and takes the lock with that number.
func (s *presenter) hold(ctx context.Context, operation string, number int32) (<-chan struct{}, func(), error) {
	if !s.sessions {
		err := fmt.Errorf("%s: %w: the connection pooler keeps no session", operation, holdfast.ErrInvalid)
		return nil, nil, holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintDirectURL})
	}
	leave, err := s.presences.enter()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", operation, err)
	}
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.presences.ending, func() { cancel(errors.New("the store was closed")) })()
	p, err := s.openPresence(waiting)
	if err == nil {
		if err = s.obtain(waiting, p.session, number); err == nil && p.conn.wire.over() {
			err = errLost
		}
		if err != nil {
			_ = p.session.Close() // the reason is known
		}
	}
	if err != nil {
		leave()
		if waiting.Err() != nil {
			return nil, nil, fmt.Errorf("%s: %w: %w", operation, holdfast.ErrUnavailable, context.Cause(waiting))
		}
		return nil, nil, translate(ctx, operation, err)
	}
	go func() {
		defer leave()
		defer context.AfterFunc(s.presences.ending, p.close)()
		p.watch()
	}()
	return p.gone, p.release, nil
}

// obtain returns when the session has the lock. The first statement is all that most callers need.
func (s *presenter) obtain(ctx context.Context, session *sql.Conn, number int32) error {
	for waiting := false; ; waiting = true {
		got, err := one[struct{ Held bool }](ctx, s, session, "presence_take", number)
		if errors.Is(err, sql.ErrNoRows) {
			return schema.Outdated("the incarnation is missing")
		}
		if err != nil || got.Held {
			return err
		}
		if !waiting {
			names, values := settings{"presence.sign": strconv.Itoa(int(number))}.columns()
			if _, err := s.exec(ctx, session, "set", names, values, false); err != nil {
				return err
			}
		}
		if _, err := s.exec(ctx, session, "presence_wait"); err != nil {
			return err
		}
	}
}

// heldSign is one session.
type heldSign struct {
	session  *sql.Conn
	conn     *conn
	gone     chan struct{} // closed if the session ended without a release
	ended    chan struct{} // closed when it has ended
	released atomic.Bool
	closing  sync.Once
}

// openPresence opens a session. Some limits are unknown to older servers, so they cannot be part of the configuration.
func (s *presenter) openPresence(ctx context.Context) (*heldSign, error) {
	session, err := s.signs.Conn(ctx)
	if err != nil {
		return nil, err
	}
	p := &heldSign{session: session, gone: make(chan struct{}), ended: make(chan struct{})}
	err = session.Raw(func(driver any) error {
		p.conn = driver.(*conn)
		return nil
	})
	if err == nil {
		_, err = s.exec(ctx, session, "presence_settings", pq.StringArray{"idle_session_timeout", "transaction_timeout"})
	}
	if err != nil {
		_ = session.Close()
		return nil, err
	}
	return p, nil
}

// watch waits for the end of the session. It reads past the driver: the server has answered everything, and has
// nothing more to say to an idle session than that it ends.
func (p *heldSign) watch() {
	var anything [1]byte
	_, _ = p.conn.wire.Conn.Read(anything[:]) // whatever it is, this is the end
	p.close()
	_ = p.conn.wire.Conn.Close()
	close(p.ended)
	if !p.released.Load() {
		close(p.gone)
	}
}

// release ends the session and waits for that. If the server does not end it within a second it is cut; the server then
// gives the lock back when it notices.
func (p *heldSign) release() {
	p.released.Store(true)
	p.close()
	<-p.ended
}

// close takes leave of the server, which gives the lock back before it hangs up. The wire stays open until then, if
// watch waits for that.
func (p *heldSign) close() {
	p.closing.Do(func() {
		p.conn.wire.kept.Store(true)
		_ = p.session.Close() // an error says that the connection has ended already
		p.conn.wire.cut(farewell)
	})
}

// Absent implements presence.Store.
func (s *presenter) Absent(ctx context.Context) ([]presence.Absence, error) {
	var rows []struct {
		ID        holdfast.RunID
		RenewedAt time.Time `db:"renewed_at"`
	}
	err := s.do(ctx, "look for absent runs", func() error {
		rows = nil
		return s.all(ctx, s.leases, &rows, "absent")
	})
	if err != nil {
		return nil, err
	}
	absences := make([]presence.Absence, len(rows))
	for i, row := range rows {
		absences[i] = presence.Absence{Run: row.ID, RenewedAt: row.RenewedAt.UTC()}
	}
	return absences, nil
}

// Neighbors implements presence.Store.
func (s *presenter) Neighbors(ctx context.Context, boot, namespace string) ([]presence.Neighbor, error) {
	var rows []struct {
		ID        holdfast.RunID
		RenewedAt time.Time `db:"renewed_at"`
		PID       int
		Started   int64
	}
	err := s.do(ctx, "look for runs of this machine", func() error {
		rows = nil
		return s.all(ctx, s.leases, &rows, "neighbors", boot, namespace)
	})
	if err != nil {
		return nil, err
	}
	neighbors := make([]presence.Neighbor, len(rows))
	for i, row := range rows {
		neighbors[i] = presence.Neighbor{Run: row.ID, RenewedAt: row.RenewedAt.UTC(), PID: row.PID, Started: row.Started}
	}
	return neighbors, nil
}

// FenceAbsent implements presence.Store.
func (s *presenter) FenceAbsent(ctx context.Context, a presence.Absence, asked time.Time, settle time.Duration) (bool, error) {
	var rows []scan.ID
	err := s.do(ctx, "fence an absent run", func() error {
		rows = nil
		return s.all(ctx, s.leases, &rows, "fence_absent", int64(a.Run), a.RenewedAt, micros(settle), asked)
	})
	return len(rows) > 0, err
}
