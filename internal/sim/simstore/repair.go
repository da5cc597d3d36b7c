package simstore

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// stepSize bounds the rows that one small step changes. It is small, so that a simulation sees walks that are half done.
const stepSize = 10

// lookSize bounds the tickets that one look for lost ones passes. It is small for the same reason.
const lookSize = 30

// Unticket implements store.Repair.
func (c *Client) Unticket(ctx context.Context, tickets []message.Ticket) (int, error) {
	if len(tickets) == 0 {
		return 0, nil
	}
	own, changed := slices.Clone(tickets), 0
	err := c.do(ctx, Step{Op: "Unticket", tickets: own}, func(now time.Time) error {
		for _, ticket := range own {
			if task := c.store.db.task(ticket.Task); task != nil && task.Attempt == ticket.Attempt && task.Ticketed() {
				c.store.unticket("Unticket", task, now)
				changed++
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return changed, nil
}

func (s *Store) unticket(op string, task *Task, now time.Time) {
	s.changing(task)
	task.unticket(now)
	s.changed(op, task, nil)
}

// UnticketLane implements store.Repair. After an error some tasks are changed and
// others are not; calling it again does the rest.
func (c *Client) UnticketLane(ctx context.Context, lane string) (int, error) {
	n, _, _, err := c.unticketInSteps(ctx, Step{Op: "UnticketLane", text: lane}, 0, math.MaxInt, func(task *Task) bool { return task.Lane == lane })
	return n, err
}

// unticketInSteps unticks the tasks that match in the order of their ids, through the largest there is at the first
// step, or until the steps have passed so many ticketed tasks that do not match. match is called inside the effects, for ticketed
// tasks above last. It returns how many it changed, how many of them in doubt, see UnticketLost, and how far it came, 0 if it came to
// the end.
func (c *Client) unticketInSteps(ctx context.Context, step Step, last holdfast.TaskID, most int, match func(*Task) bool) (total, inDoubt int, through holdfast.TaskID, err error) {
	passed := 0
	for {
		changed, doubtful, spared, after := 0, 0, 0, last // of this step alone: one that failed may still write to its own
		reached, end, room := after, through, most-passed
		err := c.do(ctx, step, func(now time.Time) error {
			tasks := c.store.db.tasks
			if end == 0 && len(tasks) > 0 {
				end = tasks[len(tasks)-1].ID
			}
			for i := 0; i < len(tasks) && tasks[i].ID <= end && changed < stepSize && spared < room; i++ {
				task := &tasks[i]
				if task.ID <= after || !task.Ticketed() {
					continue
				}
				if reached = task.ID; match(task) {
					c.store.unticket(step.Op, task, now)
					changed++
					if task.Again || c.store.Full() {
						doubtful++
					}
				} else {
					spared++
				}
			}
			return nil
		})
		if err != nil {
			return total, inDoubt, last, err
		}
		total, inDoubt, passed, last, through = total+changed, inDoubt+doubtful, passed+spared, reached, end
		switch {
		case passed >= most:
			return total, inDoubt, last, nil
		case changed < stepSize:
			return total, inDoubt, 0, nil
		}
	}
}

// Full reports whether a live run says that all its executors are busy.
func (s *Store) Full() bool {
	return slices.ContainsFunc(s.db.runs, func(r Run) bool { return r.State == store.RunLive && r.Running >= r.Concurrency })
}

// UnticketLost implements store.Repair.
func (c *Client) UnticketLost(ctx context.Context, slack time.Duration) (lost, doubtful int, err error) {
	var proved []proof
	var resume holdfast.TaskID
	err = c.do(ctx, Step{Op: "UnticketLost proofs"}, func(now time.Time) error {
		proved, resume = c.store.proofs(slack), c.store.db.lostResume
		return nil
	})
	if err != nil || len(proved) == 0 {
		return 0, 0, err
	}
	total, doubtful, resume, err := c.unticketInSteps(ctx, Step{Op: "UnticketLost"}, resume, lookSize, func(task *Task) bool {
		i := slices.IndexFunc(proved, func(p proof) bool { return p.lane == task.Lane })
		if i < 0 {
			return false
		}
		// Tasks since the oldest receipt of their lane have perhaps never had a ticket; the receipt will give them one.
		if uncertain := c.store.uncertain(task.Lane); !uncertain.IsZero() && !task.TicketedAt.Before(uncertain) {
			return false
		}
		// The ticket of a new task goes out a moment after the row says so: see longGrace.
		margin := min(slack, longGrace)
		if task.Again { // these went to the other queue of the lane, of which the sentinel proves nothing
			margin = 10 * min(slack, math.MaxInt64/10)
		}
		return task.TicketedAt.Before(ago(proved[i].moment, margin))
	})
	if lost = total - doubtful; err != nil {
		return lost, doubtful, err
	}
	return lost, doubtful, c.do(ctx, Step{Op: "UnticketLost end"}, func(time.Time) error {
		c.store.db.lostResume = resume
		return nil
	})
}

// proof says through which moment a lane is proved drained.
type proof struct {
	lane   string
	moment time.Time
}

// proofs returns the lanes of which something is proved: a sentinel has come out, and so has another one that was sent at
// least slack after that.
//
// The newest sentinel of a busy lane has always come out just now. So an older one is held, and only replaced when it has
// become a proof.
func (s *Store) proofs(slack time.Duration) []proof {
	var proved []proof
	for i := range s.db.lanes {
		lane := &s.db.lanes[i]
		if lane.DrainedAt.IsZero() {
			continue
		}
		isProof := !lane.HeldAt.IsZero() && lane.DrainedThrough.Sub(lane.HeldAt) >= slack
		if isProof {
			lane.ProvedThrough = lane.HeldThrough
		}
		if !lane.ProvedThrough.IsZero() {
			proved = append(proved, proof{lane.Name, lane.ProvedThrough})
		}
		if lane.HeldAt.IsZero() || isProof {
			lane.HeldThrough, lane.HeldAt = lane.DrainedThrough, lane.DrainedAt
		}
	}
	return proved
}

// uncertain is when the oldest receipt of a lane was stored.
func (s *Store) uncertain(lane string) time.Time {
	var oldest time.Time
	for i := range s.db.receipts {
		if row := &s.db.receipts[i]; row.Lane == lane && (oldest.IsZero() || row.CreatedAt.Before(oldest)) {
			oldest = row.CreatedAt
		}
	}
	return oldest
}

// SentinelsDue implements store.Repair.
func (c *Client) SentinelsDue(ctx context.Context, interval, lost time.Duration) ([]message.Sentinel, error) {
	var sentinels []message.Sentinel
	err := c.do(ctx, Step{Op: "SentinelsDue"}, func(now time.Time) error {
		rested, given := ago(now, interval), ago(now, lost)
		for i := range c.store.db.lanes {
			lane := &c.store.db.lanes[i]
			out := !lane.DrainedThrough.IsZero() && !lane.DrainedThrough.Before(lane.SentAt)
			wrong := ahead(now, lane.DrainedThrough, lane.DrainedAt, lane.HeldThrough, lane.HeldAt, lane.ProvedThrough)
			if wrong { // it proves nothing
				*lane = Lane{Name: lane.Name, SentAt: lane.SentAt}
			}
			if wrong || ahead(now, lane.SentAt) || lane.SentAt.IsZero() || !lane.SentAt.After(rested) && (out || !lane.SentAt.After(given)) {
				lane.SentAt = now
				sentinels = append(sentinels, message.Sentinel{Lane: lane.Name, At: now})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return sentinels, nil
}

// CorrectTimes implements store.Upkeep.
func (c *Client) CorrectTimes(ctx context.Context) (bool, error) {
	setBack := false
	err := c.do(ctx, Step{Op: "CorrectTimes"}, func(now time.Time) error {
		d := &c.store.db
		if setBack = ahead(now, d.noted); setBack {
			c.store.correctOutbox(now)
			for i := range d.tasks {
				c.store.correctTask(&d.tasks[i], now)
			}
		}
		d.noted = now
		return nil
	})
	return setBack && err == nil, err
}

// NoteTime notes the time as CorrectTimes does, unless the newest note lies in the future. It is for simulations.
func (s *Store) NoteTime() {
	if now := s.now(); now.After(s.db.noted) {
		s.db.noted = now
	}
}

// correctOutbox lets receipts go out at once. How old they are is not known, so they count as late.
func (s *Store) correctOutbox(now time.Time) {
	for i := range s.db.receipts {
		row := &s.db.receipts[i]
		wrong := row.PublishAfter.After(now.Add(time.Minute))
		if wrong {
			row.PublishAfter = now
		}
		if wrong || ahead(now, row.CreatedAt) {
			row.CreatedAt = earlier(row.CreatedAt, now.Add(-time.Minute))
		}
	}
}

// correctTask corrects what the store computed for a ready task while its clock stood ahead.
func (s *Store) correctTask(task *Task, now time.Time) {
	if task.State != holdfast.Ready || !ahead(now, task.DueAt, task.TicketedAt) {
		return
	}
	next := task.NextRunAt
	if !task.DueAt.IsZero() {
		next = task.correctNext(now)
	}
	if task.DueAt.Equal(next) {
		return
	}
	s.changing(task)
	if !task.DueAt.IsZero() {
		task.DueAt = next
	}
	task.NextRunAt, task.TicketedAt, task.StartedAt = next, earlier(task.TicketedAt, now), earlier(task.StartedAt, now)
	task.Attempts = slices.Clone(task.Attempts) // copies: a snapshot may have the same list
	for i := range task.Attempts {
		if a := &task.Attempts[i]; a.Attempt == task.Attempt-1 && ahead(now, a.FinishedAt) {
			a.StartedAt, a.FinishedAt = earlier(a.StartedAt, now), now
		}
	}
	s.changed("CorrectTimes", task, nil)
}

// correctNext is when the task is to run, as far as it is certain how long it was to wait.
func (t *Task) correctNext(now time.Time) time.Time {
	var failed time.Time
	for i := range t.Attempts {
		if a := &t.Attempts[i]; a.Attempt == t.Attempt-1 && a.FinishedAt.After(failed) {
			failed = a.FinishedAt
		}
	}
	since := func(began time.Time) time.Time { return now.Add(max(0, t.NextRunAt.Sub(began))) }
	switch {
	case !t.NextRunAt.After(now):
	case t.Parked != "":
		if t.NextRunAt.After(now.Add(longestPark + time.Minute)) {
			return now
		}
	case t.Attempt > 1 && ahead(now, failed):
		return since(failed)
	case t.Attempt > 1 && ahead(now, t.StartedAt):
		return since(t.StartedAt)
	case !t.NextRunAt.After(t.CreatedAt), t.Again && t.NextRunAt.After(now.Add(2*time.Minute)):
		return now
	}
	return t.NextRunAt
}

// Turn implements store.Upkeep.
func (c *Client) Turn(ctx context.Context, duty string, every time.Duration) (bool, error) {
	mine := false
	err := c.do(ctx, Step{Op: "Turn", text: duty}, func(now time.Time) error {
		d := &c.store.db
		i := slices.IndexFunc(d.turns, func(t turn) bool { return t.duty == duty })
		if i < 0 {
			d.turns, mine = append(d.turns, turn{duty, now}), true
			return nil
		}
		at := &d.turns[i].takenAt
		if mine = !at.After(ago(now, every)) || ahead(now, *at); mine {
			*at = now
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	return mine, nil
}

// Prune implements store.Upkeep. After an error some rows are gone and others are not.
func (c *Client) Prune(ctx context.Context, ages store.PruneAges, limit int) (int, error) {
	total := 0
	for _, kind := range []struct {
		state holdfast.State
		age   time.Duration
	}{{holdfast.Done, ages.Done}, {holdfast.Cancelled, ages.Cancelled}, {holdfast.Archived, ages.Archived}} {
		if kind.age <= 0 {
			continue
		}
		n, err := c.pruneInSteps(ctx, Step{Op: "Prune tasks", text: string(kind.state)}, limit-total, func(now time.Time, size int) int {
			return c.store.pruneTasks(kind.state, ago(now, kind.age), size)
		})
		if total += n; err != nil {
			return total, err
		}
	}
	if _, err := c.pruneInSteps(ctx, Step{Op: "Prune news"}, limit, func(_ time.Time, size int) int {
		return c.store.pruneNews(size)
	}); err != nil || ages.Runs <= 0 {
		return total, err
	}
	n, err := c.pruneInSteps(ctx, Step{Op: "Prune runs"}, limit-total, func(now time.Time, size int) int {
		return c.store.pruneRuns(ago(now, ages.Runs), size)
	})
	return total + n, err
}

// pruneInSteps deletes at most limit rows. prune deletes at most size of them.
func (c *Client) pruneInSteps(ctx context.Context, step Step, limit int, prune func(now time.Time, size int) int) (int, error) {
	total := 0
	for total < limit {
		size, n := min(stepSize, limit-total), 0
		err := c.do(ctx, step, func(now time.Time) error {
			n = prune(now, size)
			return nil
		})
		if err != nil {
			return total, err
		}
		if total += n; n < size {
			break
		}
	}
	return total, nil
}

func (s *Store) pruneTasks(state holdfast.State, before time.Time, size int) int {
	return prune(&s.db.tasks, size, func(task *Task) bool {
		old := task.State == state && task.FinishedAt.Before(before)
		if old && s.observe != nil {
			s.observe(Change{Op: "Prune tasks", Before: task})
		}
		return old
	})
}

// pruneNews deletes what nobody will ask for any more.
func (s *Store) pruneNews(size int) int {
	return prune(&s.db.cancellations, size, func(word *Cancellation) bool { return !s.db.live(word.Run) })
}

// pruneRuns deletes only runs that are known to own nothing.
func (s *Store) pruneRuns(before time.Time, size int) int {
	return prune(&s.db.runs, size, func(run *Run) bool { return run.State != store.RunLive && run.Swept && run.EndedAt.Before(before) })
}

// prune deletes the first rows that are old, at most size of them.
func prune[Row any](rows *[]Row, size int, old func(*Row) bool) int {
	n, kept := 0, 0
	for i := range *rows {
		if n < size && old(&(*rows)[i]) {
			n++
			continue
		}
		if n > 0 {
			(*rows)[kept] = (*rows)[i]
		}
		kept++
	}
	clear((*rows)[kept:])
	*rows = (*rows)[:kept]
	return n
}
