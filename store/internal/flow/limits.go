package flow

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/permit"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// SetLimit implements store.Limits, except that it does not wait for claims in progress.
func (g *Flow) SetLimit(ctx context.Context, by store.Actor, c store.LimitChange) (result store.Changed[store.Limit], err error) {
	if err := c.Validate(); err != nil {
		return result, err
	}
	err = g.changing(ctx, "set "+c.String(), func(ctx context.Context, tx transact.Transaction) error {
		result = store.Changed[store.Limit]{}
		before, err := limitIn(ctx, tx, c.Scope)
		if err != nil {
			return err
		}
		if len(before) > 0 {
			result.Before = &before[0]
		}
		if c.Check != nil {
			if err := c.Check(result.Before); err != nil {
				return err
			}
		}
		l, err := c.Apply(result.Before, by)
		if err != nil {
			return err
		}
		var rows []scan.Limit
		err = tx.Read(ctx, "limit_set", &rows, string(scan.KindOf(l.Per)), l.Queue, l.Type, l.Key, l.Target,
			column.Text(l.Name), string(l.Surface), column.Text(l.Reason), l.Rate.Count, l.Rate.Per.Microseconds(), l.Concurrency)
		if err != nil {
			return err
		}
		result.After = rows[0].Value()
		entry := transact.EntryOf(by, store.ActionSet, l.Scope.String())
		if result.Before != nil {
			entry.Before = transact.TextOf(result.Before.Version())
		}
		entry.After = transact.TextOf(result.After.Version())
		return transact.Record(ctx, tx, []transact.AuditRow{entry})
	})
	if err == nil {
		err = g.checkBuckets(ctx, result.After.ID)
	}
	return result, err
}

// changedBuckets is the number of buckets that a transaction makes due after a change of their limit.
const changedBuckets = 5000

// checkBuckets makes the buckets of a limit due for a check, in short transactions: a limit can have 100,000 keys, and no
// task gets a permit meanwhile. A bucket that a janitor has checked in between may become due once more.
func (g *Flow) checkBuckets(ctx context.Context, limit store.ID) error {
	for {
		n := 0
		err := g.transactions.Transact(ctx, "check the tasks of a limit", func(ctx context.Context, tx transact.Transaction) (err error) {
			if _, err = g.Lock(ctx, tx, true); err == nil {
				n, err = tx.Change(ctx, "limit_changed", int64(limit), changedBuckets)
			}
			return err
		})
		if err != nil || n < changedBuckets {
			return err
		}
	}
}

// UnsetLimit implements store.Limits.
func (g *Flow) UnsetLimit(ctx context.Context, by store.Actor, s store.Scope) (unset store.Limit, err error) {
	if err := s.Validate(); err != nil {
		return unset, err
	}
	err = g.changing(ctx, "unset "+s.String(), func(ctx context.Context, tx transact.Transaction) error {
		found, err := limitIn(ctx, tx, s)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return fmt.Errorf("%w: there is no %s", holdfast.ErrNotFound, s)
		}
		unset = found[0]
		return unsetIn(ctx, tx, by, unset)
	})
	return unset, err
}

// UnsetLimitByID implements store.Limits.
func (g *Flow) UnsetLimitByID(ctx context.Context, by store.Actor, id store.ID, check func(store.Limit) error) (unset store.Limit, err error) {
	err = g.changing(ctx, fmt.Sprintf("unset limit %s", id), func(ctx context.Context, tx transact.Transaction) error {
		missing := fmt.Errorf("%w: there is no limit %s", holdfast.ErrNotFound, id)
		row, err := transact.FirstOf[scan.Limit](ctx, tx, missing, "limit_by_id", int64(id))
		if err != nil {
			return err
		}
		unset = row.Value()
		if check != nil {
			if err := check(unset); err != nil {
				return err
			}
		}
		return unsetIn(ctx, tx, by, unset)
	})
	return unset, err
}

// unsetIn removes a limit.
func unsetIn(ctx context.Context, tx transact.Transaction, by store.Actor, l store.Limit) error {
	if _, err := tx.Change(ctx, "gate_lift", int64(l.ID)); err != nil {
		return err
	}
	entry := transact.EntryOf(by, store.ActionUnset, l.Scope.String())
	entry.Before = transact.TextOf(l.Version())
	return transact.Record(ctx, tx, []transact.AuditRow{entry})
}

