package postgres

import (
	"context"
	"math"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/jmoiron/sqlx"

	"github.com/holdfastq/holdfast/store"
)

// Unticket implements store.Repair.
func (s *Store) Unticket(ctx context.Context, tickets []message.Ticket) (int, error) {
	if len(tickets) == 0 {
		return 0, nil
	}
	tasks, attempts := pairs(tickets)
	changed := 0
	err := s.do(ctx, "unticket tasks", func() error {
		var err error
		changed, err = s.exec(ctx, s.db, "unticket", tasks, attempts)
		return err
	})
	return changed, err
}

const unticketStep = 5000

// UnticketLane implements store.Repair. After an error some tasks are changed and
// others are not; calling it again does the rest.
func (s *Store) UnticketLane(ctx context.Context, lane string) (int, error) {
	return s.inSteps(ctx, "unticket lane "+lane, walk{size: unticketStep}, func(tx store.Tx, r idRange) (step, error) {
		return one[step](ctx, s, tx, "unticket_lane", r.after, r.through, r.size, lane)
	})
}

// rangeSize is how many ids one statement of a walk looks at. What bounds it must be the rows it reads
// and not those it finds: among tens of millions of tasks it may find none, and would never end in time.
const rangeSize = 50_000

// walk is a look at all tasks, in the order of their ids and in steps that are each a short transaction.
type walk struct {
	through int64 // last id to look at; 0 means the largest there is when the walk begins
	size    int   // a step changes at most so many rows, so that it locks them for a short time
	limit   int   // the walk ends when it has changed so many; 0 means no limit
}

// idRange is what one step looks at: the ids above after, up to through, and of the rows that
// match no more than size.
type idRange struct {
	after, through int64
	size           int
	changed        int // by the steps before
}

// step is what one step has done.
type step struct {
	Changed int
	Last    int64 // largest id it changed
}

// inSteps calls f for one range of ids after the other and returns how many rows were changed. A step
// that fails is undone; those before it stand.
func (s *Store) inSteps(ctx context.Context, operation string, w walk, f func(store.Tx, idRange) (step, error)) (int, error) {
	if w.limit == 0 {
		w.limit = math.MaxInt
	}
	total, after := 0, int64(0)
	for total < w.limit {
		var did step
		var looked idRange
		err := s.do(ctx, operation, func() error {
			return s.tx(ctx, func(tx *sqlx.Tx) error {
				var err error
				looked, err = s.nextRange(ctx, tx, &w, after)
				if err != nil || looked.through == 0 {
					return err
				}
				looked.size, looked.changed = min(w.size, w.limit-total), total
				did, err = f(tx, looked)
				return err
			})
		})
		if err != nil || looked.through == 0 {
			return total, err
		}
		total += did.Changed
		after = looked.through
		if did.Changed == looked.size { // there may be more in this range
			after = did.Last
		}
	}
	return total, nil
}

// nextRange returns the next ids to look at, none at the end of the walk. A gap costs nothing, however wide.
func (s *Store) nextRange(ctx context.Context, tx *sqlx.Tx, w *walk, after int64) (idRange, error) {
	if _, err := s.exec(ctx, tx, "steps_settings"); err != nil {
		return idRange{}, err
	}
	ids, err := one[struct{ First, Last int64 }](ctx, s, tx, "steps", after)
	if err != nil {
		return idRange{}, err
	}
	if w.through == 0 {
		w.through = ids.Last
	}
	if ids.First == 0 || ids.First > w.through {
		return idRange{}, nil
	}
	return idRange{after: ids.First - 1, through: min(ids.First-1+rangeSize, w.through)}, nil
}

// SentinelsDue implements store.Repair.
func (s *Store) SentinelsDue(ctx context.Context, interval, lost time.Duration) ([]message.Sentinel, error) {
	var rows []struct {
		Lane string
		At   time.Time
	}
	err := s.do(ctx, "choose sentinels", func() error {
		rows = nil
		return s.all(ctx, s.db, &rows, "sentinels_due", micros(interval), micros(lost))
	})
	if err != nil {
		return nil, err
	}
	sentinels := make([]message.Sentinel, len(rows))
	for i, row := range rows {
		sentinels[i] = message.Sentinel{Lane: row.Lane, At: row.At.UTC()}
	}
	return sentinels, nil
}

// noteDuty is the row of turns that has the newest recorded time.
const noteDuty = "clock"

// CorrectTimes implements store.Repair. It records the time last, so that the next call repeats a call that failed.
func (s *Store) CorrectTimes(ctx context.Context) (bool, error) {
	const operation = "correct times"
	var noted struct{ Ahead bool }
	err := s.do(ctx, operation, func() error {
		var err error
		noted, err = one[struct{ Ahead bool }](ctx, s, s.db, "correct_noted", noteDuty)
		return err
	})
	if err != nil {
		return false, err
	}
	if noted.Ahead {
		// The outbox comes first: a task that an entry covers must not look older than the entry.
		err := s.do(ctx, operation, func() error {
			_, err := s.exec(ctx, s.db, "correct_outbox")
			return err
		})
		if err != nil {
			return false, err
		}
		_, err = s.inSteps(ctx, operation, walk{size: unticketStep}, func(tx store.Tx, r idRange) (step, error) {
			return one[step](ctx, s, tx, "correct_tasks", r.after, r.through, r.size)
		})
		if err != nil {
			return false, err
		}
	}
	return noted.Ahead, s.do(ctx, operation, func() error {
		_, err := s.exec(ctx, s.db, "correct_note", noteDuty)
		return err
	})
}

// Turn implements store.Repair.
func (s *Store) Turn(ctx context.Context, duty string, every time.Duration) (bool, error) {
	n := 0
	err := s.do(ctx, "take a turn", func() error {
		var err error
		n, err = s.exec(ctx, s.db, "turn", duty, micros(every))
		return err
	})
	return n == 1, err
}

// pruneStep bounds the rows that one transaction deletes.
const pruneStep = 1000

// Prune implements store.Repair. After an error some rows are gone and others are not.
func (s *Store) Prune(ctx context.Context, ages store.PruneAges, limit int) (int, error) {
	total, err := s.pruneTasks(ctx, ages, limit)
	if err != nil {
		return total, err
	}
	err = s.do(ctx, "prune runs", func() error {
		if _, err := s.exec(ctx, s.db, "prune_news"); err != nil {
			return err
		}
		if ages.Runs <= 0 || total >= limit {
			return nil
		}
		runs, err := s.exec(ctx, s.db, "prune_runs", micros(ages.Runs), limit-total)
		total += runs
		return err
	})
	return total, err
}

func (s *Store) pruneTasks(ctx context.Context, ages store.PruneAges, limit int) (int, error) {
	youngest := time.Duration(0)
	for _, age := range []time.Duration{ages.Done, ages.Cancelled, ages.Archived} {
		if age > 0 && (youngest == 0 || age < youngest) {
			youngest = age
		}
	}
	if youngest == 0 || limit <= 0 {
		return 0, nil
	}
	var bound int64
	err := s.do(ctx, "prune tasks", func() error {
		row, err := one[struct{ Bound int64 }](ctx, s, s.db, "prune_bound", micros(youngest))
		bound = row.Bound
		return err
	})
	if err != nil || bound == 0 {
		return 0, err
	}
	return s.inSteps(ctx, "prune tasks", walk{through: bound, size: pruneStep, limit: limit}, func(tx store.Tx, r idRange) (step, error) {
		return one[step](ctx, s, tx, "prune_tasks", r.after, r.through, r.size, micros(ages.Done), micros(ages.Cancelled), micros(ages.Archived))
	})
}
