package postgres

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"github.com/holdfastq/holdfast/internal/backoff"
)

const (
	// blockSize is how many ids the list takes together as perhaps ticketed. After a retry of one old task the next
	// look reads that many. A build with another size makes the lists of running processes wrong.
	blockSize = 5000
	// blocksPerStep bounds the rows that one step reads, and how long dispatchers wait for it.
	blocksPerStep = 4
	// lookLimit is how long one call looks without a lost ticket. The next call continues from there. firstLookLimit is
	// the same for a call that reads tasks for the first time.
	lookLimit      = 3 * time.Second
	firstLookLimit = 15 * time.Second
	// writersLimit is how long a call waits for transactions that may store an id below others. lookPause is the pause
	// between two checks whether they have ended.
	writersLimit = time.Second
	lookPause    = 20 * time.Millisecond
)

// UnticketLost implements store.Repair. No index finds the ticketed tasks, because claims would have to update it. So
// the look reads the tasks in steps and keeps a list of the blocks of ids with ticketed tasks: see ticketed_blocks in
// the schema. A step adds to the list when it reads tasks for the first time, and DispatchDue when it marks a task that
// a step has read before. A task that leaves the list, because it runs, returns through DispatchDue only. All processes
// share the list and the progress.
func (s *repairer) UnticketLost(ctx context.Context, slack time.Duration) (lost, doubtful int, err error) {
	const operation = "unticket lost tasks"
	scan := lostScan{slack: slack}
	if scan.lanes, scan.moments, err = s.proofs(ctx, operation, slack); err != nil || len(scan.lanes) == 0 {
		return 0, 0, err
	}
	if err := s.do(ctx, operation, func() error { return s.beginLostScan(ctx, &scan, writersLimit) }); err != nil {
		return 0, 0, err
	}
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
			err = backoff.Sleep(ctx, lookPause) // let dispatchers go first
			did = lostStep{resume: scan.resume, more: true}
		}
		if err != nil {
			return lost, doubtful, translate(ctx, operation, err)
		}
		lost, doubtful, scan.resume = lost+did.lost, doubtful+did.changed-did.lost, did.resume
		more = did.more && (did.changed > 0 || !spent)
	}
	return lost, doubtful, s.do(ctx, operation, func() error {
		_, err := s.exec(ctx, s.db, "unticket_lost_resume", scan.resume)
		return err
	})
}

// lostScan is what the steps of one call share.
type lostScan struct {
	lanes, moments pq.StringArray // see proofs
	slack          time.Duration
	bound          int64 // the last id to look at
	certain        int64 // no transaction can store an id up to this one any more; at most bound
	resume         int64 // the block to go on with
}

// beginLostScan determines the first and the last id of the look. It waits for open transactions for at most patience.
func (s *repairer) beginLostScan(ctx context.Context, scan *lostScan, patience time.Duration) error {
	if _, err := s.exec(ctx, s.db, "unticket_lost_begin"); err != nil {
		return err
	}
	row, err := one[struct{ Bound, Through, Resume, Started int64 }](ctx, s, s.db, "unticket_lost_bound")
	if err != nil {
		return err
	}
	// If another call sets through back, steps move it up to certain again. So they must read that far.
	scan.bound, scan.certain, scan.resume = max(row.Bound, row.Through), row.Through, row.Resume
	if row.Bound <= row.Through {
		return nil
	}
	certain, err := s.certainThrough(ctx, unsettled{server: row.Started, bound: row.Bound}, patience)
	scan.certain = min(max(certain, row.Through), scan.bound)
	return err
}

// unsettled is a bound, and the transactions that may still store an id up to it.
type unsettled struct {
	server int64 // when the server started; another server may give out the same ids again
	bound  int64
	open   []writer
}

type writer struct {
	Name string `db:"virtualtransaction"`
}

