package sqlite_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// While another process inserts tasks into the file with `holdfast enqueue --jsonl`, the owner must be able to renew
// its leases.
func TestRenewDuringInsertsOfAnotherProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "jobs.db")
	s := openAt(t, path)
	s.SetBusyLimit(slow.Patience())
	other := start(t, "insert", path)
	other.expect("stored") // the inserts have begun
	stored := int64(0)
	var group sync.WaitGroup
	group.Go(func() {
		for line, ok := other.line(); ok; line, ok = other.line() {
			if !strings.HasPrefix(line, "stored") {
				t.Errorf("the other process wrote %q", line)
			}
			stored++
		}
	})
	worst := renewals(t, s, 25)
	_ = other.stdin.Close()
	group.Wait()
	t.Logf("the slowest of 25 renewals took %s during %d batches of another process", worst, stored)
	if stored < 1 {
		t.Error("the other process stored nothing meanwhile")
	}
}

// Busy writers in the same process must not delay a renewal for long.
func TestRenewDuringInsertsOfThisProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "jobs.db")
	s, other := openAt(t, path), openAt(t, path)
	s.SetBusyLimit(slow.Patience())
	other.SetBusyLimit(slow.Patience())
	stop := make(chan struct{})
	var group sync.WaitGroup
	for _, writer := range []*sqlite.Store{s, s, other, other} {
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := writer.Insert(t.Context(), newTasks(large), time.Hour); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	worst := renewals(t, s, 25)
	close(stop)
	group.Wait()
	t.Logf("the slowest of 25 renewals took %s during the inserts of four writers", worst)
}

// renewals renews a lease n times, every tenth of a second, and returns the duration of the slowest renewal. A renewal
// fails after the busy limit. A call tries to get the lock at intervals, so on a busy machine it may miss many chances.
func renewals(t *testing.T, s *sqlite.Store, n int) (worst time.Duration) {
	t.Helper()
	worker := registerWorker(t, s)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range n {
		<-tick.C
		began := time.Now()
		if _, err := s.Renew(t.Context(), store.Renewal{Worker: worker, Lease: time.Minute}); err != nil {
			t.Fatal(err)
		}
		worst = max(worst, time.Since(began))
	}
	return worst
}

func TestProcessesClaimEachTaskOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "jobs.db")
	s := openAt(t, path)
	const size = 600
	insert(t, s, size)
	workers := []*process{start(t, "claim", path), start(t, "claim", path), start(t, "claim", path)}
	for _, w := range workers {
		w.expect("ready")
	}
	for _, w := range workers {
		w.begin()
	}
	owners := map[string]int{}
	for i, w := range workers {
		for line, ok := w.line(); ok; line, ok = w.line() {
			id, claimed := strings.CutPrefix(line, "claimed ")
			if before, taken := owners[id]; !claimed || taken {
				t.Fatalf("process %d wrote %q; process %d has the task", i, line, before)
			}
			owners[id] = i
		}
	}
	if len(owners) != size {
		t.Errorf("%d of %d tasks were claimed", len(owners), size)
	}
}

func TestProcessesStoreAKeyOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "jobs.db")
	s := openAt(t, path)
	producers := []*process{start(t, "unique", path), start(t, "unique", path), start(t, "unique", path)}
	for _, p := range producers {
		p.expect("ready")
	}
	for _, p := range producers {
		p.begin()
	}
	type answers struct {
		id     holdfast.TaskID
		stored int
	}
	byKey := map[string]answers{}
	for _, p := range producers {
		for range 200 {
			words := p.expect("key")
			var task store.InsertedTask
			if err := json.Unmarshal([]byte(words[1]), &task); err != nil {
				t.Fatal(err)
			}
			a, known := byKey[words[0]]
			if known && a.id != task.ID {
				t.Errorf("key %s belongs to task %s and to task %s", words[0], a.id, task.ID)
			}
			a.id = task.ID
			if !task.Duplicate {
				a.stored++
			}
			byKey[words[0]] = a
		}
	}
	for key, a := range byKey {
		if a.stored != 1 {
			t.Errorf("key %s was stored %d times", key, a.stored)
		}
	}
	if n := number(t, s, "select count(*) from tasks"); n != 200 || len(byKey) != 200 {
		t.Errorf("there are %d tasks and %d keys, want 200", n, len(byKey))
	}
}

func TestProcessesMigrateOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new", "jobs.db")
	var processes []*process
	for range 4 {
		processes = append(processes, start(t, "migrate", path))
	}
	migrated := 0
	for _, p := range processes {
		if p.expect("applied")[0] != "0" {
			migrated++
		}
	}
	if migrated != 1 {
		t.Errorf("%d of 4 processes migrated", migrated)
	}
	if err := connect(t, path).CheckSchema(t.Context()); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(path + ".migrate*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// After kill -9 during an insert, all accepted tasks are stored.
func TestKilledProcessLosesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "jobs.db")
	s := openAt(t, path)
	for range 3 {
		p := start(t, "insert", path)
		last := parse(t, p.expect("stored")[0])
		for range 3 {
			last = parse(t, p.expect("stored")[0])
		}
		for _, line := range p.kill() {
			if id, ok := strings.CutPrefix(line, "stored "); ok {
				last = max(last, parse(t, id)) // a killed process may have written half of a line
			}
		}
		if n := number(t, s, "select max(id) from tasks"); n < last {
			t.Errorf("task %d was accepted, the last one is %d", last, n)
		}
		if n := number(t, s, "select count(*) from tasks") % large; n != 0 {
			t.Errorf("a part of a batch was stored: %d tasks", n)
		}
		insert(t, s, large) // the killed process has left no lock
	}
	checkIntegrity(t, s)
}

// checkIntegrity checks the file, and conditions that the schema cannot express.
func checkIntegrity(t *testing.T, s *sqlite.Store) {
	t.Helper()
	if err := s.CheckIntegrity(t.Context()); err != nil {
		t.Error(err)
	}
	for what, statement := range map[string]string{
		"outbox entries name tasks that do not exist": "select count(*) from outbox o, json_each(o.task_ids) e where e.value not in (select id from tasks)",
		"tickets without an outbox entry":             "select count(*) from tasks where ticketed_at is not null and id not in (select e.value from outbox o, json_each(o.task_ids) e)",
	} {
		if n := number(t, s, statement); n > 0 {
			t.Errorf("%s: %d", what, n)
		}
	}
}
