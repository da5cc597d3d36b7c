package memory

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// verifySize is how many tasks one step reads. It is small, so that a simulation also covers checks that have done half
// of their work.
const verifySize = 20

// VerifyStep implements store.Verification.
func (c *Client) VerifyStep(ctx context.Context, part store.VerifyPart, after holdfast.TaskID, l store.VerifyLimits) (store.VerifyStep, error) {
	if !slices.Contains(store.VerifyParts(), part) {
		return store.VerifyStep{}, fmt.Errorf("%w: a check has no part %q", holdfast.ErrInvalid, part)
	}
	var result store.VerifyStep
	err := c.do(ctx, Step{Op: "VerifyStep", text: string(part)}, func(now time.Time) error {
		result = c.store.verifyStep(part, after, l, now)
		return nil
	})
	if err != nil {
		return store.VerifyStep{}, err
	}
	return result, nil
}

func (s *Store) verifyStep(part store.VerifyPart, after holdfast.TaskID, l store.VerifyLimits, now time.Time) (result store.VerifyStep) {
	if part == store.VerifyOutbox {
		result.Findings = s.duplicatedEntries()
		return result
	}
	read := 0
	for i := range s.db.tasks {
		task := &s.db.tasks[i]
		if task.ID <= after {
			continue
		}
		if read++; read > verifySize {
			break
		}
		result.Next = task.ID
		if code := s.faultOf(task, part, l, now); code != "" {
			result.Findings = append(result.Findings, store.Finding{Code: code, Task: task.ID})
		}
	}
	return result
}

// duplicatedEntries returns the tasks that several outbox entries contain.
func (s *Store) duplicatedEntries() (found []store.Finding) {
	entries := make(map[holdfast.TaskID]int)
	for i := range s.db.entries {
		for _, ticket := range s.db.entries[i].Tickets {
			if entries[ticket.Task]++; entries[ticket.Task] == 2 {
				found = append(found, store.Finding{Code: store.DuplicatedEntry, Task: ticket.Task})
			}
		}
	}
	return found
}

// faultOf returns the invariant that the task breaks, or "". It checks only the invariants of the part.
func (s *Store) faultOf(task *Task, part store.VerifyPart, l store.VerifyLimits, now time.Time) store.FaultCode {
	overdue := func(at time.Time) bool { return at.Before(ago(now, l.Overdue)) && s.idleFor(task, l, now) }
	switch {
	case part == store.VerifyTickets:
		if task.Ticketed() {
			return s.ticketFault(task, l, now, overdue)
		}
	case part == store.VerifyDue:
		if !task.DueAt.IsZero() && overdue(task.DueAt) {
			return store.OverdueDispatch
		}
	case task.State == holdfast.Running && s.orphanFault(task, l, now) != "":
		return s.orphanFault(task, l, now)
	case task.Waits || s.db.awaitsSlot(task):
	case task.State == holdfast.Ready && task.DueAt.Equal(store.BlockedUntil) && task.NextRunAt.Before(store.BlockedUntil):
		if !task.Blocked() || !slices.ContainsFunc(s.db.gates, func(g gate) bool { return g.ID == task.Gate }) {
			return store.LostRecord
		}
	case task.State == holdfast.Ready && task.DueAt.After(now.Add(10*time.Second)) && overdue(task.NextRunAt):
		return store.OverduePostponed
	case !task.State.Final() && slices.ContainsFunc(task.Attempts, func(a holdfast.Attempt) bool { return a.Attempt >= task.Task.Attempt }):
		return store.DuplicatedAttempt
	}
	return ""
}

// ticketFault judges a ticketed task by the sentinels of its queue; see UnticketLost.
func (s *Store) ticketFault(task *Task, l store.VerifyLimits, now time.Time, overdue func(time.Time) bool) store.FaultCode {
	i, known := s.db.findQueue(s.db.ticketQueue(task))
	if !known || s.db.queues[i].DrainedAt.IsZero() {
		return ""
	}
	queue := s.db.queues[i]
	if ahead(now, queue.DrainedThrough, queue.DrainedAt, queue.HeldAt) {
		return ""
	}
	if uncertain := s.uncertain(task.Subqueue()); !uncertain.IsZero() && !task.TicketedAt.Before(uncertain) {
		return ""
	}
	proved, passed := queue.ProvedThrough, queue.ProvedThrough
	if !queue.HeldAt.IsZero() && queue.DrainedThrough.Sub(queue.HeldAt) >= l.Slack {
		proved = queue.HeldThrough
	}
	for _, sentinel := range []struct{ sent, out time.Time }{{queue.DrainedThrough, queue.DrainedAt}, {queue.HeldThrough, queue.HeldAt}} {
		if !sentinel.out.IsZero() && !sentinel.out.After(now.Add(-longGrace)) && sentinel.sent.After(passed) {
			passed = sentinel.sent
		}
	}
	margin := min(l.Slack, longGrace)
	if task.Requeued {
		margin = 10 * min(l.Slack, math.MaxInt64/10)
	}
	waiting := task.TicketedAt
	if task.NextRunAt.After(waiting) {
		waiting = task.NextRunAt
	}
	switch {
	case !task.Requeued && task.TicketedAt.Before(ago(proved, margin)) && !s.Full():
		return store.LostTicket
	case task.TicketedAt.Before(ago(passed, margin)) && overdue(waiting) && !s.db.pausedQueue(task.Queue, now):
		return store.OverdueTicket
	}
	return ""
}

