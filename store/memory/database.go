package memory

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/internal/ordered"
	"github.com/holdfastq/holdfast/store"
)

// database holds all stored rows. Values that rows point to are replaced, never changed. Therefore a copy of the rows
// is a copy of everything.
type database struct {
	tasks         []Task // by id, like entries, workers and cancellations
	kept          []keptKey
	entries       []OutboxEntry
	workers       []Worker
	cancellations []Cancellation
	queues        []Queue // by name
	turns         []turn
	audit         []store.AuditEntry // by id; rows are never changed, so copies may share them
	counts        []count            // in no order
	deltas        []count            // not yet added to counts
	noted         time.Time          // the time that CorrectTimes recorded
	operations    []Operation        // by id
	plans         []store.Plan       // by id
	planItems     []planItem         // in no order; the slice is replaced, never changed
	gates         []gate             // by id; the slice is replaced, never changed
	permits       []Permit           // by task; the slice is replaced, never changed
	buckets       []bucket           // by limit and name
	schemas       []store.TypeSchema // by type, without null schemas; the slice is replaced, never changed
	settings      map[string]string  // by key; the map is replaced, never changed
	secrets       map[string]string  // by name; the map is replaced, never changed
	last          sequences
	topics        topics
	keys          []orderedKey    // the keys with open ordered tasks, in no order
	checks        []string        // the keys to check; the slice is replaced, never changed
	lostResume    holdfast.TaskID // the next scan for lost tickets starts after this task
	verified      []verifyResult

	settingsVersion int64 // see store.StoredSettings
}

// sequences are the ids that were assigned last.
type sequences struct {
	task, entry, worker, cancellation, audit, operation, gate, plan int64
}

// keptKey is a unique key that is taken until a time, also if its task is deleted before.
type keptKey struct {
	key              string
	task             holdfast.TaskID
	createdAt, until time.Time
}

// Task is a stored task with its payload.
type Task struct {
	holdfast.Task
	// DueAt is set if and only if the task is ready and has neither a ticket nor an outbox entry. It is the time at
	// which to publish the ticket. It is later than NextRunAt if the queue refused an earlier ticket.
	DueAt       time.Time
	TicketedAt  time.Time // set if and only if the task is ready and has a ticket or an outbox entry
	Requeued    bool      // see store.Due
	Parks       int       // how often it was parked
	ParkAttempt int       // the attempt that Parks counts for
	Attempts    []holdfast.Attempt
	// Gate is the gate at which the task was blocked last, until that gate releases it. The task may have left the gate
	// since then; see Blocked.
	Gate        store.ID
	GateAttempt int    // the attempt at which it was blocked
	Bucket      string // the bucket in which the limit counts it, if the gate is a limit
	BlockedAt   time.Time
	Order       ordered.Mark // the mark of an ordered task
	Waits       bool         // the task waits for its turn among the ordered tasks of its key
	Data        []store.Datum

	lock *transaction
}

// Blocked reports whether the task is blocked at a gate.
func (t *Task) Blocked() bool {
	return t.DueAt.Equal(store.BlockedUntil) && t.Gate != 0 && t.GateAttempt == t.Attempt
}

// Ticketed reports whether the task has a published ticket or an outbox entry.
func (t *Task) Ticketed() bool { return !t.TicketedAt.IsZero() }

// runnable reports whether the task is ready, its time has come, and it is not blocked. A later DueAt only postpones
// the next attempt to publish its ticket.
func (t *Task) runnable(now time.Time) bool {
	return t.State == holdfast.Ready &&
		(t.DueAt.IsZero() || !t.DueAt.After(now) || !t.NextRunAt.After(now) && t.DueAt.Before(store.BlockedUntil))
}

// unticket makes a ticketed task due at once.
func (t *Task) unticket(now time.Time) {
	t.DueAt, t.TicketedAt = earlier(t.NextRunAt, now), time.Time{}
}

// bare returns the task without its payload.
func (t *Task) bare() holdfast.Task {
	task := t.Task
	task.Doomed = t.Order == ordered.Doomed
	task.Payload = nil
	return task
}

// full returns the task with a copy of its payload.
func (t *Task) full() holdfast.Task {
	task := t.Task
	task.Doomed = t.Order == ordered.Doomed
	task.Payload = slices.Clone(t.Payload)
	return task
}

// claimed returns the task as a claim does.
func (t *Task) claimed() *holdfast.Task {
	task := t.full()
	task.Batch = 0
	return &task
}

// OutboxEntry is a stored outbox entry.
type OutboxEntry struct {
	store.OutboxEntry
	CreatedAt    time.Time
	PublishAfter time.Time

	lock *transaction
}

// Worker is a stored worker.
type Worker struct {
	store.Worker
	Swept   bool // the worker has ended, and a sweep has found none of its tasks
	Present bool // see store.Renewal
	Early   bool // FenceMissing has fenced it

	process store.Process
}

// Cancellation notifies a worker that one of its running tasks was cancelled.
type Cancellation struct {
	ID     int64
	Worker holdfast.WorkerID
	message.Ticket
}

