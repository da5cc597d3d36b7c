package memory

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// stepSize is the most rows that one effect of a longer call changes. It is small, so that a simulation also covers
// calls that have done half of their work.
const stepSize = 10

// scanSize is the most tickets that one UnticketLost passes. It is small, like stepSize.
const scanSize = 30

// Unticket implements store.Repair.
func (c *Client) Unticket(ctx context.Context, tickets []message.Ticket) (int, error) {
	if len(tickets) == 0 {
		return 0, nil
	}
	own, changed := slices.Clone(tickets), 0
	err := c.do(ctx, Step{Op: "Unticket", tickets: own}, func(now time.Time) error {
		for _, ticket := range own {
			task := c.store.db.task(ticket.Task)
			switch {
			case task == nil || task.Attempt != ticket.Attempt:
			case task.Ticketed():
				c.store.unticket("Unticket", task, now)
				changed++
			case !task.DueAt.IsZero() && !task.DueAt.After(now): // a dispatcher that is publishing its ticket must not mark it
				c.store.changing(task)
				task.DueAt = task.DueAt.Add(-time.Microsecond)
				c.store.changed("Unticket", task, nil)
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

// UnticketQueue implements store.Repair. After an error, only some of the tasks may be changed; the caller may call it
// again for the rest.
func (c *Client) UnticketQueue(ctx context.Context, queue string) (int, error) {
	subqueue, taskType := holdfast.SplitTypeQueue(queue)
	n, _, _, err := c.unticketInSteps(ctx, Step{Op: "UnticketQueue", text: queue}, 0, math.MaxInt, func(task *Task) bool {
		return task.Subqueue() == subqueue && (taskType == "" || task.Type == taskType && task.Requeued)
	})
	return n, err
}

// unticketInSteps untickets the matching tasks after last in the order of their ids. It ends at the task that is the
// newest at the first effect, or after it has passed maxSpared ticketed tasks that do not match. The effects call match
// for ticketed tasks.
//
// It returns how many tasks it changed, how many of those are doubtful (see UnticketLost), and the last task that it
// passed. The last result is 0 if it reached the end.
func (c *Client) unticketInSteps(ctx context.Context, step Step, last holdfast.TaskID, maxSpared int, match func(*Task) bool) (total, inDoubt int, through holdfast.TaskID, err error) {
	passed := 0
	for {
		changed, doubtful, spared, after := 0, 0, 0, last // counts of this effect only, which may still run after an error
		reached, end, left := after, through, maxSpared-passed
		err := c.do(ctx, step, func(now time.Time) error {
			tasks := c.store.db.tasks
			if end == 0 && len(tasks) > 0 {
				end = tasks[len(tasks)-1].ID
			}
			for i := 0; i < len(tasks) && tasks[i].ID <= end && changed < stepSize && spared < left; i++ {
				task := &tasks[i]
				if task.ID <= after || !task.Ticketed() {
					continue
				}
				if reached = task.ID; match(task) {
					c.store.unticket(step.Op, task, now)
					changed++
					if task.Requeued || c.store.Full() {
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
		case passed >= maxSpared:
			return total, inDoubt, last, nil
		case changed < stepSize:
			return total, inDoubt, 0, nil
		}
	}
}

// Full reports whether a live worker has reported that all its executors are busy.
func (s *Store) Full() bool {
	return slices.ContainsFunc(s.db.workers, func(r Worker) bool { return r.State == store.WorkerLive && r.Running >= r.Concurrency })
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
	total, doubtful, resume, err := c.unticketInSteps(ctx, Step{Op: "UnticketLost"}, resume, scanSize, func(task *Task) bool {
		i := slices.IndexFunc(proved, func(p proof) bool { return p.queue == c.store.db.ticketQueue(task) })
		if i < 0 {
			return false
		}
		// Tasks that are not older than the oldest outbox entry of their queue may not have had a ticket yet. The
		// outbox entry provides one.
		if uncertain := c.store.uncertain(task.Subqueue()); !uncertain.IsZero() && !task.TicketedAt.Before(uncertain) {
			return false
		}
		// The ticket of a new task is published a little later than TicketedAt says: see longGrace.
		margin := min(slack, longGrace)
		if task.Requeued { // the ticket went to a requeue queue, for which the sentinel proves nothing, or to a type queue
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

// KeepSentinels implements store.Repair.
func (c *Client) KeepSentinels(ctx context.Context, slack time.Duration) error {
	return c.do(ctx, Step{Op: "KeepSentinels"}, func(time.Time) error {
		c.store.proofs(slack)
		return nil
	})
}

// proof says that a queue is proved drained of all tickets published before a given time.
type proof struct {
	queue  string
	moment time.Time
}

// proofs returns the proofs of all queues that have one. A queue has a proof if two sentinels have come out of it, and
// the second was sent at least slack after the first.
//
// The newest sentinel of a busy queue is usually too recent. Therefore proofs keeps an older sentinel, and replaces it
// only when it has become a proof.
func (s *Store) proofs(slack time.Duration) []proof {
	var proved []proof
	for i := range s.db.queues {
		queue := &s.db.queues[i]
		if queue.DrainedAt.IsZero() {
			continue
		}
		isProof := !queue.HeldAt.IsZero() && queue.DrainedThrough.Sub(queue.HeldAt) >= slack
		if isProof {
			queue.ProvedThrough = queue.HeldThrough
		}
		if !queue.ProvedThrough.IsZero() {
			proved = append(proved, proof{queue.Name, queue.ProvedThrough})
		}
		if queue.HeldAt.IsZero() || isProof {
			queue.HeldThrough, queue.HeldAt = queue.DrainedThrough, queue.DrainedAt
		}
	}
	return proved
}

// uncertain returns when the oldest outbox entry of a queue was stored, or the zero time if there is none.
func (s *Store) uncertain(queue string) time.Time {
	var oldest time.Time
	for i := range s.db.entries {
		if row := &s.db.entries[i]; row.Queue == queue && (oldest.IsZero() || row.CreatedAt.Before(oldest)) {
			oldest = row.CreatedAt
		}
	}
	return oldest
}

// SentinelsDue implements store.Repair.
func (c *Client) SentinelsDue(ctx context.Context, interval, lost time.Duration) ([]message.Sentinel, error) {
	var sentinels []message.Sentinel
	err := c.do(ctx, Step{Op: "SentinelsDue"}, func(now time.Time) error {
		intervalAgo, lostAgo := ago(now, interval), ago(now, lost)
		for i := range c.store.db.queues {
			queue := &c.store.db.queues[i]
			drained := !queue.DrainedThrough.IsZero() && !queue.DrainedThrough.Before(queue.SentAt)
			wrong := ahead(now, queue.DrainedThrough, queue.DrainedAt, queue.HeldThrough, queue.HeldAt, queue.ProvedThrough)
			if wrong { // such a time proves nothing
				*queue = Queue{Name: queue.Name, SentAt: queue.SentAt}
			}
			if wrong || ahead(now, queue.SentAt) || queue.SentAt.IsZero() || !queue.SentAt.After(intervalAgo) && (drained || !queue.SentAt.After(lostAgo)) {
				queue.SentAt = now
				sentinels = append(sentinels, message.Sentinel{Queue: queue.Name, At: now})
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
			d.correctBuckets(now)
			d.correctBreakers(now)
			d.correctPlans(now)
			for i := range d.tasks {
				c.store.correctTask(&d.tasks[i], now)
			}
		}
		d.noted = now
		return nil
	})
	if err != nil { // the server may still execute the call
		return false, err
	}
	return setBack, nil
}

// NoteTime records the time like CorrectTimes, unless the recorded time lies in the future. It is for simulations.
func (s *Store) NoteTime() {
	if now := s.now(); now.After(s.db.noted) {
		s.db.noted = now
	}
}

// correctOutbox makes outbox entries due at once. Their age is unknown, so they are treated as late.
func (s *Store) correctOutbox(now time.Time) {
	for i := range s.db.entries {
		row := &s.db.entries[i]
		wrong := row.PublishAfter.After(now.Add(time.Minute))
		if wrong {
			row.PublishAfter = now
		}
		if wrong || ahead(now, row.CreatedAt) {
			row.CreatedAt = earlier(row.CreatedAt, now.Add(-time.Minute))
		}
	}
}

// correctTask corrects the times of a ready task that the store computed while its clock was ahead.
func (s *Store) correctTask(task *Task, now time.Time) {
	if task.State != holdfast.Ready || task.Blocked() || task.Waits || s.db.awaitsSlot(task) || !ahead(now, task.DueAt, task.TicketedAt) {
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
	task.Attempts = slices.Clone(task.Attempts) // copies the list, because a snapshot may share it
	for i := range task.Attempts {
		if a := &task.Attempts[i]; a.Attempt == task.Attempt-1 && ahead(now, a.FinishedAt) {
			a.StartedAt, a.FinishedAt = earlier(a.StartedAt, now), now
		}
	}
	s.changed("CorrectTimes", task, nil)
}

// correctNext returns when the task must run, as far as the length of its wait is certain.
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
		return now
	case t.Attempt > 1 && ahead(now, failed):
		return since(failed)
	case t.Requeued && t.NextRunAt.After(now.Add(2*time.Minute)):
		return now
	case t.Attempt > 1 && ahead(now, t.StartedAt):
		return since(t.StartedAt)
	case !t.NextRunAt.After(t.CreatedAt):
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

// ReportDuty implements store.Upkeep. The simulator keeps no report, because only people read them.
func (c *Client) ReportDuty(ctx context.Context, f store.DutyFailure) error {
	return c.do(ctx, Step{Op: "ReportDuty", text: f.Duty}, func(time.Time) error { return nil })
}

// Prune implements store.Upkeep. After an error, some rows may be deleted and others not.
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
	n, err := c.pruneInSteps(ctx, Step{Op: "Prune keys"}, limit-total, func(now time.Time, size int) int {
		return prune(&c.store.db.kept, size, func(k *keptKey) bool { return !k.until.After(now) })
	})
	if total += n; err != nil {
		return total, err
	}
	if ages.Done > 0 {
		n, err := c.pruneInSteps(ctx, Step{Op: "Prune plans"}, limit-total, func(now time.Time, size int) int {
			return c.store.prunePlans(ago(now, ages.Done), size)
		})
		if total += n; err != nil {
			return total, err
		}
	}
	if _, err := c.pruneInSteps(ctx, Step{Op: "Prune cancellations"}, limit, func(_ time.Time, size int) int {
		return c.store.pruneCancellations(size)
	}); err != nil || ages.Workers <= 0 {
		return total, err
	}
	n, err = c.pruneInSteps(ctx, Step{Op: "Prune workers"}, limit-total, func(now time.Time, size int) int {
		return c.store.pruneWorkers(ago(now, ages.Workers), size)
	})
	return total + n, err
}

// pruneInSteps deletes at most limit rows. Each call of prune deletes at most size rows.
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
		old := task.State == state && task.FinishedAt.Before(before) && !s.db.batchContinues(store.ID(task.Batch))
		if old {
			s.db.deleted(task)
		}
		if old && s.observe != nil {
			s.observe(Change{Op: "Prune tasks", Before: task})
		}
		return old
	})
}

// pruneCancellations deletes the cancellations of workers that are not live: no worker will read them.
func (s *Store) pruneCancellations(size int) int {
	return prune(&s.db.cancellations, size, func(cancellation *Cancellation) bool { return !s.db.live(cancellation.Worker) })
}

// pruneWorkers deletes only workers that are known to own no task.
func (s *Store) pruneWorkers(before time.Time, size int) int {
	return prune(&s.db.workers, size, func(worker *Worker) bool {
		return worker.State != store.WorkerLive && worker.Swept && worker.EndedAt.Before(before)
	})
}

// prune deletes old rows, at most size of them, from the first row on.
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
