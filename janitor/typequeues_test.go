package janitor

import (
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// A janitor reads a type queue only while no live worker has a handler. It makes the tasks of its tickets due, so that
// the workers of the queue get the tickets.
func TestTypeQueuesWithoutAWorkerAreRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	typeQueue := holdfast.TypeQueue(queue, kind)
	info := store.WorkerInfo{Name: "handler", Concurrency: 1, Queues: []string{queue}, Types: []string{kind}}
	worker, err := w.store.RegisterWorker(t.Context(), info, time.Hour)
	w.must(err)
	w.must(w.store.AddQueues(t.Context(), []string{typeQueue}))
	w.must(w.topology.Declare(t.Context(), w.broker, []string{typeQueue}))
	list := w.ticketed(3)
	w.must(w.store.PassedOn(t.Context(), list))
	w.send(w.topology.Main(typeQueue), tickets(list[:2]...))
	w.send(w.topology.Requeue(typeQueue), tickets(list[2]))
	j := w.janitor(nil)
	w.run(j)
	requeued := w.listen(w.requeue())
	w.eventually("the janitor knows the type queue", func() bool { return j.knownTypeQueues.Load() != nil && len(*j.knownTypeQueues.Load()) == 1 })
	if handlers, err := w.store.Handlers(t.Context()); err != nil || !handled(handlers, typeQueue) {
		t.Errorf("the handlers are %+v, %v", handlers, err)
	}
	for _, ticket := range list {
		if !w.position(ticket).Ticketed {
			t.Errorf("the ticket of task %s was replaced while a worker handles its type", ticket.Task)
		}
	}
	w.must(w.store.DeregisterWorker(t.Context(), worker, true))
	w.sameTickets("the requeue queue has", []message.Ticket{requeued.ticket(), requeued.ticket(), requeued.ticket()}, list)
}
