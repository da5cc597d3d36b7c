package desk

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// BlockedByQueue returns how many tasks wait at closed gates, limits among them, or behind a dead ordered task that blocks
// their key, in each queue, and for how long. It reads at most MaxCountedBlocked blocked tasks, of all queues together, and
// looks up each of them by its id.
func (d *Desk) BlockedByQueue(ctx context.Context) (store.BlockedCounts, error) {
	var rows []struct {
		Queue         string
		Tasks, Oldest int64 // Oldest is in microseconds
	}
	counts := store.BlockedCounts{Tasks: make(map[string]int64), Oldest: make(map[string]time.Duration)}
	err := d.transactions.Read(ctx, "count blocked tasks", "blocked_by_queue", &rows, store.MaxCountedBlocked)
	read := int64(0)
	for _, row := range rows {
		if read += row.Tasks; row.Queue != "" { // the others are no longer blocked
			counts.Tasks[row.Queue], counts.Oldest[row.Queue] = row.Tasks, time.Duration(row.Oldest)*time.Microsecond
		}
	}
	counts.More = read >= store.MaxCountedBlocked
	return counts, err
}
