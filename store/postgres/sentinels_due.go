package postgres

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
)

// SentinelsDue implements store.Repair.
func (s *Store) SentinelsDue(ctx context.Context, interval, lost time.Duration) ([]holdfast.Sentinel, error) {
	var rows []struct {
		Lane string
		At   time.Time
	}
	err := s.do(ctx, "choose sentinels", func() error {
		rows = nil
		return s.all(ctx, s.db, &rows, "sentinels_due", micros(interval), micros(lost))
	})
	if err != nil {
		return nil, err
	}
	sentinels := make([]holdfast.Sentinel, len(rows))
	for i, row := range rows {
		sentinels[i] = holdfast.Sentinel{Lane: row.Lane, At: row.At.UTC()}
	}
	return sentinels, nil
}
