package roles

import (
	"context"
	"fmt"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/ordered"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

// Clash returns an error if the store does not have the task of a skipped record.
func Clash(ctx context.Context, tx Reader, skipped []store.Record) error {
	if len(skipped) == 0 {
		return nil
	}
	ids := scan.Map(skipped, func(r store.Record) holdfast.TaskID { return r.ID })
	existing, err := listOf(ctx, tx, "task", scan.Task.Value, ids)
	if err != nil {
		return err
	}
	return store.Clash(skipped, existing, func(unique string) (holdfast.TaskID, error) {
		missing := fmt.Errorf("the database skipped a task although its id and its unique key %.100q are free", unique)
		holder, err := firstOf[scan.Keeper](ctx, tx, missing, "insert_holders", []string{unique})
		return holder.ID, err
	})
}

// ImportParts stores the places of the imported tasks that are ordered or have topics, and the data of all imported
// tasks.
func ImportParts(ctx context.Context, tx Changer, records []store.Record, stored map[holdfast.TaskID]bool) error {
	if err := importOrder(ctx, tx, records, stored); err != nil {
		return err
	}
	if err := importTopics(ctx, tx, records, stored); err != nil {
		return err
	}
	return importData(ctx, tx, records, stored)
}

// importData stores the data of the imported tasks.
func importData(ctx context.Context, tx Changer, records []store.Record, stored map[holdfast.TaskID]bool) error {
	var rows []dataRow
	for i := range records {
		if r := &records[i]; stored[r.ID] {
			for _, d := range r.Data {
				rows = append(rows, dataRow{int64(r.ID), d.Name, d.Attempt, string(d.Value), d.At.UnixMicro()})
			}
		}
	}
	return changeRows(ctx, tx, "data_put", rows)
}

// importOrder stores the places of the imported tasks that are ordered.
func importOrder(ctx context.Context, tx Changer, records []store.Record, stored map[holdfast.TaskID]bool) error {
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
	return changeRows(ctx, tx, "import_ordered", rows)
}

// importTopics stores the imported tasks that have topics and are open.
func importTopics(ctx context.Context, tx Changer, records []store.Record, stored map[holdfast.TaskID]bool) error {
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