// limitIn returns the limit with a scope, or nothing.
func limitIn(ctx context.Context, tx transact.Transaction, s store.Scope) ([]store.Limit, error) {
	var rows []scan.Limit
	err := tx.Read(ctx, "limit_get", &rows, string(scan.KindOf(s.Per)), s.Queue, s.Type, s.Key, s.Target)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return []store.Limit{rows[0].Value()}, nil
}

// Limits implements store.Limits.
func (g *Flow) Limits(ctx context.Context) ([]store.LimitUse, error) {
	return transact.ListOf(ctx, transact.Alone(g.transactions, "list limits"), "limits", scan.Limit.Use, store.MaxCountedBlocked)
}

// LimitsOf implements store.Limits.
func (g *Flow) LimitsOf(ctx context.Context, task holdfast.TaskID) ([]store.TaskLimit, error) {
	var rows []scan.TaskLimit
	if err := g.transactions.Read(ctx, "read limits of a task", "limits_of", &rows, task); err != nil {
		return nil, err
	}
	limits, reserved := make([]store.TaskLimit, len(rows)), make([]*scan.Reserved, len(rows))
	for i := range rows {
		limits[i], reserved[i] = rows[i].Value(), &rows[i].Reserved
	}
	err := keepReserving(reserved, func(tasks []holdfast.TaskID, reserving *[]scan.Reserving) error {
		return g.transactions.Read(ctx, "read tasks with reservations", "reserving", reserving, tasks)
	})
	for i, r := range reserved {
		if r.ReservedTask != nil {
			limits[i].Reserved = *r.ReservedTask
		}
	}
	return limits, err
}

// keepReserving removes the reservations that have ended. read returns the tasks that still have a reservation.
func keepReserving(reserved []*scan.Reserved, read func(tasks []holdfast.TaskID, reserving *[]scan.Reserving) error) error {
	var tasks []holdfast.TaskID
	for _, r := range reserved {
		if r.ReservedTask != nil && !slices.Contains(tasks, *r.ReservedTask) {
			tasks = append(tasks, *r.ReservedTask)
		}
	}
	if len(tasks) == 0 {
		return nil
	}
	var reserving []scan.Reserving
	if err := read(tasks, &reserving); err != nil {
		return err
	}
	for _, r := range reserved {
		if !slices.ContainsFunc(reserving, func(s scan.Reserving) bool {
			return r.ReservedTask != nil && s.Task == *r.ReservedTask && s.Since.Equal(r.ReservedSince)
		}) {
			r.ReservedTask = nil
		}
	}
	return nil
}

// Limits of one transaction that gives permits.
const (
	maxBuckets = 100
	// moreCandidates is the number of extra tasks to read for all buckets together. If another limit blocks such a
	// task, the task moves to that limit, so that it does not delay the tasks behind it.
	moreCandidates = 100
	// moreProbes is the number of extra tasks to read among the newest ones of a breaker, and among those in the middle.
	// Some of them have been tried, or another transaction has locked them.
	moreProbes = 20
)

const (
	// noNext means that no task waits for a permit.
	noNext = time.Duration(-1)
	// busyLook is the time until the next try if another process is giving permits.
	busyLook = 50 * time.Millisecond
)

// bucketsNext is the time of the next check of a bucket.
type bucketsNext struct {
	After   *float64 // microseconds; nil if there is no bucket
	Waiting bool     // whether a bucket waits for permits to become free
}

func (b bucketsNext) released() store.Released {
	if b.After == nil {
		return store.Released{Next: noNext}
	}
	return store.Released{Next: max(0, time.Duration(*b.After)*time.Microsecond), Waiting: b.Waiting}
}

