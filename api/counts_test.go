package api_test

import (
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// The counts are those of the whole system, and each queue has one entry with all its priorities.
func TestCounts(t *testing.T) {
	everywhere(t, func(w *world) {
		w.get("/api/v1/counts").want("no task", 200, "at", some{}, "tasks.ready", 0, "workers.live", 0, "queues.1", nil)
		w.Enqueue(holdfast.NewTask{Type: "mail"}, holdfast.NewTask{Type: "mail", Priority: holdfast.PriorityHigh},
			holdfast.NewTask{Type: "mail", Delay: time.Hour}, holdfast.NewTask{Type: "scan", Queue: "scans"})
		w.Dead(holdfast.NewTask{Type: "mail"})
		w.Runs(w.Enqueue(holdfast.NewTask{Type: "mail"})[0])
		w.Settle(w.Enqueue(holdfast.NewTask{Type: "mail"})[0], holdfast.Returned(nil), holdfast.DefaultPolicy())
		pause, err := w.Store.Pause(w.Context(), store.Actor{Name: "ada"}, store.PauseFor(store.Subject{Queue: "scans"}, 0))
		if err != nil {
			w.Fatal(err)
		}
		counts := w.get("/api/v1/counts")
		counts.want("counts", 200,
			"tasks.ready", 4, "tasks.running", 1, "tasks.done", 1, "tasks.dead", 1, "tasks.archived", 0, "due", 3, "blocked", 0, "parked", 0,
			"oldest_due", some{}, "workers.live", 3, "workers.stuck", 0, "executors.total", 3, "executors.free", 3, "queues.0.queue", "default", "queues.0.tasks.ready", 3,
			"queues.0.tasks.running", 1, "queues.0.tasks.done", 1, "queues.0.tasks.dead", 1, "queues.0.due", 2, "queues.0.paused", nil,
			"queues.1.queue", "scans", "queues.1.tasks.ready", 1, "queues.1.paused.id", pause.After.ID.String(), "queues.2", nil)
	})
}
