package memory

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Change implements store.Audit.
func (c *Client) Change(ctx context.Context, by store.Actor, changes []store.Change) ([]bool, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	own, made := slices.Clone(changes), make([]bool, len(changes))
	err := c.do(ctx, Step{Op: "Change", text: by.Name, ids: changedIDs(own)}, func(now time.Time) error {
		if err := by.Validate(); err != nil {
			return err
		}
		for i := range own {
			made[i] = c.store.change(by, 0, &own[i], now)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

func changedIDs(changes []store.Change) []int64 {
	ids := make([]int64, len(changes))
	for i := range changes {
		ids[i] = int64(changes[i].Task.ID)
	}
	return ids
}

// change makes one change and records it, if the task has not changed since the caller read it.
func (s *Store) change(by store.Actor, operation store.ID, change *store.Change, now time.Time) bool {
	var made bool
	switch {
	case change.Move != nil:
		if made = s.apply(change.Move, now); made && change.Move.MovesKey() {
			s.moveKeys([]string{change.Move.OrderedKey}, now)
		}
	case change.Edit != nil:
		made = s.edit(&change.Task, change.Edit, change.Subqueue())
	default:
		made = s.purge(&change.Task, now)
	}
	if !made {
		return false
	}
	before, after := change.Versions()
	entry := store.AuditEntry{
		At: now, Actor: by, Action: change.Action, Task: change.Task.ID, Operation: operation, Before: documentOf(before),
	}
	if after != nil {
		entry.After = documentOf(*after)
	}
	s.recordAudit(entry)
	return true
}

func documentOf(v store.Version) json.RawMessage {
	document, err := v.Document()
	if err != nil {
		panic(err)
	}
	return document
}

func (s *Store) recordAudit(entry store.AuditEntry) {
	s.db.last.audit++
	entry.ID = store.ID(s.db.last.audit)
	s.db.audit = append(slices.Clip(s.db.audit), entry)
}

func (s *Store) edit(seen *holdfast.Task, edit *store.Edit, subqueue string) bool {
	task := s.db.task(seen.ID)
	if task == nil || task.Attempt != seen.Attempt || task.State != seen.State || task.State == holdfast.Running || task.State == holdfast.Done {
		return false
	}
	s.changing(task)
	task.Attempt++
	if len(edit.Payload) > 0 {
		task.Payload, task.ImportedKey = slices.Clone(edit.Payload), edit.Key
	}
	if subqueue != "" {
		s.db.deleted(task)
		task.Queue, task.Priority = holdfast.SplitSubqueue(subqueue)
		s.db.stored(task)
		s.db.addQueues([]string{subqueue})
	}
	if edit.MaxAttempts != 0 {
		task.MaxAttempts = max(0, edit.MaxAttempts)
	}
	if !edit.RunAt.IsZero() {
		task.NextRunAt, task.Requeued = edit.RunAt.UTC().Truncate(time.Microsecond), false
	}
	if edit.Tags != nil {
		task.Tags = slices.Clone(*edit.Tags)
	}
	task.DueAt, task.TicketedAt, task.Parked, task.Gate = time.Time{}, time.Time{}, "", 0
	if task.State == holdfast.Ready {
		if task.DueAt = task.NextRunAt; task.Waits {
			task.DueAt = store.BlockedUntil
		}
	}
	s.changed("Change", task, nil)
	return true
}

func (s *Store) purge(seen *holdfast.Task, now time.Time) bool {
	task := s.db.task(seen.ID)
	if task == nil || task.Attempt != seen.Attempt || task.State != seen.State || !task.State.Final() {
		return false
	}
	if s.observe != nil {
		s.observe(Change{Op: "Change", Before: task, Operation: s.operation})
	}
	s.db.deleted(task)
	if task.Unique != "" {
		s.db.freeKey(task.Unique)
	}
	key, isOrdered := task.Key, task.Ordered
	s.db.tasks = slices.DeleteFunc(s.db.tasks, func(t Task) bool { return t.ID == seen.ID })
	if isOrdered {
		s.moveKeys([]string{key}, now)
	}
	return true
}

// AuditLog implements store.Audit.
func (c *Client) AuditLog(ctx context.Context, f store.AuditFilter) ([]store.AuditEntry, error) {
	if f.Limit <= 0 {
		f.Limit = defaultLimit
	}
	var found []store.AuditEntry
	err := c.do(ctx, Step{Op: "AuditLog"}, func(time.Time) error {
		for _, e := range slices.Backward(c.store.db.audit) {
			if len(found) < f.Limit &&
				(f.Task == 0 || e.Task == f.Task) && (f.Operation == 0 || e.Operation == f.Operation) && (f.Subject == "" || e.Subject == f.Subject) &&
				(f.Actor == "" || e.Actor.Name == f.Actor) && (f.Action == "" || e.Action == f.Action) &&
				(f.Since.IsZero() || !e.At.Before(f.Since)) && (f.Until.IsZero() || e.At.Before(f.Until)) &&
				(!f.Single || e.Operation == 0 || e.Task == 0) && (f.Before == 0 || e.ID < f.Before) {
				found = append(found, e)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	page, _ := store.AuditPage(found)
	return page, nil
}
