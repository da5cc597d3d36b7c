package roles

import (
	"context"
	"fmt"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/flow"
	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// Clash returns an error if the store does not have the task of a skipped record.
func Clash(ctx context.Context, tx transact.Reader, skipped []store.Record) error {
	if len(skipped) == 0 {
		return nil
	}
	ids := scan.Map(skipped, func(r store.Record) holdfast.TaskID { return r.ID })
	existing, err := transact.ListOf(ctx, tx, "task", scan.Task.Value, ids)
	if err != nil {
		return err
	}
	return store.Clash(skipped, existing, func(unique string) (holdfast.TaskID, error) {
		missing := fmt.Errorf("the database skipped a task although its id and its unique key %.100q are free", unique)
		holder, err := transact.FirstOf[scan.Keeper](ctx, tx, missing, "insert_holders", []string{unique})
		return holder.ID, err
	})
}

// ImportParts stores the places of the imported tasks that are ordered or have topics, and the data of all imported
// tasks.
func ImportParts(ctx context.Context, tx transact.Changer, records []store.Record, stored map[holdfast.TaskID]bool) error {
	if err := flow.ImportOrder(ctx, tx, records, stored); err != nil {
		return err
	}
	if err := flow.ImportTopics(ctx, tx, records, stored); err != nil {
		return err
	}
	return importData(ctx, tx, records, stored)
}

// importData stores the data of the imported tasks.
func importData(ctx context.Context, tx transact.Changer, records []store.Record, stored map[holdfast.TaskID]bool) error {
	var rows []dataRow
	for i := range records {
		if r := &records[i]; stored[r.ID] {
			for _, d := range r.Data {
				rows = append(rows, dataRow{int64(r.ID), d.Name, d.Attempt, string(d.Value), d.At.UnixMicro()})
			}
		}
	}
	return transact.ChangeRows(ctx, tx, "data_put", rows)
}
