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
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// slowScan is a table of tasks. A scan of it takes some time for each window.
type slowScan struct {
	ids     []int64 // ids of the tasks that match, ascending
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
			*found = append(*found, scan.Task{Task: holdfast.Task{ID: holdfast.TaskID(id)}})
		}
	}
	return nil
}

func inspectorOf(s transact.Statements) inspector {
	return inspector{s}
}

// A slow scan stops after about a second. The pages of all calls together have every task once.
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

// A scan passes gaps of any size between ids.
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

// hugePayloads is a table in which the tasks below an id have huge payloads, which take long to read. A statement ends
// when its context ends.
type hugePayloads struct {
	slowScan
	below, last int64
	each        time.Duration
	cancelled   int
}

func (h *hugePayloads) Read(ctx context.Context, operation, name string, rows any, args ...any) error {
	if name != "last_id" {
		before, after := int64(args[4].(holdfast.TaskID)), int64(args[10].(holdfast.TaskID))
		wait := time.Duration(max(0, min(before, h.below, h.last+1)-after)) * h.each
		select {
		case <-ctx.Done():
			h.cancelled++
			return ctx.Err()
		case <-time.After(wait):
		}
	}
	return h.slowScan.Read(ctx, operation, name, rows, args...)
}

// A scan that reaches tasks with huge payloads reads smaller windows. Each call returns in time and makes progress.
func TestAScanReadsSmallWindowsOfHugePayloads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &hugePayloads{below: 300, last: 1_000_000, each: 40 * time.Millisecond}
		h.ids = []int64{7, 200, 500_000, 1_000_000}
		i := inspectorOf(h)
		var seen []holdfast.TaskID
		f := store.Filter{Payload: []store.PayloadTerm{{Path: []string{"a"}, Value: "b"}}}
		for calls := 0; ; calls++ {
			began := time.Now()
			page, err := i.List(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 3*scanLimit {
				t.Errorf("a call took %s", took)
			}
			for _, task := range page.Tasks {
				seen = append(seen, task.ID)
			}
			if page.Next == 0 {
				break
			}
			if f.Before != 0 && page.Next >= f.Before || calls > 100 {
				t.Fatalf("no progress: from %d to %d", f.Before, page.Next)
			}
			f.Before = page.Next
		}
		if !slices.Equal(seen, []holdfast.TaskID{1_000_000, 500_000, 200, 7}) || h.cancelled == 0 {
			t.Errorf("seen %v, %d statements cancelled", seen, h.cancelled)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := i.List(ctx, f); err == nil {
			t.Error("a list without time returned no error")
		}
	})
}
