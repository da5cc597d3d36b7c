package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/schema"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

// leaser is the role store.Leases.
type leaser struct {
	*database
	heard heard
	// historyless is set once the server has refused to name the history.
	historyless atomic.Bool
	renewers    renewers
}

// OpenRun implements store.Leases.
func (s *leaser) OpenRun(ctx context.Context, info store.RunInfo, lease time.Duration) (holdfast.RunID, error) {
	var run holdfast.RunID
	err := s.do(ctx, "open run", func() error {
		if _, err := s.exec(ctx, s.db, "insert_lanes", append(pq.StringArray{}, info.Lanes...)); err != nil {
			return err
		}
		row, err := one[struct{ ID holdfast.RunID }](ctx, s, s.db, "open_run",
			column.Text(info.Name), column.Text(info.Host), info.PID, column.Text(info.Version), info.Concurrency, append(pq.StringArray{}, info.Lanes...), micros(lease),
			column.Text(info.Process.Boot), column.Text(info.Process.Namespace), info.Process.Started, pq.StringArray(info.Types))
		run = row.ID
		return err
	})
	return run, err
}

// Renew implements store.Leases. It has connections of its own and never queues behind other calls. A session of the run's
// own ends with an error: nobody knows what state it is in.
func (s *leaser) Renew(ctx context.Context, r store.Renewal) (store.News, error) {
	var news store.News
	err := s.do(ctx, "renew lease", func() error {
		over := store.Tx(s.leases)
		if r.OwnSession && s.sessions {
			var err error
			if over, err = s.renewer(ctx, r.Run); err != nil {
				return err
			}
		}
		row, err := s.renew(ctx, over, r)
		if errors.Is(err, sql.ErrNoRows) {
			s.heard.forget(r.Run)
			return fmt.Errorf("run %s: %w", r.Run, store.ErrFenced)
		}
		if err != nil {
			return err
		}
		s.heard.set(r.Run, row.News)
		if s.heard.setBack(r.Run, row.Before, row.Renewed) {
			s.noteSetback(ctx, over, r.Run)
		}
		news = store.News{History: s.heard.history(r.Run, row.History), Draining: row.Draining, Lanes: row.Lanes, Cancelled: make([]message.Ticket, len(row.Tasks))}
		for i := range row.Tasks {
			news.Cancelled[i] = message.Ticket{Task: holdfast.TaskID(row.Tasks[i]), Attempt: int(row.Attempts[i])}
		}
		return nil
	})
	if err != nil {
		s.renewers.end(r.Run)
	}
	return news, err
}

// noteSetback records for the doctor that the store was set back under a worker that lives.
func (s *leaser) noteSetback(ctx context.Context, over store.Tx, run holdfast.RunID) {
	log := s.log.WithField("run", run)
	if _, err := s.exec(ctx, over, "note_setback"); err != nil {
		log = log.WithError(err)
	}
	log.Warn("the store has only an older renewal of this worker: a backup was restored, or commits were lost")
}

type newsRow struct {
	Draining              bool
	Renewed, Before       int64
	History               string
	Lanes                 pq.StringArray
	News, Tasks, Attempts pq.Int64Array
}

// renew does without the history where the server does not tell it, as some services do: no lease may end for that.
func (s *leaser) renew(ctx context.Context, over store.Tx, r store.Renewal) (newsRow, error) {
	send := func(name string) (newsRow, error) {
		return one[newsRow](ctx, s, over, name, int64(r.Run), micros(r.Lease), r.Taken, r.Settled, r.Running, s.heard.of(r.Run),
			column.Text(r.By.Name), column.Text(r.By.Host), r.By.PID, r.Shown)
	}
	if s.historyless.Load() {
		return send(plainRenew)
	}
	row, err := send(renew)
	if pq.As(err) == nil || passing(err) || kindOf(err) == holdfast.ErrUnavailable {
		return row, err
	}
	plain, plainErr := send(plainRenew)
	if plainErr != nil && !errors.Is(plainErr, sql.ErrNoRows) {
		return row, err // it was not the history's fault
	}
	s.historyless.Store(true)
	s.log.WithError(err).Warn("the server does not tell its WAL timeline: if it loses commits in a failover, restart the workers")
	return plain, plainErr
}

// heard remembers, for each run of this process, the news that the last renewal brought.
// The next one deletes them: deleted any earlier, they would be lost with an answer that is lost.
type heard struct {
	mu       sync.Mutex
	runs     map[holdfast.RunID]pq.Int64Array
	answered map[holdfast.RunID]renewals
}

