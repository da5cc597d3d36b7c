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
	"github.com/holdfastq/holdfast/store/postgres/pgclient"
)

const (
	// blockSize is the number of ids in a block of the list. After a retry of one old task, the next scan reads a whole
	// block. All processes must use the same size, because they share the list.
	blockSize = 5000
	// blocksPerStep limits the rows that one step reads, and how long dispatchers wait for it.
	blocksPerStep = 4
	// scanLimit is how long one call scans without finding a lost ticket. The next call continues at the same task.
	// firstScanLimit is the limit of a call that reads tasks for the first time.
	scanLimit      = 3 * time.Second
	firstScanLimit = 15 * time.Second
	// writersLimit is how long a call waits for open transactions that may still store ids in the scanned range.
	// scanPause is the pause between two checks whether they have ended.
	writersLimit = time.Second
	scanPause    = 20 * time.Millisecond
)

// UnticketLost implements store.Repair. There is no index of the ticketed tasks, because every claim would have to
// update it. Instead UnticketLost scans the tasks in steps, and keeps a list of the blocks of ids that contain ticketed
// tasks: see ticketed_blocks in the schema. A step lists a block when it reads its tasks for the first time.
// DispatchDue lists a block when it marks a task that a step has already read. A task that has started is ticketed
// again only by DispatchDue. All processes share the list and the progress.
func (s *repairer) UnticketLost(ctx context.Context, slack time.Duration) (lost, doubtful int, err error) {
	const operation = "unticket lost tasks"
	scan := lostScan{slack: slack}
	if scan.queues, scan.moments, err = s.proofs(ctx, operation, slack); err != nil || len(scan.queues) == 0 {
		return 0, 0, err
	}
	if err := s.do(ctx, operation, func() error { return s.beginLostScan(ctx, &scan, writersLimit) }); err != nil {
		return 0, 0, err
	}
	for began, more := time.Now(), true; more; {
		var result lostStep
		err := s.tx(ctx, func(tx *sqlx.Tx) error {
			var err error
			result, err = s.lostStep(ctx, tx, &scan)
			return err
		})
		limit := scanLimit
		if result.first {
			limit = firstScanLimit
		}
		spent := time.Since(began) > limit
		if err != nil && !spent && (pgclient.Transient(err) || pq.As(err, pqerror.LockNotAvailable) != nil) {
			err = backoff.Sleep(ctx, scanPause) // let dispatchers run first
			result = lostStep{resume: scan.resume, more: true}
		}
		if err != nil {
			return lost, doubtful, pgclient.Translate(ctx, operation, err)
		}
		lost, doubtful, scan.resume = lost+result.lost, doubtful+result.changed-result.lost, result.resume
		more = result.more && (result.changed > 0 || !spent)
	}
	_, err = s.change(ctx, operation, "unticket_lost_resume", scan.resume)
	return lost, doubtful, err
}

// KeepSentinels implements store.Repair.
func (s *repairer) KeepSentinels(ctx context.Context, slack time.Duration) error {
	_, _, err := s.proofs(ctx, "keep sentinels", slack)
	return err
}

// lostScan is the state that the steps of one call share.
type lostScan struct {
	queues, moments pq.StringArray // see proofs
	slack           time.Duration
	bound           int64 // the last id to read
	certain         int64 // no open transaction can still store an id up to this one; at most bound
	resume          int64 // the block to continue with
}

// beginLostScan determines the first and the last id of the scan. It waits for open transactions for at most patience.
func (s *repairer) beginLostScan(ctx context.Context, scan *lostScan, patience time.Duration) error {
	if _, err := s.exec(ctx, s.db, "unticket_lost_begin"); err != nil {
		return err
	}
	row, err := one[struct{ Bound, Through, Resume, Started int64 }](ctx, s, s.db, "unticket_lost_bound")
	if err != nil {
		return err
	}
	// Another call may reset the stored value of through. The steps of this call then advance it to certain again, so
	// they must read that far.
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
	server int64 // start time of the server; after a failover, the server may assign the same ids again
	bound  int64
	open   []writer
}

