package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Operation is a stored operation.
type Operation struct {
	store.Operation
	watched []holdfast.TaskID // retried tasks whose first attempts no step has judged; replaced, never changed
}

// CreateOperation implements store.Operations.
func (c *Client) CreateOperation(ctx context.Context, by store.Actor, o store.Operation) (store.Operation, error) {
	var created store.Operation
	err := c.do(ctx, Step{Op: "CreateOperation", text: string(o.Action)}, func(now time.Time) error {
		if err := by.Validate(); err != nil {
			return err
		}
		db := &c.store.db
		db.last.operation++
		created = o
		created.ID, created.Version, created.Actor, created.CreatedAt, created.AdvancedAt = store.ID(db.last.operation), 1, by, now, now
		if o.State == store.OperationRunning {
			created.StartedAt = now
		}
		db.operations = append(db.operations, Operation{Operation: created})
		c.store.recordOperation(by, nil, &created, now)
		return nil
	})
	if err != nil {
		return store.Operation{}, err
	}
	return created, nil
}

func (s *Store) recordOperation(by store.Actor, from, to *store.Operation, now time.Time) {
	entry := store.AuditEntry{
		At: now, Actor: by, Action: to.AuditAction(from), Operation: to.ID, Subject: "operation " + to.ID.String(), After: to.Document(),
	}
	if from != nil {
		entry.Before = from.Document()
	}
	s.recordAudit(entry)
}

// Operation implements store.Operations.
func (c *Client) Operation(ctx context.Context, id store.ID) (store.Operation, error) {
	var found store.Operation
	err := c.do(ctx, Step{Op: "Operation", ids: []int64{int64(id)}}, func(time.Time) error {
		o := c.store.db.operation(id)
		if o == nil {
			return fmt.Errorf("%w: there is no operation %s", holdfast.ErrNotFound, id)
		}
		found = o.Operation
		return nil
	})
	if err != nil {
		return store.Operation{}, err
	}
	return found, nil
}

func (d *database) operation(id store.ID) *Operation {
	if i, ok := position(d.operations, int64(id), func(o *Operation) int64 { return int64(o.ID) }); ok {
		return &d.operations[i]
	}
	return nil
}

// ListOperations implements store.Operations.
func (c *Client) ListOperations(ctx context.Context, f store.OperationFilter) ([]store.Operation, error) {
	if f.Limit <= 0 {
		f.Limit = defaultLimit
	}
	var found []store.Operation
	err := c.do(ctx, Step{Op: "ListOperations"}, func(time.Time) error {
		for _, o := range slices.Backward(c.store.db.operations) {
			if len(found) < f.Limit && (len(f.States) == 0 || slices.Contains(f.States, o.State)) && (f.Before == 0 || o.ID < f.Before) {
				found = append(found, o.Operation)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// StepOperation implements store.Operations.
func (c *Client) StepOperation(ctx context.Context, step store.OperationStep) (store.Operation, error) {
	own := step
	own.Changes, own.Judged = slices.Clone(step.Changes), slices.Clone(step.Judged)
	var stepped store.Operation
	err := c.do(ctx, Step{Op: "StepOperation", text: string(step.To.State), ids: changedIDs(own.Changes)}, func(now time.Time) error {
		o := c.store.db.operation(own.From.ID)
		if o == nil || o.Version != own.From.Version {
			return fmt.Errorf("%w: operation %s has changed since it was read", holdfast.ErrConflict, own.From.ID)
		}
		if own.By != nil {
			if err := own.By.Validate(); err != nil {
				return err
			}
		}
		c.store.operation = own.From.ID
		defer func() { c.store.operation = 0 }()
		before := o.Operation
		changed, skipped := before.Changed, own.To.Skipped
		watched := slices.DeleteFunc(slices.Clone(o.watched), func(id holdfast.TaskID) bool { return slices.Contains(own.Judged, id) })
		for i := range own.Changes {
			if !c.store.change(before.Actor, before.ID, &own.Changes[i], now) {
				skipped++
				continue
			}
			changed++
			watched = append(watched, own.Changes[i].Task.ID)
		}
		o.Operation = own.To
		o.Version, o.Changed, o.Skipped = before.Version+1, changed, skipped
		if o.State == store.OperationRunning && o.StartedAt.IsZero() {
			o.StartedAt = now
		}
		if o.State.Final() {
			o.FinishedAt, watched = now, nil
		}
		o.watched = watched
		stepped = o.Operation
		if own.By != nil {
			c.store.recordOperation(*own.By, &before, &stepped, now)
		}
		return nil
	})
	if err != nil {
		return store.Operation{}, err
	}
	return stepped, nil
}

// FirstAttempts implements store.Operations.
func (c *Client) FirstAttempts(ctx context.Context, operation store.ID, limit int) ([]store.FirstAttempt, error) {
	var found []store.FirstAttempt
	err := c.do(ctx, Step{Op: "FirstAttempts", ids: []int64{int64(operation)}}, func(time.Time) error {
		o := c.store.db.operation(operation)
		if o == nil || o.Action != store.ActionRetry {
			return nil
		}
		for _, id := range o.watched {
			if result := c.store.firstResult(id); result != "" && len(found) < limit {
				found = append(found, store.FirstAttempt{Task: id, Result: result})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// firstResult returns the result of the first attempt since a retry, and "" if it has not ended.
func (s *Store) firstResult(id holdfast.TaskID) store.FirstResult {
	task := s.db.task(id)
	if task != nil && !task.State.Final() && task.Failures == 0 && task.Crashes == 0 {
		return ""
	}
	switch last := s.db.lastAction(id); {
	case last == store.ActionPurge || last == store.ActionUndo:
		return store.FirstOther
	case task == nil || task.State == holdfast.Done && task.Failures == 0 && task.Crashes == 0:
		return store.FirstSucceeded
	case task.Failures > 0 || task.Crashes > 0 || task.State == holdfast.Dead:
		return store.FirstFailed
	}
	return store.FirstOther
}

// lastAction returns the action of the newest audit entry of a task.
func (d *database) lastAction(id holdfast.TaskID) store.Action {
	for _, e := range slices.Backward(d.audit) {
		if e.Task == id {
			return e.Action
		}
	}
	return ""
}
