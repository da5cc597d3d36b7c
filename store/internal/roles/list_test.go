package roles

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

// slowScan is a table of tasks whose scan takes a time for each window.
type slowScan struct {
	ids     []int64 // of the tasks that match, ascending
	window  time.Duration
	windows int
}

func (s *slowScan) Change(context.Context, string, string, ...any) error { panic("not used") }

func (s *slowScan) Read(_ context.Context, _, name string, rows any, args ...any) error {
	if name == "last_id" {
		before := int64(args[0].(holdfast.TaskID))
		i, _ := slices.BinarySearch(s.ids, before)
		found := scan.ID{}
		if i > 0 {
			found.ID = s.ids[i-1]
		}
		*rows.(*[]scan.ID) = []scan.ID{found}
		return nil
	}
	s.windows++
	time.Sleep(s.window)
	before, after, limit := int64(args[4].(holdfast.TaskID)), int64(args[10].(holdfast.TaskID)), args[len(args)-1].(int)
	found := rows.(*[]scan.Task)
	for _, id := range slices.Backward(s.ids) {
		if id >= after && id < before && len(*found) < limit {
			*found = append(*found, scan.Task{ID: holdfast.TaskID(id)})
		}
	}
	return nil
}

func inspectorOf(s Statements) Inspector {
	return NewInspector(s, func(operation string, _ store.Filter) string { return operation })
}

// A scan that is slow stops after about a second. The pages of all calls together have every task once.
func TestASlowScanStopsAndContinues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slowScan{window: 300 * time.Millisecond}
		for id := int64(1); id < 100_000; id += 1111 {
			s.ids = append(s.ids, id)
		}
		i := inspectorOf(s)
		var seen []int64
		stopped := 0
		for f := (store.Filter{Limit: 1000}); ; {
			began := time.Now()
			page, err := i.List(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 2*scanLimit {
				t.Errorf("a call took %s", took)
			}
			for _, task := range page.Tasks {
				seen = append(seen, int64(task.ID))
			}
			if f.Before = page.Next; f.Before == 0 {
				break
			}
			stopped++
		}
		slices.Reverse(seen)
		if !slices.Equal(seen, s.ids) || stopped == 0 {
			t.Errorf("%d tasks of %d after %d calls that stopped early", len(seen), len(s.ids), stopped)
		}
	})
}

// A scan passes gaps between the ids, however large they are.
func TestAScanPassesGaps(t *testing.T) {
	t.Parallel()
	s := &slowScan{ids: []int64{1, 5, 1 << 40, 1 << 41, 1 << 62}}
	i := inspectorOf(s)
	page, err := i.List(t.Context(), store.Filter{Limit: 5})
	if err != nil || len(page.Tasks) != 5 || page.Next != 0 {
		t.Errorf("%+v, %v", page, err)
	}
	if s.windows > 20 {
		t.Errorf("the scan read %d windows", s.windows)
	}
	page, err = i.List(t.Context(), store.Filter{Limit: 2})
	if err != nil || len(page.Tasks) != 2 || page.Next != 1<<41 {
		t.Errorf("%+v, %v", page, err)
	}
}
