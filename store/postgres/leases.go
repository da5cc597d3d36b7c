package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lib/pq"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/schema"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/postgres/pgclient"
)

// leaser is the role store.Leases.
type leaser struct {
	*database
	renewals renewals
	// noHistory is set after the server has failed to return the history.
	noHistory atomic.Bool
	renewers  renewers
}

// RegisterWorker implements store.Leases.
func (s *leaser) RegisterWorker(ctx context.Context, info store.WorkerInfo, lease time.Duration) (holdfast.WorkerID, error) {
	var worker holdfast.WorkerID
	err := s.do(ctx, "register worker", func() error {
		if _, err := s.exec(ctx, s.db, "insert_queues", append(pq.StringArray{}, info.Queues...)); err != nil {
			return err
		}
		row, err := one[struct{ ID holdfast.WorkerID }](ctx, s, s.db, "register_worker",
			column.Text(info.Name), column.Text(info.Host), info.PID, column.Text(info.Version), info.Concurrency, append(pq.StringArray{}, info.Queues...), micros(lease),
			column.Text(info.Process.Boot), column.Text(info.Process.Namespace), info.Process.Started, pq.StringArray(info.Types),
			scan.WorkerSchemas(info))
		worker = row.ID
		return err
	})
	return worker, err
}

// Renew implements store.Leases. It uses separate connections, so it never waits for other calls. After an error it
// closes the worker's own session, because the state of that session is unknown.
func (s *leaser) Renew(ctx context.Context, r store.Renewal) (store.RenewResult, error) {
	var result store.RenewResult
	err := s.do(ctx, "renew lease", func() error {
		conn := store.Tx(s.leases)
		if r.OwnSession && s.client.KeepsSessions() {
			var err error
			if conn, err = s.renewer(ctx, r.Worker); err != nil {
				return err
			}
		}
		row, err := s.renew(ctx, conn, r)
		if errors.Is(err, sql.ErrNoRows) {
			s.renewals.forget(r.Worker)
			return fmt.Errorf("worker %s: %w", r.Worker, store.ErrFenced)
		}
		if err != nil {
			return err
		}
		s.renewals.setReceived(r.Worker, row.Notices)
		if s.renewals.noteAnswered(r.Worker, row.Before, row.Renewed) {
			s.noteSetback(ctx, conn, r.Worker)
		}
		result = store.RenewResult{History: s.renewals.history(r.Worker, row.History), Draining: row.Draining, Queues: row.Queues, Paused: row.Paused, Cancelled: make([]message.Ticket, len(row.Tasks))}
		for i := range row.Tasks {
			result.Cancelled[i] = message.Ticket{Task: holdfast.TaskID(row.Tasks[i]), Attempt: int(row.Attempts[i])}
		}
		return nil
	})
	if err != nil {
		s.renewers.end(r.Worker)
	}
	return result, err
}

// noteSetback records for the doctor that the store has lost a renewal of a live worker.
func (s *leaser) noteSetback(ctx context.Context, conn store.Tx, worker holdfast.WorkerID) {
	log := s.log.WithField("worker", worker)
	if _, err := s.exec(ctx, conn, "note_setback"); err != nil {
		log = log.WithError(err)
	}
	log.Warn("store has only an older renewal of this worker: a backup was restored or commits were lost")
}

type renewRow struct {
	Draining        bool
	Renewed, Before int64
	History         string
	Queues          pq.StringArray
	Notices         pq.Int64Array `db:"news"`
	Tasks, Attempts pq.Int64Array
	Paused          pq.StringArray
}

// renew renews the lease. If the server does not return the history, as with some hosted services, renew omits the
// history, so that no lease expires for this reason.
func (s *leaser) renew(ctx context.Context, conn store.Tx, r store.Renewal) (renewRow, error) {
	send := func(name string) (renewRow, error) {
		return one[renewRow](ctx, s, conn, name, int64(r.Worker), micros(r.Lease), r.Taken, r.Settled, r.Running, s.renewals.receivedBy(r.Worker), r.Present, scan.WorkerReport(r.Report), numbers(r.Tasks), string(r.Settings))
	}
	if s.noHistory.Load() {
		return send(plainRenew)
	}
	row, err := send(renew)
	if pq.As(err) == nil || pgclient.Transient(err) || pgclient.Kind(err) == holdfast.ErrUnavailable {
		return row, err
	}
	plain, plainErr := send(plainRenew)
	if plainErr != nil && !errors.Is(plainErr, sql.ErrNoRows) {
		return row, err // the history is not the cause
	}
	s.noHistory.Store(true)
	s.log.WithError(err).Warn("server does not report its WAL timeline: restart the workers if a failover loses commits")
	return plain, plainErr
}

