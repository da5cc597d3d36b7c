package simstore

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// database is all that is stored. What its rows point to is never changed, only replaced, so that a
// copy of the rows is a copy of everything.
type database struct {
	tasks         []Task    // by id, as are the next three
	receipts      []Receipt //
	runs          []Run
	cancellations []Cancellation
	lanes         []Lane // by name
	turns         []turn
	noted         time.Time // by CorrectTimes
	last          sequences
	lostResume    holdfast.TaskID // behind which the next look for lost tickets begins

	generation int       // how often the tables were made
	migratedAt time.Time // zero if there are no tables
}

// sequences are the ids that were given out last.
type sequences struct {
	task, receipt, run, cancellation int64
}

// Task is a stored task with its payload.
type Task struct {
	holdfast.Task
	// DueAt is set exactly while the task is ready and has neither a ticket nor a receipt. It is when to publish the
	// ticket, which is later than NextRunAt if the queue refused it.
	DueAt       time.Time
	TicketedAt  time.Time // set exactly while it is ready and has one of the two
	Again       bool      // see store.Due
	Parks       int       // how often it was parked
	ParkAttempt int       // at that attempt
	Attempts    []holdfast.Attempt

	lock *transaction
}

// Ticketed reports whether nothing else will publish a ticket: one was published, or a receipt stands for it.
func (t *Task) Ticketed() bool { return !t.TicketedAt.IsZero() }

// arrived reports whether the time of a ready task has come. A DueAt that is later only postpones the next try to publish.
func (t *Task) arrived(now time.Time) bool {
	return t.State == holdfast.Ready && (t.DueAt.IsZero() || !t.DueAt.After(now) || !t.NextRunAt.After(now))
}

// unticket makes a ticketed task due at once.
func (t *Task) unticket(now time.Time) {
	t.DueAt, t.TicketedAt = earlier(t.NextRunAt, now), time.Time{}
}

// bare is the task without its payload, full with a copy of it.
func (t *Task) bare() holdfast.Task {
	task := t.Task
	task.Payload = nil
	return task
}

func (t *Task) full() holdfast.Task {
	task := t.Task
	task.Payload = slices.Clone(t.Payload)
	return task
}

// Receipt is a stored receipt.
type Receipt struct {
	store.Receipt
	CreatedAt    time.Time
	PublishAfter time.Time

	lock *transaction
}

// Run is a stored run.
type Run struct {
	store.Run
	Swept bool // it is over and a look at all tasks found none of its own
	Shown bool // see store.Renewal
	Early bool // it was fenced by FenceAbsent

	process store.Process
}

// by reports whether info can be what the run was opened with.
func (r *Run) by(info store.RunInfo) bool {
	return info.Name == "" || clean(info.Name) == r.Name && clean(info.Host) == r.Host && info.PID == r.PID
}

// Cancellation is word for a run that a task it runs was cancelled.
type Cancellation struct {
	ID  int64
	Run holdfast.RunID
	message.Ticket
}

// Lane is what is stored of a lane.
type Lane struct {
	Name           string
	DrainedThrough time.Time // when the newest sentinel that came out had been sent
	DrainedAt      time.Time // when it came out
	HeldThrough    time.Time // the same of an older one, kept until another one makes it a proof
	HeldAt         time.Time
	ProvedThrough  time.Time // HeldThrough of the newest proof
	SentAt         time.Time // of the newest sentinel
}

type turn struct {
	duty    string
	takenAt time.Time
}

// migrate makes the tables.
func (d *database) migrate(now time.Time) {
	*d = database{generation: d.generation + 1, migratedAt: now}
	d.addLanes([]string{holdfast.DefaultLane})
}

// copyTo makes to the same as d. It uses the room that to has.
func (d *database) copyTo(to *database) {
	tasks, receipts, runs := append(to.tasks[:0], d.tasks...), append(to.receipts[:0], d.receipts...), append(to.runs[:0], d.runs...)
	cancellations, lanes, turns := append(to.cancellations[:0], d.cancellations...), append(to.lanes[:0], d.lanes...), append(to.turns[:0], d.turns...)
	*to = *d
	to.tasks, to.receipts, to.runs, to.cancellations, to.lanes, to.turns = tasks, receipts, runs, cancellations, lanes, turns
}

// task returns a row that stays where it is until a task is stored or deleted.
func (d *database) task(id holdfast.TaskID) *Task {
	if i, ok := position(d.tasks, int64(id), func(t *Task) int64 { return int64(t.ID) }); ok {
		return &d.tasks[i]
	}
	return nil
}

func (d *database) run(id holdfast.RunID) *Run {
	if i, ok := position(d.runs, int64(id), func(r *Run) int64 { return int64(r.ID) }); ok {
		return &d.runs[i]
	}
	return nil
}

func (d *database) live(id holdfast.RunID) bool {
	run := d.run(id)
	return run != nil && run.State == store.RunLive
}

func (d *database) receipt(id int64) *Receipt {
	if i, ok := position(d.receipts, id, func(r *Receipt) int64 { return r.ID }); ok {
		return &d.receipts[i]
	}
	return nil
}

// position finds a row by its id. Nearly always no row was deleted and none left out, and the first guess is right.
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

// addLanes stores the lanes that are not known yet.
func (d *database) addLanes(names []string) {
	for _, name := range names {
		i, known := d.findLane(name)
		if !known {
			d.lanes = slices.Insert(d.lanes, i, Lane{Name: name})
		}
	}
}

func (d *database) findLane(name string) (int, bool) {
	return slices.BinarySearchFunc(d.lanes, name, func(l Lane, name string) int { return cmp.Compare(l.Name, name) })
}

func (d *database) laneNames() []string {
	names := make([]string, len(d.lanes))
	for i := range d.lanes {
		names[i] = d.lanes[i].Name
	}
	return names
}

// Durations are stored as whole microseconds, rounded up so that a positive one stays so. The sum is taken in
// two steps because the longest duration cannot be rounded up.

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

// ahead reports whether one of the times lies in the future: it is from a clock that was set back since.
func ahead(now time.Time, times ...time.Time) bool {
	return slices.ContainsFunc(times, func(t time.Time) bool { return t.After(now.Add(2 * time.Second)) })
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// clean makes text what a column can hold: valid UTF-8 without NUL.
func clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
