package roles

import (
	"context"
	"fmt"
	"maps"
	"slices"

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

// keptKeys implements the part of store.Transfer about unique keys.
type keptKeys struct{ transactions transact.Transactions }

// keyPage is the number of unique keys that ExportKeys reads at a time.
const keyPage = 1000

// ExportKeys implements store.Transfer.
func (r *keptKeys) ExportKeys(ctx context.Context, f func(store.KeptKey) error) error {
	for page, after := make([]store.KeptKey, keyPage), ""; len(page) == keyPage; {
		page = nil
		if err := r.transactions.Read(ctx, "export unique keys", "export_keys", &page, after, keyPage); err != nil {
			return err
		}
		for _, key := range page {
			if err := f(key); err != nil {
				return err
			}
			after = key.Key
		}
	}
	return nil
}

// keyRow is a unique key in the JSON array that import_keys reads. The times are in microseconds.
type keyRow struct {
	Key       string `json:"key"`
	Task      int64  `json:"task"`
	CreatedAt int64  `json:"created_at"`
	Until     int64  `json:"until"`
}

// ImportKeys implements store.Transfer.
func (r *keptKeys) ImportKeys(ctx context.Context, keys []store.KeptKey) error {
	if len(keys) == 0 {
		return nil
	}
	rows := scan.Map(keys, func(k store.KeptKey) keyRow {
		return keyRow{k.Key, int64(k.Task), k.CreatedAt.UnixMicro(), k.Until.UnixMicro()}
	})
	return r.transactions.Transact(ctx, "import unique keys", func(ctx context.Context, tx transact.Transaction) error {
		if err := transact.ChangeRows(ctx, tx, "import_keys", rows); err != nil {
			return err
		}
		tasks := make(map[string]holdfast.TaskID, len(keys))
		for _, k := range keys {
			tasks[k.Key] = k.Task
		}
		var holders []scan.Keeper
		if err := tx.Read(ctx, "insert_holders", &holders, slices.Collect(maps.Keys(tasks))); err != nil {
			return err
		}
		for _, holder := range holders {
			if task := tasks[holder.Key]; task != holder.ID {
				return fmt.Errorf("%w: the unique key %.100q of task %s belongs to task %s of the store; import into a store without other tasks",
					holdfast.ErrConflict, holder.Key, task, holder.ID)
			}
		}
		return nil
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
