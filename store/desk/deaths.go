package desk

import (
	"context"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// DeathGroups returns the groups with at least one dead task that matches f, the largest first. It omits resolved
// groups, unless f selects them.
func (d *Desk) DeathGroups(ctx context.Context, f store.DeathFilter) ([]store.DeathGroup, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = transact.DefaultLimit
	}
	name := "death_groups"
	if f.Fingerprint != "" {
		name = "death_group"
	}
	return transact.ListOf(ctx, transact.Alone(d.transactions, "group dead tasks"), name, scan.DeathGroup.Value,
		column.Text(f.Type), column.Text(f.Queue), column.Text(f.Fingerprint), transact.Bound(f.Since), transact.Bound(f.Until), limit, f.Resolved)
}

// CountDeathGroups returns how many groups with dead tasks are open or have returned. It counts at most
// MaxCountedGroups groups. For each group it reads a few index entries, independent of the number of tasks.
func (d *Desk) CountDeathGroups(ctx context.Context) (store.GroupCounts, error) {
	var rows []store.GroupCounts
	if err := d.transactions.Read(ctx, "count groups", "death_groups_counted", &rows, "", store.MaxCountedGroups); err != nil {
		return store.GroupCounts{}, err
	}
	return rows[0], nil
}

// Fingerprints returns the fingerprints of known groups that begin with the given digits, at most limit of them and in
// ascending order. For each it reads a few index entries, independent of the number of tasks.
func (d *Desk) Fingerprints(ctx context.Context, digits string, limit int) ([]string, error) {
	type row struct{ Fingerprint string }
	return transact.ListOf(ctx, transact.Alone(d.transactions, "find a group"), "fingerprints", func(r row) string { return r.Fingerprint },
		column.Text(digits), limit)
}

// ofGroup returns the arguments of the statement death_group for a group in any state.
func ofGroup(fingerprint string) []any {
	return []any{"", "", column.Text(fingerprint), 0, 0, 1, nil}
}

// DeathGroup returns all data about one group. It returns ErrNotFound if the group is not known.
func (d *Desk) DeathGroup(ctx context.Context, fingerprint string) (store.DeathGroupDetails, error) {
	const operation = "read a group"
	group, err := readGroup(ctx, transact.Alone(d.transactions, operation), fingerprint)
	if err != nil {
		return store.DeathGroupDetails{}, err
	}
	var tasks []scan.GroupTasks
	if err := d.transactions.Read(ctx, operation, "death_group_tasks", &tasks, column.Text(fingerprint)); err != nil {
		return store.DeathGroupDetails{}, err
	}
	return scan.GroupDetails(group, tasks), nil
}

// ChangeDeathGroup changes a group for a person, and adds an audit entry in the same transaction. It returns the
// changed group. A change without a difference adds no entry. It returns ErrNotFound if the group is not known, and
// ErrConflict if the group has another version than the change requires.
func (d *Desk) ChangeDeathGroup(ctx context.Context, by store.Actor, change store.GroupChange) (store.DeathGroup, error) {
	var group store.DeathGroup
	err := d.transactions.Transact(ctx, "change a group", func(ctx context.Context, tx transact.Transaction) error {
		var err error
		group, err = changeGroup(ctx, tx, by, change)
		return err
	})
	if err != nil {
		return store.DeathGroup{}, err
	}
	return group, nil
}

func changeGroup(ctx context.Context, tx transact.Transaction, by store.Actor, change store.GroupChange) (store.DeathGroup, error) {
	fingerprint := column.Text(change.Fingerprint)
	if fingerprint == "" {
		return store.DeathGroup{}, scan.NoGroup(fingerprint)
	}
	if _, err := tx.Change(ctx, "death_group_known", fingerprint); err != nil {
		return store.DeathGroup{}, err
	}
	var locked []struct{ Fingerprint string } // if the group has no dead tasks, the previous statement locked nothing
	if err := tx.Read(ctx, "death_group_lock", &locked, fingerprint); err != nil {
		return store.DeathGroup{}, err
	}
	before, err := readGroup(ctx, tx, fingerprint)
	if err != nil {
		return store.DeathGroup{}, err
	}
	change.Text = column.Text(change.Text)
	after, entry, err := change.Of(before)
	if err != nil || entry == nil {
		return before, err
	}
	resolve := map[store.Action]int{store.ActionResolve: 1, store.ActionReopen: -1}[change.Action]
	if _, err := tx.Change(ctx, "death_group_change", fingerprint, after.Note, after.Owner, resolve); err != nil {
		return store.DeathGroup{}, err
	}
	row := transact.EntryOf(by, change.Action, store.GroupSubject(fingerprint))
	row.Before, row.After = transact.TextOf(entry.Before), transact.TextOf(entry.After)
	if err := transact.Record(ctx, tx, []transact.AuditRow{row}); err != nil {
		return store.DeathGroup{}, err
	}
	return readGroup(ctx, tx, fingerprint)
}

// readGroup reads a group. No group has an empty fingerprint.
func readGroup(ctx context.Context, r transact.Reader, fingerprint string) (store.DeathGroup, error) {
	missing := scan.NoGroup(fingerprint)
	if fingerprint == "" {
		return store.DeathGroup{}, missing
	}
	row, err := transact.FirstOf[scan.DeathGroup](ctx, r, missing, "death_group", ofGroup(fingerprint)...)
	return row.Value(), err
}

// RecordDeaths adds missing records and deletes outdated ones, at most limit of each. It returns how many records
// it added and deleted. 0 means that every record is right.
//
// It reads first, because nearly always every record is right.
func (d *Desk) RecordDeaths(ctx context.Context, limit int) (int, error) {
	const operation = "record deaths"
	var missing []scan.Death
	if err := d.transactions.Read(ctx, operation, "deaths_missing", &missing, limit); err != nil {
		return 0, err
	}
	if len(missing) > 0 {
		if err := d.transactions.Change(ctx, operation, "deaths_record", records(missing)); err != nil {
			return 0, err
		}
	}
	var outdated []scan.ID
	if err := d.transactions.Read(ctx, operation, "deaths_outdated", &outdated, limit); err != nil {
		return len(missing), err
	}
	if len(outdated) > 0 {
		ids := scan.IDs[holdfast.TaskID](outdated)
		if err := d.transactions.Change(ctx, operation, "deaths_delete", ids); err != nil {
			return len(missing), err
		}
	}
	return len(missing) + len(outdated), nil
}

// records returns the records of deaths as a JSON array, which both databases can read.
func records(deaths []scan.Death) string {
	type record struct {
		Task        int64  `json:"task"`
		DiedAt      int64  `json:"died_at"` // microseconds since 1970
		Fingerprint string `json:"fingerprint"`
		Class       string `json:"class"`
		Host        string `json:"host"`
		Status      int    `json:"status"`
	}
	list := make([]record, len(deaths))
	for i, death := range deaths {
		host, status := death.Target()
		list[i] = record{death.Task, death.DiedAt.UnixMicro(), holdfast.Fingerprint(death.Type, death.Report), death.Class, host, status}
	}
	return transact.Encode(list)
}
