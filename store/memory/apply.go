package memory

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/internal/ordered"
	"github.com/holdfastq/holdfast/store"
)

// Apply implements store.Work.
func (c *Client) Apply(ctx context.Context, moves []holdfast.Transition) ([]bool, error) {
	if len(moves) == 0 {
		return []bool{}, nil
	}
	return c.apply(ctx, "Apply", moves)
}

// ApplyTx implements store.Work for a transaction of the type Committed.
func (c *Client) ApplyTx(ctx context.Context, tx store.Tx, move holdfast.Transition) (bool, error) {
	if _, ok := tx.(Committed); !ok {
		return false, errors.New("apply a result in a transaction: a store in memory has no SQL transactions")
	}
	accepted, err := c.apply(ctx, "ApplyTx", []holdfast.Transition{move})
	return err == nil && accepted[0], err
}

func (c *Client) apply(ctx context.Context, op string, moves []holdfast.Transition) ([]bool, error) {
	own, accepted := slices.Clone(moves), make([]bool, len(moves))
	err := c.do(ctx, Step{Op: op, moves: own}, func(now time.Time) error {
		for i := range own {
			accepted[i] = c.store.apply(&own[i], now)
		}
		keys, _ := ordered.Moved(own, accepted)
		c.store.moveKeys(keys, now)
		for i := range own {
			if accepted[i] {
				c.store.storeEffects(&own[i], now)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return accepted, nil
}

// apply makes one move if its task is still in the state that the move starts from.
func (s *Store) apply(move *holdfast.Transition, now time.Time) bool {
	task := s.db.task(move.Task)
	if task == nil || task.Attempt != move.Attempt || task.Worker != move.Worker || !slices.Contains(move.From, task.State) {
		return false
	}
	s.changing(task)
	if move.Recorded {
		s.record(task, move, now)
	}
	if move.Event == holdfast.EventCancel && task.State == holdfast.Running {
		s.db.last.cancellation++
		s.db.cancellations = append(s.db.cancellations, Cancellation{
			ID: s.db.last.cancellation, Worker: task.Worker, Ticket: message.Ticket{Task: task.ID, Attempt: task.Attempt},
		})
	}
	before := task.State
	task.State, task.Worker, task.Attempt = move.To, 0, move.NextAttempt
	s.db.moved(task, before)
	task.Failures, task.Crashes, task.Deferrals, task.MaxAttempts = move.Failures, move.Crashes, move.Deferrals, move.MaxAttempts
	task.Requeued = move.Event == holdfast.EventCrash || move.Event == holdfast.EventInterrupt
	task.TicketedAt, task.Parked, task.Buffered = time.Time{}, "", false
	if before == holdfast.Ready {
		task.Gate, task.Waits = 0, false
	}
	if mark := ordered.MarkOf(move); mark != 0 && task.Ordered {
		task.Order = mark
	}
	if move.To == holdfast.Ready {
		task.DueAt, task.FinishedAt = later(now, move.Wait), time.Time{}
		task.NextRunAt = task.DueAt
		if move.Event == holdfast.EventRequeue && task.Ordered {
			task.DueAt, task.Waits = store.BlockedUntil, true
		}
		if move.Event == holdfast.EventRequeue && task.Topic != "" {
			s.db.topics.put(task, notNow)
		}
	} else {
		task.DueAt, task.FinishedAt = time.Time{}, finishTime(task, move, now)
		if i, found := s.db.topics.find(task.ID); found && before == holdfast.Ready { // the task no longer waits for a slot
			s.db.topics.tasks = slices.Delete(s.db.topics.tasks, i, i+1)
		}
	}
	if move.Report.Error != "" {
		task.LastError = clean(move.Report.Error)
	}
	s.changed("Apply", task, move)
	return true
}

// finishTime returns the finish time of a task after a move to a final state. A restored task gets the time of its death
// again: that of its last attempt.
func finishTime(task *Task, move *holdfast.Transition, now time.Time) time.Time {
	if move.Event != holdfast.EventRestore {
		return now
	}
	var died time.Time
	for i := range task.Attempts {
		if at := task.Attempts[i].FinishedAt; at.After(died) {
			died = at
		}
	}
	if died.IsZero() {
		return task.FinishedAt
	}
	return earlier(died, task.FinishedAt)
}

// record adds a row to the task's attempts, unless there is already one for the same attempt and event.
func (s *Store) record(task *Task, move *holdfast.Transition, now time.Time) {
	for i := range task.Attempts {
		if task.Attempts[i].Attempt == task.Attempt && task.Attempts[i].Event == move.Event {
			return
		}
	}
	attempt := holdfast.Attempt{
		Task: task.ID, Attempt: task.Attempt, Event: move.Event, Worker: task.Worker, StartedAt: task.StartedAt, FinishedAt: now,
		Class: clean(move.Report.Class), Error: clean(move.Report.Error), Stack: clean(move.Report.Stack), Details: detailsOf(move.Report),
	}
	if worker := s.db.worker(task.Worker); worker != nil {
		attempt.WorkerName = worker.Name
	}
	task.Attempts = append(slices.Clip(task.Attempts), attempt) // copies the list, because a snapshot may share it
}

// detailsOf returns the details as valid JSON, so that one invalid report does not fail a whole batch of results.
func detailsOf(r holdfast.Report) json.RawMessage {
	if len(r.Details) == 0 {
		return nil
	}
	details := clean(string(r.Details))
	if json.Valid([]byte(details)) {
		return json.RawMessage(details)
	}
	quoted, _ := json.Marshal(details) // a string always encodes
	return quoted
}
