package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"github.com/holdfastq/holdfast/internal/backoff"
)

const (
	// blockSize is how many ids are listed together as perhaps ticketed. A retry of one old task makes the next look read so many.
	// Whoever changes it makes the lists of running processes wrong.
	blockSize = 5000
	// blocksPerStep bounds the rows that one step reads, and for how long it keeps dispatchers waiting.
	blocksPerStep = 4
	// lookLimit is for how long one call looks at tasks that are not lost. The next call goes on from there. firstLookLimit is the same
	// as long as a call reads tasks for the first time.
	lookLimit      = 3 * time.Second
	firstLookLimit = 15 * time.Second
	// writersLimit is how long a call waits for transactions that may store an id which lies below others. lookPause is between
	// two questions whether they have ended.
	writersLimit = time.Second
	lookPause    = 20 * time.Millisecond
)

// UnticketLost implements store.Repair. No index finds the tasks that are ticketed, for the sake of claims. So the look reads the
// tasks in steps and keeps a list of the blocks of ids in which some are: see ticketed_blocks in the schema. What adds to the list
// is a step that reads tasks for the first time, and DispatchDue when it marks a task that a step has read before. A task that
// leaves the list, because it runs, comes back through DispatchDue only. All processes share the list and the progress.
func (s *Store) UnticketLost(ctx context.Context, slack time.Duration) (int, error) {
	const operation = "unticket lost tasks"
	scan := lostScan{slack: slack}
	var err error
	if scan.lanes, scan.moments, err = s.proofs(ctx, operation, slack); err != nil || len(scan.lanes) == 0 {
		return 0, err
	}
	if err := s.do(ctx, operation, func() error { return s.beginLostScan(ctx, &scan) }); err != nil {
		return 0, err
	}
	total := 0
	for began, more := time.Now(), true; more; {
		var did lostStep
		err := s.tx(ctx, func(tx *sqlx.Tx) error {
			var err error
			did, err = s.lostStep(ctx, tx, &scan)
			return err
		})
		limit := lookLimit
		if did.first {
			limit = firstLookLimit
		}
		spent := time.Since(began) > limit
		if err != nil && !spent && (passing(err) || pq.As(err, pqerror.LockNotAvailable) != nil) {
			err = backoff.Sleep(ctx, lookPause) // dispatchers come first
			did = lostStep{resume: scan.resume, more: true}
		}
		if err != nil {
			return total, translate(ctx, operation, err)
		}
		total, scan.resume = total+did.lost, did.resume
		more = did.more && (did.changed > 0 || !spent)
	}
	return total, s.do(ctx, operation, func() error {
		_, err := s.exec(ctx, s.db, "unticket_lost_resume", scan.resume)
		return err
	})
}

// lostScan is what the steps of one call share.
type lostScan struct {
	lanes, moments pq.StringArray // see proofs
	slack          time.Duration
	bound          int64 // the last id to look at
	certain        bool  // no transaction can store an id up to bound any more
	resume         int64 // the block to go on with
}

// beginLostScan decides how far the look goes and from where.
func (s *Store) beginLostScan(ctx context.Context, scan *lostScan) error {
	if _, err := s.exec(ctx, s.db, "unticket_lost_begin"); err != nil {
		return err
	}
	row, err := one[struct{ Bound, Through, Resume int64 }](ctx, s, s.db, "unticket_lost_bound")
	if err != nil {
		return err
	}
	scan.bound, scan.resume = row.Bound, row.Resume
	if scan.certain = row.Bound <= row.Through; !scan.certain {
		scan.certain, err = s.writersEnded(ctx)
	}
	return err
}

// writersEnded waits for the transactions that write tasks now, and reports whether all of them have ended in time. While one has
// not, steps look at new tasks and do not count them as looked at.
func (s *Store) writersEnded(ctx context.Context) (bool, error) {
	type writer struct {
		Name string `db:"virtualtransaction"`
	}
	var open []writer
	first := true
	for began := time.Now(); ; {
		var writers []writer
		if err := s.all(ctx, s.db, &writers, "unticket_lost_writers"); err != nil {
			return false, err
		}
		if first {
			open, first = writers, false
		} else {
			open = slices.DeleteFunc(open, func(w writer) bool { return !slices.Contains(writers, w) })
		}
		if len(open) == 0 || time.Since(began) > writersLimit {
			return len(open) == 0, nil
		}
		if err := backoff.Sleep(ctx, lookPause); err != nil {
			return false, err
		}
	}
}

// lostStep is what a step has done.
type lostStep struct {
	changed int
	lost    int   // of these, those whose loss is proved
	resume  int64 // the block to go on with, 0 at the end
	more    bool
	first   bool // it read tasks that no step had read
}

// lostStep looks at the next few blocks.
func (s *Store) lostStep(ctx context.Context, tx *sqlx.Tx, scan *lostScan) (lostStep, error) {
	for _, name := range []string{"steps_settings", "unticket_lost_settings"} {
		if _, err := s.exec(ctx, tx, name); err != nil {
			return lostStep{}, err
		}
	}
	progress, err := one[struct{ Through int64 }](ctx, s, tx, "unticket_lost_lock")
	if err != nil {
		return lostStep{}, err
	}
	blocks, through, err := s.nextBlocks(ctx, tx, scan, progress.Through)
	if err != nil || len(blocks) == 0 {
		return lostStep{}, err
	}
	did, err := one[struct{ Changed, Lost int }](ctx, s, tx, "unticket_lost",
		numbers(blocks), blockSize, scan.bound, unticketStep, scan.lanes, scan.moments, micros(scan.slack), through)
	if err != nil {
		return lostStep{}, err
	}
	resume := blocks[len(blocks)-1] + 1
	if did.Changed == unticketStep { // there may be more in these blocks
		resume = blocks[0]
	}
	return lostStep{did.Changed, did.Lost, resume, true, through > progress.Through}, nil
}

// nextBlocks returns the blocks to look at next, in their order: those that are listed, then those above through. A gap costs nothing,
// however wide. It also returns through as it is after a look at them.
func (s *Store) nextBlocks(ctx context.Context, tx *sqlx.Tx, scan *lostScan, through int64) (blocks []int64, after int64, err error) {
	var rows []struct {
		Block int64
		Above bool
	}
	err = s.all(ctx, tx, &rows, "unticket_lost_blocks", scan.resume, through, scan.bound, blocksPerStep, blockSize)
	if err != nil {
		return nil, 0, err
	}
	after = through
	for _, row := range rows {
		if !row.Above {
			blocks = append(blocks, row.Block)
			continue
		}
		for block := row.Block; len(blocks) < blocksPerStep && block*blockSize < scan.bound; block++ {
			if !slices.Contains(blocks, block) { // that of through may be listed too
				blocks = append(blocks, block)
			}
			if scan.certain {
				after = min((block+1)*blockSize, scan.bound)
			}
		}
	}
	return blocks, after, nil
}

// proofs lists the lanes of which a sentinel has come out at least slack ago, and when it was sent.
func (s *Store) proofs(ctx context.Context, operation string, slack time.Duration) (lanes, moments pq.StringArray, err error) {
	var rows []struct{ Lane, Moment string }
	err = s.do(ctx, operation, func() error {
		rows = nil
		return s.all(ctx, s.db, &rows, "unticket_lost_proofs", micros(slack))
	})
	for _, row := range rows {
		lanes, moments = append(lanes, row.Lane), append(moments, row.Moment)
	}
	return lanes, moments, err
}
