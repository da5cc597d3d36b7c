package sqlite_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
	"github.com/holdfastq/holdfast/store/storetest"
)

func TestExporter(t *testing.T) {
	t.Parallel()
	storetest.RunExporter(t, func(t *testing.T) (here, elsewhere storetest.Source) {
		first := open(t)
		second, err := sqlite.Open(t.Context(), sqlite.Options{Path: first.Path()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = second.Close() })
		return first, second
	})
}

// Without the mark nobody could tell where the tasks are.
func TestMigrateDownKeepsTheMark(t *testing.T) {
	t.Parallel()
	s := open(t)
	if err := s.BeginExport(t.Context(), store.Export{Transfer: "t", From: s.Path(), To: "a server", Destination: "d"}); err != nil {
		t.Fatal(err)
	}
	if m, err := s.MigrateDown(t.Context()); !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "are being carried to a server") {
		t.Errorf("under way: %+v, %v", m, err)
	}
	if err := s.FinishExport(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	if m, err := s.MigrateDown(t.Context()); !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "were carried to a server") {
		t.Errorf("finished: %+v, %v", m, err)
	}
	if e, err := s.Export(t.Context()); err != nil || !e.Finished() {
		t.Errorf("the mark is %+v, %v", e, err)
	}
}
