package roles

import (
	"context"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/flow"
	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// audit implements store.Audit.
type audit struct{ transactions transact.Transactions }

// Change implements store.Audit.
func (a *audit) Change(ctx context.Context, by store.Actor, changes []store.Change) ([]bool, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	var made []bool
	err := a.transactions.Transact(ctx, "change tasks", func(ctx context.Context, tx transact.Transaction) error {
		var err error
		made, err = change(ctx, tx, by, 0, changes)
		return err
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

// change makes the changes and adds their audit entries. operation is 0 if a person requested single changes.
func change(ctx context.Context, tx transact.Transaction, by store.Actor, operation store.ID, changes []store.Change) ([]bool, error) {
	if err := keepGroups(ctx, tx, changes); err != nil {
		return nil, err
	}
	made := make([]bool, len(changes))
	var moves []holdfast.Transition
	var moved []int // indexes of the changes with a move
	var edits, purges []changeRow
	at := make(map[holdfast.TaskID]int, len(changes))
	for i := range changes {
		c := &changes[i]
		at[c.Task.ID] = i
		switch {
		case c.Move != nil:
			moves, moved = append(moves, *c.Move), append(moved, i)
		case c.Edit != nil:
			edits = append(edits, changeRowOf(c))
		default:
			purges = append(purges, changeRowOf(c))
		}
	}
	if len(moves) > 0 {
		accepted, err := tx.Apply(ctx, moves)
		if err != nil {
			return nil, err
		}
		for n, i := range moved {
			made[i] = accepted[n]
		}
	}
	for _, batch := range []struct {
		statement string
		rows      []changeRow
	}{{"edit", edits}, {"purge", purges}} {
		if len(batch.rows) == 0 {
			continue
		}
		var changed []scan.ID
		if err := tx.Read(ctx, batch.statement, &changed, transact.Encode(batch.rows)); err != nil {
			return nil, err
		}
		ids := scan.IDs[holdfast.TaskID](changed)
		for _, id := range ids {
			made[at[id]] = true
		}
		if batch.statement == "edit" {
			if _, err := tx.Change(ctx, "edited", ids); err != nil {
				return nil, err
			}
			if err := retag(ctx, tx, changes, made); err != nil {
				return nil, err
			}
		}
	}
	var entries []transact.AuditRow
	var keys []string // keys of deleted tasks
	for i := range changes {
		if !made[i] {
			continue
		}
		if c := &changes[i]; c.Task.Ordered && c.Move == nil && c.Edit == nil {
			keys = append(keys, c.Task.Key)
		}
		entry, err := auditRowOf(by, operation, &changes[i])
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry)
	}
	slices.Sort(keys)
	if err := flow.MoveKeys(ctx, tx, slices.Compact(keys), nil); err != nil {
		return nil, err
	}
	return made, transact.Record(ctx, tx, entries)
}

// keepGroups stores a summary of the groups that dead tasks leave, because the changes delete the records of their
// deaths. It also deletes old groups, which limits their number.
func keepGroups(ctx context.Context, tx transact.Transaction, changes []store.Change) error {
	var leaving []holdfast.TaskID
	for i := range changes {
		if c := &changes[i]; c.Task.State == holdfast.Dead && c.Edit == nil {
			leaving = append(leaving, c.Task.ID)
		}
	}
	if len(leaving) == 0 {
		return nil
	}
	if _, err := tx.Change(ctx, "deaths_keep", leaving); err != nil {
		return err
	}
	_, err := tx.Change(ctx, "notices_forget", store.NoticeForgetAfter)
	return err
}

// tagRow is a tag of a task in the form that the statements read.
type tagRow struct {
	Task int64  `json:"task"`
	Tag  string `json:"tag"`
}

// retag updates the table of tags after edits of tasks.
func retag(ctx context.Context, tx transact.Transaction, changes []store.Change, made []bool) error {
	var removed, added []tagRow
	for i := range changes {
		if c := &changes[i]; made[i] && c.Edit != nil && c.Edit.Tags != nil {
			for _, tag := range c.Task.Tags {
				removed = append(removed, tagRow{int64(c.Task.ID), tag})
			}
			for _, tag := range *c.Edit.Tags {
				added = append(added, tagRow{int64(c.Task.ID), tag})
			}
		}
	}
	if err := transact.ChangeRows(ctx, tx, "untag", removed); err != nil {
		return err
	}
	return transact.ChangeRows(ctx, tx, "tag", added)
}

// changeRow is an edit or a purge in the JSON array that the statements read. Both databases can read JSON.
type changeRow struct {
	Task        int64          `json:"task"`
	Attempt     int            `json:"attempt"`
	State       holdfast.State `json:"state"`
	Payload     *string        `json:"payload"` // text, because a database may change the form of JSON; nil: no change
	Key         string         `json:"key"`     // key of the new payload
	Queue       string         `json:"queue"`
	MaxAttempts int            `json:"max_attempts"`
	RunAt       int64          `json:"run_at"` // microseconds since 1970; 0: no change
	Tags        *string        `json:"tags"`   // a JSON list, empty for no tags; nil: no change
}

func changeRowOf(c *store.Change) changeRow {
	row := changeRow{Task: int64(c.Task.ID), Attempt: c.Task.Attempt, State: c.Task.State}
	if c.Edit == nil {
		return row
	}
	if len(c.Edit.Payload) > 0 {
		text := string(c.Edit.Payload)
		row.Payload = &text
	}
	if c.Edit.Tags != nil {
		tags := column.Tags(*c.Edit.Tags)
		row.Tags = &tags
	}
	row.Key, row.Queue, row.MaxAttempts, row.RunAt = c.Edit.Key, c.Subqueue(), c.Edit.MaxAttempts, transact.Bound(c.Edit.RunAt)
	return row
}

func auditRowOf(by store.Actor, operation store.ID, c *store.Change) (transact.AuditRow, error) {
	row := transact.EntryOf(by, c.Action, "")
	row.Task, row.Operation = int64(c.Task.ID), int64(operation)
	before, after := c.Versions()
	err := row.SetDocuments(before, after)
	return row, err
}

// auditPortion is the number of entries that one statement reads. Each may have two payloads.
const auditPortion = 16

// AuditLog implements store.Audit. It reads small portions, because a page ends by the size of its entries.
func (a *audit) AuditLog(ctx context.Context, f store.AuditFilter) ([]store.AuditEntry, error) {
	if f.Limit <= 0 {
		f.Limit = transact.DefaultLimit
	}
	name, single := "audit_log", 0
	if f.Single {
		single = 1
	}
	switch { // each of these statements uses an index
	case f.Task != 0:
		name = "audit_log_task"
	case f.Operation != 0:
		name = "audit_log_operation"
	case f.Subject != "":
		name = "audit_log_subject"
	case f.Single:
		name = "audit_log_single"
	}
	var entries []store.AuditEntry
	for full := false; !full && len(entries) < f.Limit; {
		portion := min(auditPortion, f.Limit-len(entries))
		var rows []store.AuditEntry
		err := a.transactions.Read(ctx, "read the audit log", name, &rows, f.Task, int64(f.Operation), column.Text(f.Actor), string(f.Action),
			transact.Bound(f.Since), transact.Bound(f.Until), int64(f.Before), portion, column.Text(f.Subject), single)
		if err != nil {
			return nil, err
		}
		entries, full = store.AuditPage(append(entries, rows...))
		if len(rows) < portion {
			break
		}
		f.Before = rows[len(rows)-1].ID
	}
	return entries, nil
}