type writer struct {
	Name string `db:"virtualtransaction"`
}

// outlived removes the transactions that are not in writers, a later list of open transactions. It reports whether all
// transactions have ended.
func (u *unsettled) outlived(writers []writer) bool {
	u.open = slices.DeleteFunc(u.open, func(w writer) bool { return !slices.Contains(writers, w) })
	return len(u.open) == 0
}

// earlierBound is the bound of an earlier call whose transactions had not all ended. The calls of a process share it.
// If short transactions overlap, some transaction is always open, but those of an earlier call have ended.
type earlierBound struct {
	mu sync.Mutex
	unsettled
}

// settle returns the earlier bound if all its transactions have ended, otherwise 0. If they have ended, or if the
// server has restarted, it stores next as the bound to wait for.
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

// certainThrough waits for the transactions that are writing tasks. If all of them end in time, it returns now.bound.
// Otherwise it returns the bound of an earlier call whose transactions have ended, or 0.
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
		if err := backoff.Sleep(ctx, scanPause); err != nil {
			return 0, err
		}
	}
}

// lostStep is the result of a step.
type lostStep struct {
	changed int
	lost    int   // number of changed tasks whose tickets are certainly lost
	resume  int64 // the block to continue with, 0 at the end
	more    bool
	first   bool // the step read tasks that no step had read before
}

// lostStep processes the next few blocks.
//
// Invariant: at each commit, every ticketed row with id <= through is in a listed block. No open transaction can store
// another row with such an id, except a row that is due. Three rules keep the invariant:
//
//   - A step reads a block at least up to the id through before it unlists the block.
//   - A step that increases the id through reads all rows between the old and the new value. No open transaction can
//     still store a row there.
//   - A dispatcher either marks a task before the step reads it, or waits for the step and then lists the block.
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
	result, err := one[struct{ Changed, Lost int }](ctx, s, tx, "unticket_lost",
		numbers(blocks), blockSize, max(scan.bound, progress.Through), unticketStep, scan.queues, scan.moments, micros(scan.slack), through)
	if err != nil {
		return lostStep{}, err
	}
	resume := blocks[len(blocks)-1] + 1
	if result.Changed == unticketStep { // there may be more lost tickets in these blocks
		resume = blocks[0]
	}
	return lostStep{result.Changed, result.Lost, resume, true, through > progress.Through}, nil
}

// nextBlocks returns the blocks to read next, in their order: first the listed blocks, then the blocks above the id
// through. It skips a gap of any width at no cost. after is the new value of through, after a step that reads these
// blocks.
func (s *repairer) nextBlocks(ctx context.Context, tx *sqlx.Tx, scan *lostScan, through int64) (blocks []int64, after int64, err error) {
	var rows []struct {
		Block int64
		Above bool
	}
	above, moves := through, through < scan.certain
	if !moves { // the id through does not change, so the step may skip blocks that an earlier step has read
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
			if !slices.Contains(blocks, block) { // the block of the id through may also be listed
				blocks = append(blocks, block)
			}
			if moves {
				after = min((block+1)*blockSize, scan.certain)
			}
		}
	}
	return blocks, after, nil
}

// proofs returns the queues that are proved to be drained, and for each queue the time through which. A sentinel that
// was sent at that time has come out of the main queue. Another sentinel, sent at least slack after the first one came
// out, has come out too.
func (s *repairer) proofs(ctx context.Context, operation string, slack time.Duration) (queues, moments pq.StringArray, err error) {
	rows, err := list[struct{ Queue, Moment string }](ctx, s, operation, "unticket_lost_proofs", micros(slack))
	for _, row := range rows {
		queues, moments = append(queues, row.Queue), append(moments, row.Moment)
	}
	return queues, moments, err
}