// orphanFault judges the worker of a running task.
func (s *Store) orphanFault(task *Task, l store.VerifyLimits, now time.Time) store.FaultCode {
	worker, limit := s.db.worker(task.Worker), ago(now, l.Orphan)
	switch {
	case worker == nil:
		if task.StartedAt.Before(limit) {
			return store.ZombieMissing
		}
	case worker.State != store.WorkerLive:
		if worker.EndedAt.Before(limit) {
			return store.ZombieEnded
		}
	case worker.LeaseUntil.Before(limit):
		return store.ZombieExpired
	}
	return ""
}

// idleFor reports whether a live worker takes the task, has free executors, and has been live for long enough.
func (s *Store) idleFor(task *Task, l store.VerifyLimits, now time.Time) bool {
	return slices.ContainsFunc(s.db.workers, func(w Worker) bool {
		return w.State == store.WorkerLive && !w.Draining && w.Running < w.Concurrency && w.LeaseUntil.After(now) &&
			w.StartedAt.Before(ago(now, l.Overdue)) && slices.Contains(w.Types, task.Type) &&
			(len(w.Queues) == 0 || slices.Contains(w.Queues, task.Queue))
	})
}

// Suspicious implements store.Verification.
func (c *Client) Suspicious(ctx context.Context, l store.VerifyLimits) (bool, error) {
	suspicious := false
	err := c.do(ctx, Step{Op: "Suspicious"}, func(now time.Time) error {
		suspicious = slices.ContainsFunc(c.store.db.tasks, func(task Task) bool {
			return task.State == holdfast.Running && c.store.orphanFault(&task, l, now) != ""
		})
		return nil
	})
	return suspicious && err == nil, err
}

// verifyResult is a stored result of a part of a check.
type verifyResult struct {
	store.VerifyResult
	checkedAt time.Time // zero until the part was checked completely
}

// VerifyResults implements store.Verification.
func (c *Client) VerifyResults(ctx context.Context) (results []store.VerifyResult, err error) {
	err = c.do(ctx, Step{Op: "VerifyResults"}, func(now time.Time) error {
		results = nil
		for _, row := range c.store.db.verified {
			if row.Incomplete = row.checkedAt.IsZero(); !row.Incomplete {
				row.Age = max(0, now.Sub(row.checkedAt))
			}
			results = append(results, row.VerifyResult)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// StoreVerifyResult implements store.Verification.
func (c *Client) StoreVerifyResult(ctx context.Context, result store.VerifyResult) error {
	result.Counts = slices.Clone(result.Counts)
	return c.do(ctx, Step{Op: "StoreVerifyResult", text: string(result.Part)}, func(now time.Time) error {
		rows := &c.store.db.verified
		i := slices.IndexFunc(*rows, func(row verifyResult) bool { return row.Part == result.Part })
		if i < 0 {
			i = len(*rows)
			*rows = append(*rows, verifyResult{VerifyResult: store.VerifyResult{Part: result.Part}})
		}
		row := &(*rows)[i]
		row.Resume = result.Resume
		if !result.Incomplete {
			row.Counts, row.checkedAt = result.Counts, now
		}
		return nil
	})
}

// CountTickets implements store.Verification.
func (c *Client) CountTickets(ctx context.Context, after holdfast.TaskID) (counts []store.TicketCount, next holdfast.TaskID, err error) {
	err = c.do(ctx, Step{Op: "CountTickets"}, func(now time.Time) error {
		counts, next = nil, 0
		read := 0
		for i := range c.store.db.tasks {
			task := &c.store.db.tasks[i]
			if task.ID <= after {
				continue
			}
			if read++; read > verifySize {
				break
			}
			if next = task.ID; task.State != holdfast.Ready {
				continue
			}
			at := slices.IndexFunc(counts, func(count store.TicketCount) bool { return count.Queue == task.Subqueue() })
			if at < 0 {
				at, counts = len(counts), append(counts, store.TicketCount{Queue: task.Subqueue()})
			}
			if task.DueAt.IsZero() {
				counts[at].Ticketed++
			} else if !task.DueAt.After(now) {
				counts[at].Due++
			}
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return counts, next, nil
}
