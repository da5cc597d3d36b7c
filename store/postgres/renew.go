package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/lib/pq"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Renew implements store.Leases. It has connections of its own and never queues behind other calls. A session of the run's
// own ends with an error: nobody knows what state it is in.
func (s *Store) Renew(ctx context.Context, r store.Renewal) (store.News, error) {
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
		news = store.News{History: s.heard.history(r.Run, row.History), Draining: row.Draining, Lanes: row.Lanes, Cancelled: make([]holdfast.Ticket, len(row.Tasks))}
		for i := range row.Tasks {
			news.Cancelled[i] = holdfast.Ticket{Task: holdfast.TaskID(row.Tasks[i]), Attempt: int(row.Attempts[i])}
		}
		return nil
	})
	if err != nil {
		s.renewers.end(r.Run)
	}
	return news, err
}

// noteSetback records for the doctor that the store was set back under a worker that lives.
func (s *Store) noteSetback(ctx context.Context, over store.Tx, run holdfast.RunID) {
	log := s.log.WithField("run", run)
	if _, err := s.exec(ctx, over, "note_setback"); err != nil {
		log = log.WithError(err)
	}
	log.Warn("the store has only an older renewal of this worker: a backup was restored, or commits were lost")
}

// The statements of Renew: the second one does not ask for the history.
const (
	renew      = "renew"
	plainRenew = "renew_plain"
)

type newsRow struct {
	Draining              bool
	Renewed, Before       int64
	History               string
	Lanes                 pq.StringArray
	News, Tasks, Attempts pq.Int64Array
}

// renew does without the history where the server does not tell it, as some services do: no lease may end for that.
func (s *Store) renew(ctx context.Context, over store.Tx, r store.Renewal) (newsRow, error) {
	send := func(name string) (newsRow, error) {
		return one[newsRow](ctx, s, over, name, int64(r.Run), micros(r.Lease), r.Taken, r.Settled, r.Running, s.heard.of(r.Run),
			clean(r.By.Name), clean(r.By.Host), r.By.PID, r.Shown)
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
