package flow

import (
	"context"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/ordered"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// ImportOrder stores the places of the imported tasks that are ordered.
func ImportOrder(ctx context.Context, tx transact.Changer, records []store.Record, stored map[holdfast.TaskID]bool) error {
	type row struct {
		Key   string `json:"key"`
		Task  int64  `json:"task"`
		Leads bool   `json:"leads"`
		Waits bool   `json:"waits"`
		Dead  int    `json:"dead"`
	}
	var rows []row
	for i := range records {
		r := &records[i]
		open := r.State == holdfast.Ready && r.Order == ordered.Ordered
		if stored[r.ID] && r.Order != 0 && (open || r.Leads) {
			rows = append(rows, row{Key: r.Key, Task: int64(r.ID), Leads: r.Leads, Waits: open && !r.Leads, Dead: deathOf(r.State, r.Order == ordered.Dooms)})
		}
	}
	return transact.ChangeRows(ctx, tx, "import_ordered", rows)
}

// ImportTopics stores the imported tasks that have topics and are open.
func ImportTopics(ctx context.Context, tx transact.Changer, records []store.Record, stored map[holdfast.TaskID]bool) error {
	var ids []holdfast.TaskID
	for i := range records {
		if r := &records[i]; r.Topic != "" && stored[r.ID] && r.State == holdfast.Ready {
			ids = append(ids, r.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := tx.Change(ctx, "import_topics", ids)
	return err
}
