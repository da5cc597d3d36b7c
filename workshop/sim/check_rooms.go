package sim

import (
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store/memory"
)

// rooms checks that permits put no more tickets into a queue than its workers can soon start.
type rooms struct {
	check *checker
	// inFlight has the tasks with permits that ran or had tickets after the previous step, and their queues.
	inFlight map[holdfast.TaskID]string
	ended    map[string][]time.Time // when such tasks ended or left the queue
}

func newRooms(c *checker) *rooms {
	return &rooms{check: c, inFlight: make(map[holdfast.TaskID]string), ended: make(map[string][]time.Time)}
}

// counts reports whether a task takes up room: it has a permit or a slot, and runs or may start now.
func (r *rooms) counts(t *memory.Task) bool {
	return t.State == holdfast.Running || t.State == holdfast.Ready && !t.DueAt.After(r.check.world.clock.now())
}

// held returns the numbers of tasks that take up room: those with permits by queue, and those with topics by topic.
func (r *rooms) held() (permits map[string]int, topics map[string]map[string]int) {
	w := r.check.world
	permits, topics = make(map[string]int), make(map[string]map[string]int)
	permitted := make(map[holdfast.TaskID]bool)
	for _, p := range w.store.Permits() {
		permitted[p.Task] = true
	}
	tasks := w.store.Tasks()
	for i := range tasks {
		t := &tasks[i]
		if !r.counts(t) {
			continue
		}
		if permitted[t.ID] {
			permits[t.Queue]++
		}
		if t.Topic != "" && (permitted[t.ID] || w.store.HasSlot(t.ID)) {
			if topics[t.Queue] == nil {
				topics[t.Queue] = make(map[string]int)
			}
			topics[t.Queue][t.Topic]++
		}
	}
	return permits, topics
}

// soon returns an upper bound for the number of tasks that may have permits beyond the number of executors. The store
// computes it from a rate, over up to five times the period of the measurement.
func (r *rooms) soon(queue string) int {
	r.ended[queue] = slices.DeleteFunc(r.ended[queue], func(at time.Time) bool { return time.Since(at) > recently })
	return 10*len(r.ended[queue]) + 2
}

// admitted checks a task that has just got permits.
func (r *rooms) admitted(t *memory.Task) {
	executors, soon := r.check.world.store.Executors(t.Queue), r.soon(t.Queue)
	permits, topics := r.held()
	if n := permits[t.Queue]; n > executors+soon {
		r.check.fail("queue %s has %d executors, at most %d of its tasks start soon, and %d have permits", t.Queue, executors, soon, n)
	}
	if n, most := topics[t.Queue][t.Topic], max(1, max(executors, soon)-max(1, executors/8)); t.Topic != "" && n > most {
		r.check.fail("topic %s has %d slots and permits in queue %s with %d executors, want at most %d", t.Topic, n, t.Queue, executors, most)
	}
}

// letStart reports whether the queue and the topic of a blocked task surely have room for it.
func (r *rooms) letStart(t *memory.Task) bool {
	executors := r.check.world.store.Executors(t.Queue)
	permits, topics := r.held()
	return permits[t.Queue] < executors && (t.Topic == "" || topics[t.Queue][t.Topic] < max(1, executors/2))
}

// afterStep notes the tasks that have ended.
func (r *rooms) afterStep() {
	w := r.check.world
	if len(w.plan.Limits)+len(w.plan.Targets) == 0 {
		return
	}
	for id, queue := range r.inFlight {
		if t := w.store.Task(id); t == nil || !r.counts(t) || t.Queue != queue {
			r.ended[queue] = append(r.ended[queue], time.Now())
			delete(r.inFlight, id)
		}
	}
	for _, p := range w.store.Permits() {
		if t := w.store.Task(p.Task); t != nil && r.counts(t) {
			r.inFlight[p.Task] = t.Queue
		}
	}
}
