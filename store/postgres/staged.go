package postgres

import (
	"context"

	"github.com/jmoiron/sqlx"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Staged implements store.Importer.
func (s *Store) Staged(ctx context.Context, transfer string) (store.TransferCounts, error) {
	var counts store.TransferCounts
	err := s.do(ctx, "count staged tasks", func() error {
		return s.patiently(ctx, func(tx *sqlx.Tx) error {
			row, err := s.lockImport(ctx, tx, transfer)
			if err == nil {
				counts, err = s.staged(ctx, tx, row.ID)
			}
			return err
		})
	})
	return counts, err
}

func (s *Store) staged(ctx context.Context, tx store.Tx, id int64) (store.TransferCounts, error) {
	var rows []struct {
		State holdfast.State
		Tasks int64
		Last  holdfast.TaskID
	}
	if err := s.all(ctx, tx, &rows, "staged", id); err != nil {
		return store.TransferCounts{}, err
	}
	attempts, err := one[struct{ Attempts int64 }](ctx, s, tx, "staged_attempts", id)
	if err != nil {
		return store.TransferCounts{}, err
	}
	counts := store.TransferCounts{States: make(map[holdfast.State]int64), Attempts: attempts.Attempts}
	for _, state := range holdfast.States() {
		counts.States[state] = 0
	}
	for _, row := range rows {
		counts.States[row.State] = row.Tasks
		counts.Last = max(counts.Last, row.Last)
	}
	return counts, nil
}
