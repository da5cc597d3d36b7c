package sqlite

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
)

// SentinelsDue implements store.Repair.
func (s *Store) SentinelsDue(ctx context.Context, interval, lost time.Duration) ([]holdfast.Sentinel, error) {
	const operation = "choose sentinels"
	any, err := list[numberRow](ctx, s, operation, "sentinels_due_any", s.now().UnixMicro(), micros(interval), micros(lost))
	if err != nil || any[0].N == 0 {
		return nil, err
	}
	var sentinels []holdfast.Sentinel
	err = s.write(ctx, operation, func(ctx context.Context, tx *transaction) error {
		rows, err := all[struct {
			Lane string
			At   int64
		}](ctx, tx, "sentinels_due", tx.now, micros(interval), micros(lost))
		for _, row := range rows {
			sentinels = append(sentinels, holdfast.Sentinel{Lane: row.Lane, At: moment(row.At)})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return sentinels, nil
}
