package daemon

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus/hooks/test"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store/desk"
)

// growing is a store in a file whose log is long after a time.
type growing struct {
	desk.Store
	long time.Time
}

func (g growing) WALSize() (int64, bool) { return 12, time.Now().After(g.long) }

func TestALongLogOfAFileIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, lines := test.NewNullLogger()
		store := growing{long: time.Now().Add(150 * time.Second)}
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Second)
		defer cancel()
		watchWAL(ctx, &app.Backend{Store: store, Log: log})
		if entries := lines.AllEntries(); len(entries) != 2 || entries[0].Data["bytes"] != int64(12) {
			t.Errorf("the lines are %v", entries)
		}
		err := newWALCollector(store).read(t.Context(), func(name string, value float64, _ ...string) {
			if name != "holdfast_file_wal_bytes" || value != 12 {
				t.Errorf("%s is %g", name, value)
			}
		})
		if err != nil {
			t.Error(err)
		}
	})
}
