package e2e

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/store"
)

// A store with tasks is refused, and nothing has happened. With --into-existing the tasks go there under new
// ids, while others insert and a worker works, and each is done once.
func TestMoveIntoAStoreThatIsInUse(t *testing.T) {
	t.Parallel()
	servers, file := newWorld(t), newFile(t)
	file.fill(t, 2000)
	servers.enqueue(t, 7, holdfast.NewTask{Type: "other"})
	_, problems, code := servers.migrateBackend(t, file)
	if code != 4 || !strings.Contains(problems, "holds 7 tasks already; add --into-existing") {
		t.Fatalf("exit code %d: %s", code, problems)
	}
	file.enqueue(t, 1, holdfast.NewTask{Type: "fill"})

	var mu sync.Mutex
	runs := map[holdfast.TaskID]int{}
	handle := consumer.HandlerFunc(func(_ context.Context, task holdfast.Task) error {
		mu.Lock()
		defer mu.Unlock()
		runs[task.ID]++
		return nil
	})
	stop := servers.keepInserting(t, "other")
	servers.runJanitor(t, servers.Backend, nil)
	servers.runWorker(t, servers.Backend, nil, map[string]consumer.Handler{"other": handle, "fill": handle})
	before := file.read(t)
	out, problems, code := servers.migrateBackend(t, file, "--into-existing")
	inserted := 7 + stop()
	if code != 0 || !strings.Contains(problems, "was added to every id") {
		t.Fatalf("exit code %d: %s%s", code, out, problems)
	}
	t.Log(problems)
	waiting := int64(0)
	for _, p := range before {
		if p.State == holdfast.Ready && p.NextRunAt.Before(time.Now()) {
			waiting++
		}
	}
	servers.awaitCount(t, 60*time.Second, holdfast.Done, waiting+int64(inserted))
	mu.Lock()
	defer mu.Unlock()
	if int64(len(runs)) != waiting+int64(inserted) {
		t.Errorf("%d tasks ran, want %d", len(runs), waiting+int64(inserted))
	}
	for id, n := range runs {
		if n > 1 {
			t.Errorf("task %s ran %d times", id, n)
		}
	}
}

// keepInserting inserts tasks until stop is called, which returns how many.
func (w *world) keepInserting(t *testing.T, kind string) (stop func() int) {
	inserted, end := 0, make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		p := w.Producer(nil)
		defer p.Close()
		for {
			if _, err := p.EnqueueMany(t.Context(), make10(kind)); err != nil {
				t.Error(err)
				return
			}
			inserted += 10
			select {
			case <-end:
				return
			default:
			}
		}
	})
	return func() int {
		close(end)
		group.Wait()
		return inserted
	}
}

func make10(kind string) []holdfast.NewTask {
	tasks := make([]holdfast.NewTask, 10)
	for i := range tasks {
		tasks[i].Type = kind
	}
	return tasks
}

// A unique key that is taken stops the move before anything has changed. It can be taken back, or finished
// when the key is free.
func TestMoveMeetsAUniqueKey(t *testing.T) {
	t.Parallel()
	servers, file := newWorld(t), newFile(t)
	file.fill(t, 50)
	holder := servers.enqueue(t, 1, holdfast.NewTask{Type: "other", Unique: "key 3"})[0]
	for range 2 {
		_, problems, code := servers.migrateBackend(t, file, "--into-existing")
		if code != 4 || !strings.Contains(problems, `"key 3"`) || !strings.Contains(problems, "task "+holder.String()+" ") || !strings.Contains(problems, "--undo") {
			t.Fatalf("exit code %d: %s", code, problems)
		}
	}
	if _, _, code := file.run(t, "enqueue", "--type", "fill"); code != 4 {
		t.Errorf("enqueue into a file on its way: exit code %d", code)
	}
	for _, said := range []string{"taken back", "nothing to take back"} {
		if _, problems, code := servers.migrateBackend(t, file, "--undo"); code != 0 || !strings.Contains(problems, said) {
			t.Errorf("undo: exit code %d: %s", code, problems)
		}
	}
	if out, problems, code := file.run(t, "enqueue", "--type", "fill"); code != 0 {
		t.Errorf("enqueue after undo: exit code %d: %s%s", code, out, problems)
	}
	if n := servers.taskCount(t); n != 1 {
		t.Errorf("the servers have %d tasks", n)
	}
	servers.sql(t, "delete from "+servers.schema+".tasks")
	if _, problems, code := servers.migrateBackend(t, file); code != 0 || !strings.Contains(problems, "carried 51 tasks") {
		t.Errorf("exit code %d: %s", code, problems)
	}
}

// What is enqueued into the file while it is carried is carried too, or refused; never lost.
func TestMoveBesideEnqueues(t *testing.T) {
	t.Parallel()
	servers, file := newWorld(t), newFile(t)
	file.fill(t, 3000)
	var mu sync.Mutex
	accepted, refused := map[holdfast.TaskID]bool{}, 0
	begun := make(chan struct{}, 3)
	var group sync.WaitGroup
	for range 3 {
		b := file.connect(t, file.databaseURL, file.amqpURL) // as another process would
		group.Go(func() {
			defer b.Close()
			p := b.Producer(nil)
			defer p.Close()
			for n := 0; ; n++ {
				results, err := p.EnqueueMany(t.Context(), make10("late"))
				mu.Lock()
				for _, r := range results {
					accepted[r.ID] = true
				}
				mu.Unlock()
				if n == 3 {
					begun <- struct{}{}
				}
				if err != nil {
					if !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "migrate-backend again") && !strings.Contains(err.Error(), "were carried") {
						t.Errorf("refused with: %v", err)
					}
					mu.Lock()
					refused++
					mu.Unlock()
					return
				}
			}
		})
	}
	for range 3 {
		<-begun
	}
	if _, problems, code := servers.migrateBackend(t, file); code != 0 {
		t.Fatalf("exit code %d: %s", code, problems)
	}
	group.Wait()
	if _, _, code := file.run(t, "enqueue", "--type", "late"); code != 4 {
		t.Errorf("enqueue afterwards: exit code %d", code)
	}
	counts, err := servers.Store.Count(t.Context(), store.Filter{Type: "late"})
	if err != nil || counts[holdfast.Ready] != int64(len(accepted)) || refused != 3 {
		t.Errorf("%d were accepted, %d callers refused, %v carried, %v", len(accepted), refused, counts, err)
	}
	file.sameRecords(t, servers)
	t.Logf("%d tasks were accepted while the move was starting", len(accepted))
}