// givePermits makes at most limit blocked tasks due and gives them permits. The permits of the tasks in ended may be
// free. If another process is giving permits, givePermits does nothing.
func (g *Flow) givePermits(ctx context.Context, limit int, ended []holdfast.TaskID) (released store.Released, err error) {
	locked, sweep := false, permitSweep{}
	var d *decision
	err = g.transactions.Transact(ctx, "give permits", func(ctx context.Context, tx transact.Transaction) error {
		released, locked = store.Released{Next: busyLook}, false
		now, err := g.Lock(ctx, tx, false)
		if err != nil || now.IsZero() {
			return err
		}
		locked = true
		if sweep, err = g.freePermits(ctx, tx, ended); err != nil {
			return err
		}
		d = &decision{
			limit: limit, now: now, buckets: make(map[permit.Ref]*permit.Bucket), unread: make(map[permit.Ref]int), blocked: make(map[permit.Ref]int),
		}
		if err := g.decide(ctx, tx, d); err != nil {
			return err
		}
		var next []bucketsNext
		if err := tx.Read(ctx, "buckets_next", &next); err != nil {
			return err
		}
		released = next[0].released()
		released.Tasks = len(d.admitted)
		if d.full { // the buckets stay due
			released.Next, released.Waiting = max(released.Next, roomLook), released.Waiting || d.soon
		}
		return nil
	})
	if err != nil || !locked {
		g.Ended.Add(ended...)
		return released, err
	}
	g.sweep.Store(&sweep)
	g.permitted.given(d.admitted)
	return released, nil
}

// freePermits deletes the free permits of the tasks in ended. If the next step of the sweep is due, it also deletes
// those that the step finds. It returns the new position of the sweep.
func (g *Flow) freePermits(ctx context.Context, tx transact.Transaction, ended []holdfast.TaskID) (permitSweep, error) {
	sweep := *g.sweep.Load()
	continues := sweep.due()
	var next []permitID
	if continues {
		if err := tx.Read(ctx, "permits_next", &next, sweep.last.Task, sweep.last.Gate, sweep.size()); err != nil {
			return sweep, err
		}
	}
	tasks := slices.Clone(ended)
	for _, permit := range next {
		tasks = append(tasks, holdfast.TaskID(permit.Task))
	}
	freed := 0
	if len(tasks) > 0 {
		var err error
		if freed, err = tx.Change(ctx, "permits_free", tasks); err != nil {
			return sweep, err
		}
	}
	if continues {
		sweep = sweep.after(next, freed)
	}
	return sweep, nil
}

// bucketRow is a bucket in a JSON document for a statement. Times are in microseconds since 1970.
type bucketRow struct {
	GateID store.ID `json:"gate_id"`
	Bucket string   `json:"bucket"`
	N      int      `json:"n,omitempty"`
	// Others is the number of tasks of a breaker to read besides the first N: so many of the newest ones, and so many from
	// the part Middle, between 0 and 1, of the ids of its tasks on.
	Others    int     `json:"others,omitempty"`
	Middle    float64 `json:"middle,omitempty"`
	NextAt    int64   `json:"next_at,omitempty"`
	AllowedAt *int64  `json:"allowed_at,omitempty"`
	Behind    bool    `json:"behind"`
	reservedRow
}

type reservedRow struct {
	Task  holdfast.TaskID `json:"reserved_task,omitempty"`
	Since int64           `json:"reserved_since,omitempty"`
	From  int64           `json:"reserved_from,omitempty"`
}

// taskRow is a task in a JSON document for a statement.
type taskRow struct {
	TaskID  holdfast.TaskID `json:"task_id"`
	Attempt int             `json:"attempt"`
	GateID  store.ID        `json:"gate_id,omitempty"`
	Bucket  string          `json:"bucket"`
	Permits []bucketRow     `json:"permits,omitempty"`

	queue, topic string
}

// decision is the state of a transaction that gives permits.
type decision struct {
	limit                 int
	now                   time.Time
	due                   []permit.Ref                  // the buckets to decide about
	buckets               map[permit.Ref]*permit.Bucket // the due buckets, and the others that the candidates need
	unread                map[permit.Ref]int            // by due bucket: requested minus read candidates; at 0 or less, more may wait
	blocked               map[permit.Ref]int            // by bucket: candidates that stay blocked or become blocked
	full, soon            bool                          // tasks stay blocked because their queues or topics have no room; see rooms
	admitted, moved, gone []taskRow
}

