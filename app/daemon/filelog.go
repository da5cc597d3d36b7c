package daemon

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast/app"
)

// logged is a store in a file with a write-ahead log; see sqlite.Store.
type logged interface {
	LogSize() (bytes int64, long bool)
}

// newFileCollector publishes the size of the write-ahead log of a file.
func newFileCollector(store logged) *collector {
	const bytes = "holdfast_file_log_bytes"
	return newCollector([]gauge{
		{bytes, "Size of the write-ahead log of the database file. It grows while a program reads an old state of the file.", nil},
	}, func(_ context.Context, set setter) error {
		n, _ := store.LogSize()
		set(bytes, float64(n))
		return nil
	})
}

// logLook is the time between two looks at the write-ahead log.
const logLook = time.Minute

// watchLog logs once a minute that the write-ahead log of a file is long, until ctx is done. It does nothing on servers.
func watchLog(ctx context.Context, b *app.Backend) {
	store, ok := b.Store.(logged)
	if !ok {
		return
	}
	tick := time.NewTicker(logLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if bytes, long := store.LogSize(); long {
				b.Log.WithFields(logrus.Fields{"bytes": bytes}).Warn(
					"the write-ahead log of the file grows, because a program reads an old state of the file; to find it: holdfast doctor")
			}
		}
	}
}
