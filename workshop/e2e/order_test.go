package e2e

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// Ordered tasks of each key run one after the other, although attempts fail and workers are killed. In the end, every
// task is done.
func TestOrderSurvivesKills(t *testing.T) { onServersFirst(t, orderSurvivesKills) }

func orderSurvivesKills(t *testing.T, w *world) {
	w.lease = shortLease()
	const keys = 15
	each := slow.Pick(8, 20)
	tg := newTarget(t, func(c call) int {
		if c.attempt == 1 && c.task%5 == 0 {
			return http.StatusInternalServerError
		}
		return http.StatusOK
	})
	if !w.embedded {
		w.serve(t, nil, "--name", "first")
	}
	victim := w.serve(t, nil, "--name", "victim")
	keyOf := make(map[holdfast.TaskID]string)
	p := w.Producer(nil)
	defer p.Close()
	for range each {
		tasks := make([]holdfast.NewTask, keys)
		for i := range tasks {
			tasks[i] = httpTask(tg)
			tasks[i].Key, tasks[i].Ordered = fmt.Sprint("key ", i), true
		}
		results, err := p.EnqueueMany(t.Context(), tasks)
		if err != nil {
			t.Fatal(err)
		}
		for i, result := range results {
			keyOf[result.ID] = tasks[i].Key
		}
	}
	for _, part := range []int{3, 2} {
		tg.await(t, "a part of the tasks has run", func(calls []call) bool { return len(byTask(calls)) > keys*each/(part+1) })
		victim.signal(syscall.SIGKILL)
		victim = w.serve(t, nil, "--name", "victim")
	}
	w.awaitCount(t, holdfast.Done, int64(keys*each))

	calls, _ := tg.snapshot()
	latest := make(map[string]call) // by key
	for _, c := range calls {
		before, key := latest[keyOf[c.task]], keyOf[c.task]
		if c.task < before.task {
			t.Errorf("task %s of %s called the target after task %s", c.task, key, before.task)
		}
		if c.task != before.task && !before.end.IsZero() && c.begin.Before(before.end) {
			t.Errorf("task %s of %s called the target before the call of task %s ended", c.task, key, before.task)
		}
		latest[key] = c
	}
}
