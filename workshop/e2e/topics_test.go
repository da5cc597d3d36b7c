package e2e

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// A topic with many tasks does not keep the tasks of other topics from starting. All tasks run although processes are
// killed. The cursors never pass a task that has not been delivered. A third of the tasks fails once.
func TestTopicsSurviveKills(t *testing.T) { onServersFirst(t, topicsSurviveKills) }

func topicsSurviveKills(t *testing.T, w *world) {
	w.lease = shortLease()
	const flood, topics, each = 200, 10, 8
	tg := newTarget(t, func(c call) int {
		time.Sleep(2 * time.Millisecond)
		if c.attempt == 1 && c.task%3 == 0 {
			return http.StatusInternalServerError
		}
		return http.StatusOK
	})
	if !w.embedded {
		w.serve(t, nil, "--name", "first")
	}
	victim := w.serve(t, nil, "--name", "victim")
	p := w.Producer(nil)
	defer p.Close()
	var last holdfast.TaskID
	enqueue := func(topic string, n int) {
		t.Helper()
		tasks := make([]holdfast.NewTask, n)
		for i := range tasks {
			tasks[i] = httpTask(tg)
			tasks[i].Topic = topic
		}
		results, err := p.EnqueueMany(t.Context(), tasks)
		if err != nil {
			t.Fatal(err)
		}
		last = results[n-1].ID
	}
	enqueue("flood", flood)
	for i := range topics {
		enqueue(fmt.Sprint("topic ", i), each)
	}
	const all = flood + topics*each
	checkDone := func() {
		t.Helper()
		progress, err := w.Store.TopicProgress(t.Context(), "flood")
		if err != nil {
			t.Fatal(err)
		}
		calls, _ := tg.snapshot()
		delivered := byTask(calls)
		for id := last - all + 1; id <= min(progress.Done, last-topics*each); id++ {
			if len(delivered[id]) == 0 {
				t.Errorf("the cursor is at %s, and task %s was never delivered", progress.Done, id)
			}
		}
	}
	for _, part := range []int{3, 2} {
		tg.await(t, "a part of the tasks has run", func(calls []call) bool { return len(byTask(calls)) > all/(part+1) })
		victim.signal(syscall.SIGKILL)
		checkDone()
		victim = w.serve(t, nil, "--name", "victim")
	}
	w.awaitCount(t, holdfast.Done, all)
	var progress store.TopicProgress
	poll(t, func() string {
		return fmt.Sprintf("all tasks are done, and the progress is %+v, want both cursors at %s", progress, last)
	},
		func(ctx context.Context) bool {
			var err error
			progress, err = w.Store.TopicProgress(ctx, "flood")
			return err == nil && progress.Done >= last && progress.Scanned >= last
		})
}