// outlived removes the transactions that are not among writers, a later list, and reports whether all of them have
// ended.
func (u *unsettled) outlived(writers []writer) bool {
	u.open = slices.DeleteFunc(u.open, func(w writer) bool { return !slices.Contains(writers, w) })
	return len(u.open) == 0
}

// earlierBound is the bound of an earlier call whose transactions had not all ended. The calls of a process share it.
// If short transactions overlap, one is always open, but those of an earlier call end.
type earlierBound struct {
	mu sync.Mutex
	unsettled
}

// settle returns the earlier bound if all its transactions have ended, otherwise 0. It keeps the next bound to wait for.
func (e *earlierBound) settle(next unsettled, writers []writer) (certain int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.server == next.server {
		if !e.outlived(writers) {
			return 0
		}
		certain = e.bound
	}
	e.unsettled = next
	return certain
}

// certainThrough waits for the transactions that write tasks now. If all of them end in time, it returns the bound of
// now. Otherwise it returns the bound of an earlier call whose transactions have ended, or 0.
func (s *repairer) certainThrough(ctx context.Context, now unsettled, patience time.Duration) (int64, error) {
	for began, first := time.Now(), true; ; first = false {
		var writers []writer
		if err := s.all(ctx, s.db, &writers, "unticket_lost_writers"); err != nil {
			return 0, err
		}
		if first {
			now.open = slices.Clone(writers)
		}
		if ended := now.outlived(writers); ended || time.Since(began) > patience {
			certain := s.earlier.settle(now, writers)
			if ended {
				certain = now.bound
			}
			return certain, nil
		}
		if err := backoff.Sleep(ctx, lookPause); err != nil {
			return 0, err
		}
	}
}

// lostStep is the result of a step.
type lostStep struct {
	changed int
	lost    int   // of these, those without doubt
	resume  int64 // the block to go on with, 0 at the end
	more    bool
	first   bool // it read tasks that no step had read
}

// lostStep looks at the next few blocks.
//
// The invariant: at each commit, every ticketed row with id <= through is in a listed block, and no transaction can
// store another row there, except a due one. Three rules keep it. A step reads each of its blocks up to through at
// least, before it unlists the block. A step that moves through reads all rows that through passes, from the old
// through on, and all of them are certain. A dispatcher either marks a task before the step reads, or it waits for the
// step, and then lists the block.
func (s *repairer) lostStep(ctx context.Context, tx *sqlx.Tx, scan *lostScan) (lostStep, error) {
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
		numbers(blocks), blockSize, max(scan.bound, progress.Through), unticketStep, scan.lanes, scan.moments, micros(scan.slack), through)
	if err != nil {
		return lostStep{}, err
	}
	resume := blocks[len(blocks)-1] + 1
	if did.Changed == unticketStep { // there may be more in these blocks
		resume = blocks[0]
	}
	return lostStep{did.Changed, did.Lost, resume, true, through > progress.Through}, nil
}

// nextBlocks returns the blocks to look at next, in their order: the listed ones, then those above through. It skips a
// gap of any width at no cost. It also returns the value of through after a look at them.
func (s *repairer) nextBlocks(ctx context.Context, tx *sqlx.Tx, scan *lostScan, through int64) (blocks []int64, after int64, err error) {
	var rows []struct {
		Block int64
		Above bool
	}
	above, moves := through, through < scan.certain
	if !moves { // only then may a step skip what an earlier one has read: through stays below it
		above = max(through, scan.resume*blockSize)
	}
	err = s.all(ctx, tx, &rows, "unticket_lost_blocks", scan.resume, through, scan.bound, blocksPerStep, blockSize, above)
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
			if moves {
				after = min((block+1)*blockSize, scan.certain)
			}
		}
	}
	return blocks, after, nil
}

// proofs lists the lanes of which something is proved, and through when: a sentinel was sent then and has come out, and so
// has another one that was sent at least slack after that.
func (s *repairer) proofs(ctx context.Context, operation string, slack time.Duration) (lanes, moments pq.StringArray, err error) {
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