func (g *Flow) decide(ctx context.Context, tx transact.Transaction, d *decision) error {
	var rows []scan.Bucket
	if err := tx.Read(ctx, "buckets_due", &rows, maxBuckets, d.limit); err != nil || len(rows) == 0 {
		return err
	}
	if d.limit == 0 {
		return nil
	}
	if err := endReservations(ctx, tx, rows); err != nil {
		return err
	}
	rooms, err := g.readRooms(ctx, tx)
	if err != nil {
		return err
	}
	d.soon = rooms.soon
	var wanted []bucketRow
	left := min(d.limit, rooms.total)
	for i := range rows {
		if left == 0 && rows[i].Blocked > 0 { // a later call decides about the bucket
			d.full = rooms.total < d.limit
			continue
		}
		ref, b := rows[i].Ref(), rows[i].Value()
		free := min(b.Free(d.now, left), rows[i].Blocked)
		left -= free
		n := free + max(moreCandidates/len(rows), 1)
		d.due, d.buckets[ref], d.unread[ref] = append(d.due, ref), b, n
		row := bucketRow{GateID: ref.Gate, Bucket: ref.Bucket, N: n}
		if !b.NotBefore.IsZero() {
			row.Others, row.Middle = free+moreProbes, rand.Float64()
		}
		wanted = append(wanted, row)
	}
	if len(wanted) == 0 {
		return nil
	}
	var found []scan.Candidate
	if err := tx.Read(ctx, "candidates", &found, transact.Encode(wanted)); err != nil {
		return err
	}
	if slices.ContainsFunc(found, func(c scan.Candidate) bool { return c.Topic != "" }) {
		if err := rooms.readTopics(ctx, tx); err != nil {
			return err
		}
	}
	tasks, candidates := d.candidates(found, rooms)
	if err := d.readNeeded(ctx, tx, candidates); err != nil {
		return err
	}
	touched := d.apply(tasks, candidates)
	return d.write(ctx, tx, touched)
}

func endReservations(ctx context.Context, tx transact.Transaction, rows []scan.Bucket) error {
	reserved := make([]*scan.Reserved, len(rows))
	for i := range rows {
		reserved[i] = &rows[i].Reserved
	}
	return keepReserving(reserved, func(tasks []holdfast.TaskID, reserving *[]scan.Reserving) error {
		return tx.Read(ctx, "reserving", reserving, tasks)
	})
}

// candidates returns the tasks of the rows, and for each task the gates that it must pass.
func (d *decision) candidates(rows []scan.Candidate, rooms *rooms) (tasks []taskRow, candidates []permit.Candidate) {
	for i := range rows {
		row := &rows[i]
		at := permit.Ref{Gate: row.GateID, Bucket: row.Bucket}
		if i == 0 || rows[i-1].TaskID != row.TaskID {
			d.unread[at]--
			if row.Busy && !row.Gone {
				d.blocked[at]++ // the task stays blocked until a later call
				continue
			}
			task := taskRow{TaskID: row.TaskID, Attempt: row.Attempt, queue: row.Queue, topic: row.Topic}
			if row.Gone {
				d.gone = append(d.gone, task)
				continue
			}
			tasks, candidates = append(tasks, task), append(candidates, permit.Candidate{Task: row.TaskID, Since: row.BlockedAt, Tried: row.Attempt > 1, At: at, Rooms: rooms.of(row.Queue, row.Topic)})
		}
		if row.Gone || row.Busy || row.Needs == 0 {
			continue
		}
		c := &candidates[len(candidates)-1]
		if row.Permits {
			c.Needs = append(c.Needs, permit.Ref{Gate: row.Needs, Bucket: row.NeedsBucket})
		} else if c.Closed == 0 {
			c.Closed = row.Needs
		}
	}
	return tasks, candidates
}