// renewals are what this process knows of a run's renewals.
type renewals struct {
	at       int64 // the time of the last one that was answered, by the store's clock
	setbacks int   // how often the store knew only an older one
}

// setBack notes a renewal that was answered. It reports whether the one before it that the store knew is older than the last
// one that was answered: then the store has lost that one, and perhaps other commits.
func (h *heard) setBack(run holdfast.RunID, before, at int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.answered == nil {
		h.answered = make(map[holdfast.RunID]renewals)
	}
	known := h.answered[run]
	lost := before < known.at
	if lost {
		known.setbacks++
	}
	known.at = at
	h.answered[run] = known
	return lost
}

// history adds to the name of the history how often the store was set back without another name, as by a snapshot.
func (h *heard) history(run holdfast.RunID, name string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.answered[run].setbacks; n > 0 {
		return fmt.Sprintf("%s/%d", name, n)
	}
	return name
}

// forget ends what is known of a run.
func (h *heard) forget(run holdfast.RunID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.runs, run)
	delete(h.answered, run)
}

func (h *heard) of(run holdfast.RunID) pq.Int64Array {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append(pq.Int64Array{}, h.runs[run]...)
}

func (h *heard) set(run holdfast.RunID, news pq.Int64Array) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(news) == 0 {
		delete(h.runs, run)
		return
	}
	if h.runs == nil {
		h.runs = make(map[holdfast.RunID]pq.Int64Array)
	}
	h.runs[run] = news
}

// renewers are the sessions that carry the renewals of one run each, and hold a sign of it.
type renewers struct {
	db *sqlx.DB

	mu       sync.Mutex
	sessions map[holdfast.RunID]*sql.Conn
	closed   bool
}

// renewer returns the session for a run's renewals. It opens one if there is none, or if the server has ended it.
func (s *leaser) renewer(ctx context.Context, run holdfast.RunID) (store.Tx, error) {
	r := &s.renewers
	r.mu.Lock()
	session := r.sessions[run]
	r.mu.Unlock()
	if session != nil {
		if session.Raw(func(inner any) error { return inner.(driver.SessionResetter).ResetSession(ctx) }) == nil {
			return session, nil
		}
		r.end(run)
	}
	session, err := r.db.DB.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err = one[struct{ Held bool }](ctx, s, session, "presence_renewing", int64(run)); errors.Is(err, sql.ErrNoRows) {
		err = schema.Outdated("the incarnation is missing")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && r.closed {
		err = fmt.Errorf("%w: the store was closed", holdfast.ErrUnavailable)
	}
	if err != nil {
		_ = session.Close() // the reason is known
		return nil, err
	}
	if r.sessions == nil {
		r.sessions = make(map[holdfast.RunID]*sql.Conn)
	}
	r.sessions[run] = session
	return session, nil
}

// end ends the session for a run's renewals, if there is one.
func (r *renewers) end(run holdfast.RunID) {
	r.mu.Lock()
	session := r.sessions[run]
	delete(r.sessions, run)
	r.mu.Unlock()
	if session != nil {
		_ = session.Close() // an error says that the session has ended already
	}
}

// close ends all sessions.
func (r *renewers) close() error {
	r.mu.Lock()
	sessions := r.sessions
	r.sessions, r.closed = nil, true
	r.mu.Unlock()
	for _, session := range sessions {
		_ = session.Close()
	}
	return r.db.Close()
}

// CloseRun implements store.Leases.
func (s *leaser) CloseRun(ctx context.Context, run holdfast.RunID, clean bool) error {
	err := s.do(ctx, "close run", func() error {
		_, err := s.exec(ctx, s.leases, "close_run", int64(run), clean)
		return err
	})
	s.renewers.end(run)
	if err == nil {
		s.heard.forget(run)
	}
	return err
}

// Drain implements store.Leases.
func (s *leaser) Drain(ctx context.Context, run holdfast.RunID) error {
	return s.do(ctx, "drain run", func() error {
		row, err := one[struct{ State store.RunState }](ctx, s, s.db, "drain", int64(run))
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return fmt.Errorf("%w: there is no run %s", holdfast.ErrNotFound, run)
		case err != nil:
			return err
		case row.State != store.RunLive:
			return fmt.Errorf("%w: run %s is %s", holdfast.ErrConflict, run, row.State)
		}
		return nil
	})
}

// Runs implements store.Leases.
func (s *leaser) Runs(ctx context.Context, all bool) ([]store.Run, error) {
	const operation = "list runs"
	rows, err := list[scan.Run](ctx, s, operation, "runs", all)
	if err != nil {
		return nil, err
	}
	runs, err := scan.Runs(rows)
	return runs, translate(ctx, operation, err)
}