// Queue is a stored queue.
type Queue struct {
	Name           string
	DrainedThrough time.Time // when the newest sentinel that has come out was sent
	DrainedAt      time.Time // when the newest sentinel came out
	HeldThrough    time.Time // the send time of an earlier sentinel, kept until a newer sentinel makes it a proof
	HeldAt         time.Time
	ProvedThrough  time.Time // HeldThrough of the newest proof
	SentAt         time.Time // when the newest sentinel was sent

}

type turn struct {
	duty    string
	takenAt time.Time
}

// copyTo copies d into to, and reuses the memory of to.
func (d *database) copyTo(to *database) {
	tasks, entries, workers := append(to.tasks[:0], d.tasks...), append(to.entries[:0], d.entries...), append(to.workers[:0], d.workers...)
	cancellations, queues, turns := append(to.cancellations[:0], d.cancellations...), append(to.queues[:0], d.queues...), append(to.turns[:0], d.turns...)
	counts, deltas := append(to.counts[:0], d.counts...), append(to.deltas[:0], d.deltas...)
	keys, kept := append(to.keys[:0], d.keys...), append(to.kept[:0], d.kept...)
	operations, buckets, plans := append(to.operations[:0], d.operations...), append(to.buckets[:0], d.buckets...), append(to.plans[:0], d.plans...)
	topics := to.topics
	d.topics.copyTo(&topics)
	*to = *d
	to.topics = topics
	to.verified = slices.Clone(d.verified)
	to.keys, to.kept = keys, kept
	to.counts, to.deltas, to.buckets = counts, deltas, buckets
	to.tasks, to.entries, to.workers, to.cancellations, to.queues, to.turns, to.operations, to.plans = tasks, entries, workers, cancellations, queues, turns, operations, plans
}

// task returns a row, or nil if there is none. The pointer is valid until a task is stored or deleted.
func (d *database) task(id holdfast.TaskID) *Task {
	if i, ok := position(d.tasks, int64(id), func(t *Task) int64 { return int64(t.ID) }); ok {
		return &d.tasks[i]
	}
	return nil
}

func (d *database) worker(id holdfast.WorkerID) *Worker {
	if i, ok := position(d.workers, int64(id), func(r *Worker) int64 { return int64(r.ID) }); ok {
		return &d.workers[i]
	}
	return nil
}

func (d *database) live(id holdfast.WorkerID) bool {
	worker := d.worker(id)
	return worker != nil && worker.State == store.WorkerLive
}

func (d *database) entry(id int64) *OutboxEntry {
	if i, ok := position(d.entries, id, func(r *OutboxEntry) int64 { return r.ID }); ok {
		return &d.entries[i]
	}
	return nil
}

// position returns the index of the row with an id. Usually no row was deleted and no id was skipped, so that the first
// guess is right.
func position[Row any](rows []Row, id int64, idOf func(*Row) int64) (int, bool) {
	if len(rows) == 0 {
		return 0, false
	}
	if guess := id - idOf(&rows[0]); guess >= 0 && guess < int64(len(rows)) && idOf(&rows[guess]) == id {
		return int(guess), true
	}
	low, high := 0, len(rows)
	for low < high {
		if middle := (low + high) / 2; idOf(&rows[middle]) < id {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, low < len(rows) && idOf(&rows[low]) == id
}

// addQueues stores the queues that are not stored yet.
func (d *database) addQueues(names []string) {
	for _, name := range names {
		i, known := d.findQueue(name)
		if !known {
			d.queues = slices.Insert(d.queues, i, Queue{Name: name})
		}
	}
}

func (d *database) findQueue(name string) (int, bool) {
	return slices.BinarySearchFunc(d.queues, name, func(l Queue, name string) int { return cmp.Compare(l.Name, name) })
}

// ticketQueue returns the name under which sentinels prove the ticket of a task lost. The ticket of a requeued task may
// wait in a type queue, if there is one.
func (d *database) ticketQueue(task *Task) string {
	if task.Requeued {
		name := holdfast.TypeQueue(task.Subqueue(), task.Type)
		if _, known := d.findQueue(name); known {
			return name
		}
	}
	return task.Subqueue()
}

func (d *database) queueNames() []string {
	names := make([]string, len(d.queues))
	for i := range d.queues {
		names[i] = d.queues[i].Name
	}
	return names
}

// Durations are stored in whole microseconds. A fraction is rounded up, so that a positive duration stays positive. The
// two functions add the fraction separately, because rounding up the longest duration would overflow.

func later(t time.Time, d time.Duration) time.Time {
	whole := d.Truncate(time.Microsecond)
	if t = t.Add(whole); d > whole {
		t = t.Add(time.Microsecond)
	}
	return t
}

func ago(t time.Time, d time.Duration) time.Time {
	whole := d.Truncate(time.Microsecond)
	if t = t.Add(-whole); d > whole {
		t = t.Add(-time.Microsecond)
	}
	return t
}

// ahead reports whether one of the times lies more than two seconds in the future. Such a time is from a clock that was
// later set back.
func ahead(now time.Time, times ...time.Time) bool {
	return slices.ContainsFunc(times, func(t time.Time) bool { return t.After(now.Add(2 * time.Second)) })
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// clean returns text as a column can store it: valid UTF-8 without NUL.
func clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
