package roles

import (
	"context"
	"encoding/json"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

// deaths implements store.Deaths.
type deaths struct{ transactions Transactions }

// DeathGroups implements store.Deaths.
func (d *deaths) DeathGroups(ctx context.Context, f store.DeathFilter) ([]store.DeathGroup, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	name := "death_groups"
	if f.Fingerprint != "" {
		name = "death_group"
	}
	var rows []scan.DeathGroup
	err := d.transactions.Read(ctx, "group dead tasks", name, &rows,
		column.Text(f.Type), column.Text(f.Queue), column.Text(f.Fingerprint), bound(f.Since), bound(f.Until), limit, f.Resolved)
	if err != nil {
		return nil, err
	}
	return scan.DeathGroups(rows), nil
}

// CountDeathGroups implements store.Deaths.
func (d *deaths) CountDeathGroups(ctx context.Context) (store.GroupCounts, error) {
	var rows []store.GroupCounts
	if err := d.transactions.Read(ctx, "count groups", "death_groups_counted", &rows, "", store.MaxCountedGroups); err != nil {
		return store.GroupCounts{}, err
	}
	return rows[0], nil
}

// ofGroup returns the arguments of the statement death_group for a group in any state.
func ofGroup(fingerprint string) []any {
	return []any{"", "", column.Text(fingerprint), 0, 0, 1, nil}
}

// DeathGroup implements store.Deaths.
func (d *deaths) DeathGroup(ctx context.Context, fingerprint string) (store.DeathGroupDetails, error) {
	const operation = "read a group"
	if fingerprint == "" {
		return store.DeathGroupDetails{}, scan.NoGroup(fingerprint)
	}
	var rows []scan.DeathGroup
	if err := d.transactions.Read(ctx, operation, "death_group", &rows, ofGroup(fingerprint)...); err != nil {
		return store.DeathGroupDetails{}, err
	}
	if len(rows) == 0 {
		return store.DeathGroupDetails{}, scan.NoGroup(fingerprint)
	}
	var tasks []scan.GroupTasks
	if err := d.transactions.Read(ctx, operation, "death_group_tasks", &tasks, column.Text(fingerprint)); err != nil {
		return store.DeathGroupDetails{}, err
	}
	return scan.GroupDetails(scan.DeathGroups(rows)[0], tasks), nil
}

// ChangeDeathGroup implements store.Deaths.
func (d *deaths) ChangeDeathGroup(ctx context.Context, by store.Actor, change store.GroupChange) (store.DeathGroup, error) {
	var group store.DeathGroup
	err := d.transactions.Transact(ctx, "change a group", func(ctx context.Context, tx Transaction) error {
		var err error
		group, err = changeGroup(ctx, tx, by, change)
		return err
	})
	if err != nil {
		return store.DeathGroup{}, err
	}
	return group, nil
}

func changeGroup(ctx context.Context, tx Transaction, by store.Actor, change store.GroupChange) (store.DeathGroup, error) {
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
	row := auditRow{
		Actor: column.Text(by.Name), Surface: by.Surface, Reason: column.Text(by.Reason), Action: change.Action,
		Subject: store.GroupSubject(fingerprint), Before: text(entry.Before), After: text(entry.After),
	}
	if err := record(ctx, tx, []auditRow{row}); err != nil {
		return store.DeathGroup{}, err
	}
	return readGroup(ctx, tx, fingerprint)
}

func readGroup(ctx context.Context, tx Transaction, fingerprint string) (store.DeathGroup, error) {
	var rows []scan.DeathGroup
	if err := tx.Read(ctx, "death_group", &rows, ofGroup(fingerprint)...); err != nil {
		return store.DeathGroup{}, err
	}
	if len(rows) == 0 {
		return store.DeathGroup{}, scan.NoGroup(fingerprint)
	}
	return scan.DeathGroups(rows)[0], nil
}

// RecordDeaths implements store.Deaths. It reads first, because nearly always every record is right.
func (d *deaths) RecordDeaths(ctx context.Context, limit int) (int, error) {
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
		ids := make([]holdfast.TaskID, len(outdated))
		for i, row := range outdated {
			ids[i] = holdfast.TaskID(row.ID)
		}
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
		report := holdfast.Report{Class: death.Class, Error: death.Error, Stack: death.Stack, Details: json.RawMessage(death.Details)}
		host, status := report.Target()
		list[i] = record{death.Task, death.DiedAt.UnixMicro(), holdfast.Fingerprint(death.Type, report), death.Class, host, status}
	}
	encoded, _ := json.Marshal(list) // strings and numbers always marshal
	return string(encoded)
}
