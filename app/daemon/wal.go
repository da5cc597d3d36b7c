package daemon

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/backoff"
)

// walStore is a store in a file with a write-ahead log; see sqlite.Store.
type walStore interface {
	WALSize() (bytes int64, long bool)
}

// newWALCollector publishes the size of the write-ahead log of a file.
func newWALCollector(store walStore) *collector {
	const bytes = "holdfast_file_wal_bytes"
	return newCollector([]gauge{
		{bytes, "Size of the write-ahead log of the database file. It grows while a program reads an old state of the file.", nil},
	}, func(_ context.Context, set setter) error {
		n, _ := store.WALSize()
		set(bytes, float64(n))
		return nil
	})
}

// walLook is the time between two looks at the write-ahead log.
const walLook = time.Minute

// watchWAL logs once a minute that the write-ahead log of a file is long, until ctx is done. It does nothing on servers.
func watchWAL(ctx context.Context, b *app.Backend) {
	store, ok := b.Store.(walStore)
	if !ok {
		return
	}
	for backoff.Sleep(ctx, walLook) == nil {
		if bytes, long := store.WALSize(); long {
			b.Log.WithField("bytes", bytes).Warn(
				"the write-ahead log of the file is long, probably because a program reads an old state of the file; to find it: holdfast doctor")
		}
	}
}
