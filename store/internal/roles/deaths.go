package roles

import (
	"context"
	"encoding/json"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

// Deaths implements store.Deaths.
type Deaths struct{ statements Statements }

// NewDeaths returns the role, which uses the statements death_groups, deaths_missing, deaths_record, deaths_outdated and
// deaths_delete.
func NewDeaths(s Statements) Deaths { return Deaths{s} }

// DeathGroups implements store.Deaths.
func (d *Deaths) DeathGroups(ctx context.Context, f store.DeathFilter) ([]store.DeathGroup, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	var rows []scan.DeathGroup
	err := d.statements.Read(ctx, "group dead tasks", "death_groups", &rows,
		column.Text(f.Type), column.Text(f.Queue), column.Text(f.Fingerprint), bound(f.Since), bound(f.Until), limit)
	if err != nil {
		return nil, err
	}
	return scan.DeathGroups(rows), nil
}

// RecordDeaths implements store.Deaths. It reads first, because nearly always every record is right.
func (d *Deaths) RecordDeaths(ctx context.Context, limit int) (int, error) {
	const operation = "record deaths"
	var missing []scan.Death
	if err := d.statements.Read(ctx, operation, "deaths_missing", &missing, limit); err != nil {
		return 0, err
	}
	if len(missing) > 0 {
		if err := d.statements.Change(ctx, operation, "deaths_record", records(missing)); err != nil {
			return 0, err
		}
	}
	var outdated []scan.ID
	if err := d.statements.Read(ctx, operation, "deaths_outdated", &outdated, limit); err != nil {
		return len(missing), err
	}
	if len(outdated) > 0 {
		ids := make([]holdfast.TaskID, len(outdated))
		for i, row := range outdated {
			ids[i] = holdfast.TaskID(row.ID)
		}
		if err := d.statements.Change(ctx, operation, "deaths_delete", ids); err != nil {
			return len(missing), err
		}
	}
	return len(missing) + len(outdated), nil
}

// records returns the records of deaths as a JSON array, because both databases read that.
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