// readNeeded reads the buckets that candidates need and that are not due.
func (d *decision) readNeeded(ctx context.Context, tx transact.Transaction, candidates []permit.Candidate) error {
	var missing []bucketRow
	for _, c := range candidates {
		for _, ref := range c.Needs {
			row := bucketRow{GateID: ref.Gate, Bucket: ref.Bucket}
			if d.buckets[ref] == nil && !slices.ContainsFunc(missing, func(m bucketRow) bool { return m.GateID == row.GateID && m.Bucket == row.Bucket }) {
				missing = append(missing, row)
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var rows []scan.Bucket
	if err := tx.Read(ctx, "buckets_named", &rows, transact.Encode(missing)); err != nil {
		return err
	}
	if err := endReservations(ctx, tx, rows); err != nil {
		return err
	}
	for i := range rows {
		d.buckets[rows[i].Ref()] = rows[i].Value()
	}
	return nil
}

// apply decides about the candidates. It returns the buckets that it has changed, except those that the caller reads
// because they are due.
func (d *decision) apply(tasks []taskRow, candidates []permit.Candidate) (touched map[permit.Ref]bool) {
	touched = make(map[permit.Ref]bool)
	for i, outcome := range permit.Decide(d.now, d.buckets, candidates, d.limit) {
		task, c := tasks[i], candidates[i]
		switch {
		case outcome.Admitted:
			for _, ref := range c.Needs {
				task.Permits = append(task.Permits, bucketRow{GateID: ref.Gate, Bucket: ref.Bucket})
				touched[ref] = touched[ref] || d.buckets[ref].Rate.Count > 0
			}
			d.admitted = append(d.admitted, task)
		case outcome.To != c.At:
			task.GateID, task.Bucket = outcome.To.Gate, outcome.To.Bucket
			touched[outcome.To] = d.buckets[outcome.To] != nil // only limits have buckets
			d.moved = append(d.moved, task)
			d.blocked[outcome.To]++
		default:
			d.blocked[c.At]++
			d.full = d.full || outcome.NoRoom
		}
	}
	for _, ref := range d.due {
		delete(touched, ref)
	}
	return touched
}

func (d *decision) write(ctx context.Context, tx transact.Transaction, touched map[permit.Ref]bool) error {
	var decided, done, others []bucketRow
	for _, ref := range d.due {
		row, stays := d.next(ref)
		if stays {
			decided = append(decided, row)
		} else {
			done = append(done, row)
		}
	}
	for ref, changed := range touched {
		if changed {
			b := d.buckets[ref]
			others = append(others, bucketRow{GateID: ref.Gate, Bucket: ref.Bucket, NextAt: d.now.UnixMicro(), AllowedAt: microsOf(b.Allowed)})
		}
	}
	for _, step := range []struct {
		name string
		rows any
		n    int
	}{
		{"blocked_move", d.moved, len(d.moved)}, {"blocked_drop", d.gone, len(d.gone)}, {"buckets_decided", decided, len(decided)},
		{"buckets_touched", others, len(others)}, {"buckets_delete", done, len(done)}, {"admit", d.admitted, len(d.admitted)},
	} {
		if step.n == 0 {
			continue
		}
		if _, err := tx.Change(ctx, step.name, transact.Encode(step.rows)); err != nil {
			return err
		}
	}
	return nil
}

// next returns the row of a due bucket after the decision, and whether the bucket needs a row. It needs none if it
// blocks no task, keeps no permit, and its rate allows as much as that of a new bucket. Only a due bucket can get a
// reservation, because the task of a reservation leaves a due bucket. A reservation of another bucket ends because its
// task is no longer blocked.
func (d *decision) next(ref permit.Ref) (row bucketRow, stays bool) {
	b := d.buckets[ref]
	row = bucketRow{GateID: ref.Gate, Bucket: ref.Bucket, AllowedAt: microsOf(b.Allowed)}
	if reserved := b.Reserved; reserved.Task != 0 {
		row.reservedRow = reservedRow{Task: reserved.Task, Since: reserved.Since.UnixMicro(), From: reserved.From.UnixMicro()}
	}
	waiting := d.blocked[ref] > 0 || d.unread[ref] <= 0
	switch next := b.Next(d.now); {
	case waiting && next.IsZero():
		row.NextAt = store.BlockedUntil.UnixMicro()
	case waiting:
		row.NextAt, row.Behind = next.UnixMicro(), next.After(d.now)
	case b.Rate.Count > 0 && b.IdleAt().After(d.now):
		row.NextAt = b.IdleAt().UnixMicro()
	case b.Reserved.Task != 0:
		row.NextAt = d.now.Add(permit.ReservedLook).UnixMicro()
	default:
		return row, false
	}
	return row, true
}

func microsOf(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	micros := t.UnixMicro()
	return &micros
}
