package sqlite_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
)

// What another process has written is seen at the next question, whatever the answer was before and however
// often it was given from memory; also right after a checkpoint, which starts the write-ahead log anew.
func TestAnswersFromMemoryAreNeverOld(t *testing.T) {
	t.Parallel()
	served, other := openTwo(t)
	receipts := func() (found int) {
		_, err := served.DispatchReceipts(t.Context(), 10, func(_ context.Context, list []store.Receipt) []bool {
			found = len(list)
			return make([]bool, len(list))
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	due := func() (found int) {
		_, err := served.DispatchDue(t.Context(), 10, func(_ context.Context, list []store.Due) []bool {
			found = len(list)
			return make([]bool, len(list))
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for round := range 20 {
		asked := 0
		for deadline := time.Now().Add(time.Duration(40+round*5) * time.Millisecond); time.Now().Before(deadline); asked++ {
			if n := receipts() + due(); n != 0 {
				t.Fatalf("round %d: %d rows where there are none", round, n)
			}
		}
		if round%3 == 0 {
			change(t, other, "pragma wal_checkpoint(truncate)")
		}
		inserted, err := other.Insert(t.Context(), newTasks(1), 0)
		if err != nil {
			t.Fatal(err)
		}
		if n := receipts(); n != 1 {
			t.Fatalf("round %d, after %d questions: the receipt is not seen", round, asked)
		}
		if err := other.Discharge(t.Context(), []int64{inserted.Receipts[0].ID}); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Unticket(t.Context(), []holdfast.Ticket{{Task: inserted.Tasks[0].ID, Attempt: 1}}); err != nil {
			t.Fatal(err)
		}
		if n := due(); n != 1 {
			t.Fatalf("round %d: the due task is not seen", round)
		}
		change(t, other, "delete from tasks")
	}
}

// An answer from memory ends when its time comes, without anybody writing.
func TestAnswersFromMemoryEnd(t *testing.T) {
	t.Parallel()
	served, other := openTwo(t)
	later := newTasks(1)
	later[0].Delay = 400 * time.Millisecond
	if _, err := other.Insert(t.Context(), later, time.Hour); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for found := 0; found == 0; {
		result, err := served.DispatchDue(t.Context(), 10, func(_ context.Context, list []store.Due) []bool {
			found = len(list)
			return []bool{true}
		})
		switch {
		case err != nil:
			t.Fatal(err)
		case found == 0 && (result.Next <= 0 || result.Next > later[0].Delay):
			t.Fatalf("the next task is due in %s", result.Next)
		case time.Since(began) > 10*time.Second:
			t.Fatal("the task does not become due")
		}
	}
	if early := later[0].Delay - time.Since(began); early > 50*time.Millisecond {
		t.Errorf("the task was due %s early", early)
	}
}

// On a file system whose times are of whole seconds, and where a checkpoint has left the write-ahead log at a size that
// does not change any more, a commit can leave no trace on it. Then an answer is a second old at most.
func TestAnswersFromMemoryOnCoarseFileSystems(t *testing.T) {
	t.Parallel()
	served, other := openTwo(t)
	long := time.Now().Add(-time.Minute).Truncate(time.Minute)
	coarse := func() os.FileInfo {
		if err := os.Chtimes(served.Path()+"-wal", long, long); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(served.Path() + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	insert(t, other, 3000)
	change(t, other, "pragma wal_checkpoint(restart)") // the log starts over, and keeps its size
	insert(t, other, 1)
	receipts := func() (found int) {
		_, err := served.DispatchReceipts(t.Context(), 10, func(_ context.Context, list []store.Receipt) []bool {
			found = len(list)
			return make([]bool, len(list))
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	before := coarse()
	if n := receipts(); n != 0 {
		t.Fatalf("%d receipts are ripe", n)
	}
	if _, err := other.Insert(t.Context(), newTasks(1), 0); err != nil {
		t.Fatal(err)
	}
	after := coarse()
	if before.Size() != after.Size() {
		t.Fatalf("the log has grown from %d to %d bytes: nothing is shown", before.Size(), after.Size())
	}
	began := time.Now()
	for receipts() == 0 {
		if time.Since(began) > 20*time.Second {
			t.Fatal("the receipt is not seen")
		}
	}
	if late := time.Since(began); late > 3*time.Second {
		t.Errorf("the receipt was seen after %s", late)
	}
}

// openTwo opens one file twice, as two processes would.
func openTwo(t *testing.T) (one, two *sqlite.Store) {
	t.Helper()
	one = open(t)
	two, err := sqlite.Open(t.Context(), sqlite.Options{Path: one.Path()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { two.Close() })
	return one, two
}
