package roles

import (
	"context"
	"fmt"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// effects implements store.Effects.
type effects struct{ transactions transact.Transactions }

// SaveData implements store.Effects.
func (r *effects) SaveData(ctx context.Context, by store.Fence, values []store.Datum) error {
	if len(values) == 0 {
		return nil
	}
	rows := scan.Map(values, func(d store.Datum) dataRow { return dataRow{Name: d.Name, Value: string(d.Value)} })
	return r.transactions.Transact(ctx, "save data of a task", func(ctx context.Context, tx transact.Transaction) error {
		stored, err := tx.Change(ctx, "data_save", by.Task, by.Attempt, int64(by.Worker), transact.Encode(rows))
		if err == nil && stored == 0 {
			err = ended(by)
		}
		return err
	})
}

// ended is the error of a call for an attempt that does not run any more.
func ended(by store.Fence) error {
	return fmt.Errorf("%w: the attempt %d of task %s does not run any more", store.ErrFenced, by.Attempt, by.Task)
}

// TaskData implements store.Effects.
func (r *effects) TaskData(ctx context.Context, tasks []holdfast.TaskID, names ...string) (found []store.Datum, err error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	if names == nil {
		names = []string{}
	}
	return found, r.transactions.Read(ctx, "read data of tasks", "data", &found, tasks, names)
}

// dataRow is a value in the JSON array that data_save and data_put read.
type dataRow struct {
	Task    int64  `json:"task"`
	Name    string `json:"name"`
	Attempt int    `json:"attempt"`
	Value   string `json:"value"`
	At      int64  `json:"at,omitempty"` // in microseconds; 0 means now
}

// Effecter is a transaction that can store tasks.
type Effecter interface {
	transact.Changer
	// Insert stores tasks; see store.Inserter.
	Insert(ctx context.Context, tasks []holdfast.NewTask) (store.Inserted, error)
}

// HasEffects reports whether a move has effects.
func HasEffects(moves []holdfast.Transition) bool {
	for i := range moves {
		if moves[i].Effects != nil {
			return true
		}
	}
	return false
}

// StoreEffects stores the effects of the moves that the same transaction has accepted.
func StoreEffects(ctx context.Context, tx Effecter, moves []holdfast.Transition, accepted []bool) error {
	var outputs []dataRow
	var next []holdfast.NewTask
	for i := range moves {
		move := &moves[i]
		if move.Effects == nil || !accepted[i] {
			continue
		}
		if len(move.Effects.Output) > 0 {
			outputs = append(outputs, dataRow{Task: int64(move.Task), Name: store.OutputData, Attempt: move.Attempt, Value: string(move.Effects.Output)})
		}
		next = append(next, move.Effects.Next...)
	}
	if err := transact.ChangeRows(ctx, tx, "data_put", outputs); err != nil || len(next) == 0 {
		return err
	}
	_, err := tx.Insert(ctx, next)
	return err
}