// renewals is what this process remembers about the renewals of its workers.
type renewals struct {
	mu sync.Mutex
	// received has the ids of the cancellations that the last renewal returned. The next renewal deletes them from the
	// store. If the last renewal had deleted them, a lost answer would have lost them.
	received map[holdfast.WorkerID]pq.Int64Array
	answered map[holdfast.WorkerID]workerRenewals
}

// workerRenewals is what this process remembers about the renewals of one worker.
type workerRenewals struct {
	at       int64 // the time of the last answered renewal, by the store's clock, in microseconds
	setbacks int   // number of answered renewals that the store has lost
}

// noteAnswered records an answered renewal. before is the time of the previous renewal in the store. noteAnswered
// reports whether before is older than the last answered renewal. If it is, the store has lost that renewal, and
// perhaps other commits.
func (r *renewals) noteAnswered(worker holdfast.WorkerID, before, at int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered == nil {
		r.answered = make(map[holdfast.WorkerID]workerRenewals)
	}
	known := r.answered[worker]
	lost := before < known.at
	if lost {
		known.setbacks++
	}
	known.at = at
	r.answered[worker] = known
	return lost
}

// history returns name with the number of setbacks appended, because a restored snapshot does not change the name.
func (r *renewals) history(worker holdfast.WorkerID, name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.answered[worker].setbacks; n > 0 {
		return fmt.Sprintf("%s/%d", name, n)
	}
	return name
}

// forget deletes what is remembered about a worker.
func (r *renewals) forget(worker holdfast.WorkerID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.received, worker)
	delete(r.answered, worker)
}

// receivedBy returns the ids of the cancellations that the last renewal of the worker returned.
func (r *renewals) receivedBy(worker holdfast.WorkerID) pq.Int64Array {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(pq.Int64Array{}, r.received[worker]...)
}

func (r *renewals) setReceived(worker holdfast.WorkerID, notices pq.Int64Array) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(notices) == 0 {
		delete(r.received, worker)
		return
	}
	if r.received == nil {
		r.received = make(map[holdfast.WorkerID]pq.Int64Array)
	}
	r.received[worker] = notices
}

// renewers is the sessions for renewals. Each session serves one worker, and holds a lock that proves its presence.
type renewers struct {
	db *sql.DB

	mu       sync.Mutex
	sessions map[holdfast.WorkerID]*sql.Conn
	closed   bool
}

// renewer returns the session for a worker's renewals. It opens a session if there is none, or if the server has closed
// it.
func (s *leaser) renewer(ctx context.Context, worker holdfast.WorkerID) (store.Tx, error) {
	r := &s.renewers
	r.mu.Lock()
	session := r.sessions[worker]
	r.mu.Unlock()
	if session != nil {
		if pgclient.Alive(ctx, session) {
			return session, nil
		}
		r.end(worker)
	}
	session, err := r.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err = one[struct{ Held bool }](ctx, s, session, "presence_renewing", int64(worker)); errors.Is(err, sql.ErrNoRows) {
		err = schema.Outdated("the incarnation is missing")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && r.closed {
		err = fmt.Errorf("%w: the store was closed", holdfast.ErrUnavailable)
	}
	if err != nil {
		_ = session.Close() // the first error is the one to report
		return nil, err
	}
	if r.sessions == nil {
		r.sessions = make(map[holdfast.WorkerID]*sql.Conn)
	}
	r.sessions[worker] = session
	return session, nil
}

// end ends the session for a worker's renewals, if there is one.
func (r *renewers) end(worker holdfast.WorkerID) {
	r.mu.Lock()
	session := r.sessions[worker]
	delete(r.sessions, worker)
	r.mu.Unlock()
	if session != nil {
		_ = session.Close() // an error means that the session has already ended
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

// DeregisterWorker implements store.Leases.
func (s *leaser) DeregisterWorker(ctx context.Context, worker holdfast.WorkerID, clean bool) error {
	err := s.do(ctx, "deregister worker", func() error {
		_, err := s.exec(ctx, s.leases, "deregister_worker", int64(worker), clean)
		return err
	})
	s.renewers.end(worker)
	if err == nil {
		s.renewals.forget(worker)
	}
	return err
}

// Drain implements store.Leases.
func (s *leaser) Drain(ctx context.Context, worker holdfast.WorkerID) error {
	return s.do(ctx, "drain worker", func() error {
		row, err := one[struct{ State store.WorkerState }](ctx, s, s.db, "drain", int64(worker))
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return fmt.Errorf("%w: there is no worker %s", holdfast.ErrNotFound, worker)
		case err != nil:
			return err
		case row.State != store.WorkerLive:
			return fmt.Errorf("%w: worker %s is %s", holdfast.ErrConflict, worker, row.State)
		}
		return nil
	})
}

// Workers implements store.Leases.
func (s *leaser) Workers(ctx context.Context, all bool) ([]store.Worker, error) {
	return list[store.Worker](ctx, s, "list workers", "workers", all)
}
