// Package store is the contract of the SQL store, which is the truth about every
// task. Adapters live beside it, one folder a database; package storetest is the
// suite each of them passes.
//
// # Rules every adapter keeps
//
// All methods are safe for concurrent use by many goroutines and processes. All
// times are compared with the database's clock only; durations are given, never
// moments of the caller's clock, except in NewTask.At. A method either does all
// of what it says and commits, or returns an error and has done nothing, unless
// its comment says otherwise; after an error that is an [holdfast.ErrUnavailable]
// the caller cannot know which, and every method may then simply be called
// again. Errors wrap the sentinels of package holdfast; no driver's error type is
// part of the contract. Slices of results are in the order of the slices asked
// about.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
)

// ErrFenced says that a run is no longer live: it was declared dead, or closed.
// Whoever acts for it must stop.
var ErrFenced = errors.New("this run was fenced")

// ErrSchema says that the database's schema is not the one this build needs. Its
// text says whether it is behind or ahead, and what to do.
var ErrSchema = errors.New("schema mismatch")

// Store is everything, joined once for wiring and for the suite. Services ask
// for the roles they need.
type Store interface {
	Inserter
	Leases
	Work
	Fencing
	Dispatch
	Repair
	Desk
	Migrations

	// Close frees the connections. It may be called more than once.
	Close() error
}

// Tx is a caller's own transaction: *sql.Tx, *sqlx.Tx and *sql.Conn fit.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Inserter accepts tasks.
type Inserter interface {
	// Insert stores the tasks with one outbox receipt per lane, in one transaction. The tasks have been validated, and
	// have a lane and max attempts. Tasks due at once count as ticketed, covered by their receipt; later ones are left
	// to DispatchDue and appear in no receipt. Others may publish the receipts once they are older than grace. If
	// another open transaction stores a task with the same unique key, Insert waits for that transaction for at most
	// half a second. Then it returns a *KeyHeldError that names the key; if several keys are held, it returns at most a
	// second later. In a store with one writer at a time, any open transaction that writes delays every Insert, with
	// and without keys.
	Insert(ctx context.Context, tasks []holdfast.NewTask, grace time.Duration) (Inserted, error)
	// InsertTx does the same inside the caller's transaction; it neither commits nor rolls back. The settings of the
	// caller's transaction decide how long it waits for a unique key. After an error the caller must roll back.
	InsertTx(ctx context.Context, tx Tx, tasks []holdfast.NewTask, grace time.Duration) (Inserted, error)
	// Discharge deletes receipts whose tickets the broker has confirmed. Receipts
	// that are gone already are no error.
	Discharge(ctx context.Context, receipts []int64) error
}

// KeyHeldError says that other open transactions hold unique keys of tasks, and that nothing was stored. It is a
// holdfast.ErrUnavailable.
type KeyHeldError struct {
	Keys []string // known to be held; empty if the store could not find them
}

func (e *KeyHeldError) Error() string {
	switch len(e.Keys) {
	case 0:
		return "another open transaction holds one of the unique keys; try again when it has ended"
	case 1:
		return fmt.Sprintf("another open transaction holds the unique key %q; try again when it has ended", e.Keys[0])
	}
	return fmt.Sprintf("other open transactions hold the unique keys %q; try again when they have ended", e.Keys)
}

func (e *KeyHeldError) Unwrap() error { return holdfast.ErrUnavailable }

// Inserted is the answer to Insert.
type Inserted struct {
	Tasks    []InsertedTask // one per task asked for
	Receipts []Receipt
}

// InsertedTask says where a task is.
type InsertedTask struct {
	ID holdfast.TaskID
	// Duplicate means that the unique key was taken: ID is the task that has it and
	// nothing was stored.
	Duplicate bool
}

// Receipt stands for tickets that may still have to be published.
type Receipt struct {
	ID      int64
	Lane    string
	Tickets []holdfast.Ticket
}

// Leases keeps the lives of workers.
type Leases interface {
	// OpenRun starts a run with a lease of the given length and returns its id,
	// which is never reused. The lanes it names are known from then on, so that
	// a janitor declares their queues.
	OpenRun(ctx context.Context, info RunInfo, lease time.Duration) (holdfast.RunID, error)
	// Renew extends the lease to now + r.Lease, stores the cursors, and brings what
	// the run should know. ErrFenced if the run is not live, or is not r.By's.
	Renew(ctx context.Context, r Renewal) (News, error)
	// CloseRun ends a run; the caller has handed everything back, and knows from a renewal that the run is its own.
	// clean says that the run is certain to own no task: each of its claims was answered, and the store has lost no
	// commit since. Fencing.Abandoned then looks for its tasks only when it looks at all tasks, every few minutes.
	// Closing a run that is not live is no error.
	CloseRun(ctx context.Context, run holdfast.RunID, clean bool) error
	// Drain asks a live run to shut down. ErrNotFound, or ErrConflict if it is over.
	Drain(ctx context.Context, run holdfast.RunID) error
	// Runs lists the runs, newest first: live ones, and with all also those that
	// are over.
	Runs(ctx context.Context, all bool) ([]Run, error)
}

// RunInfo describes a worker to people.
type RunInfo struct {
	Name        string // unique enough to find the process, for example host/pid
	Host        string
	PID         int
	Version     string
	Concurrency int
	Lanes       []string // empty means every lane
	// Process tells the worker's process apart from others of its machine with the same PID. It is zero if the system
	// does not report it. Runs does not return it.
	Process Process
}

// Process identifies a process of one machine, beside its id.
type Process struct {
	Boot      string // of the machine
	Namespace string // in which PID and Started are valid
	Started   int64  // in ticks since the boot
}

// RunState is where a run stands.
type RunState string

// The states of a run. Dead and Stopped are final.
const (
	RunLive    RunState = "live"
	RunDead    RunState = "dead"    // fenced: its lease ran out
	RunStopped RunState = "stopped" // ended by itself with nothing in hand
)

// Run is a stored run.
type Run struct {
	ID holdfast.RunID
	RunInfo
	State      RunState
	Draining   bool
	StartedAt  time.Time
	RenewedAt  time.Time
	LeaseUntil time.Time
	EndedAt    time.Time
	Taken      int64 // pages taken
	Settled    int64 // every page up to this one is finished
	Running    int   // handlers that ran at its last sign of life
}

// Renewal is one sign of life.
type Renewal struct {
	Run holdfast.RunID
	// By is what OpenRun was given: name, host and PID must be those of the run. After commits were lost
	// its id may have been given out again, to another process. Without a name nothing is compared.
	By      RunInfo
	Lease   time.Duration
	Taken   int64
	Settled int64
	Running int
	// Shown says that the process holds both signs of its presence: the one in the store's [Presence] and the one
	// in the broker's.
	Shown bool
	// OwnSession asks a store with a [Presence] to send the run's renewals over a session of their own. While that
	// session is there, the run is not absent. It ends with CloseRun, with a renewal that fails, and with the process.
	OwnSession bool
}

// News is what a renewal brings back.
type News struct {
	// Cancelled are running tasks of this run that were cancelled since the last
	// renewal that returned.
	Cancelled []holdfast.Ticket
	Draining  bool
	Lanes     []string // every known lane, sorted
	// History names the line of commits that the renewal is part of. When it differs from that of an earlier
	// renewal, commits that were answered before may be gone; see Held. It stays the same over a
	// restart that loses nothing. "" says nothing: no answered commit can be lost, or the store cannot tell.
	History string
}

// Work is what a consumer does with tickets and results.
type Work interface {
	// Claim takes the tasks that the tickets name for run, one verdict per
	// ticket, in one statement per batch. Only tasks that are wanted are
	// taken, and those taken into a buffer are Buffered. It is idempotent: a task that run holds already, at the ticket's attempt, is
	// Claimed again, because the answer to an earlier call may have been lost; the caller
	// knows which it has in hand. The second of two equal tickets in one call is Stale.
	// ErrFenced if the run is not live; then nothing was taken.
	Claim(ctx context.Context, run holdfast.RunID, wanted []Wanted, tickets []holdfast.Ticket, into Place) ([]Claim, error)
	// Held returns the tasks, without payload, that are running under the run and whose ids are above after, up to
	// through, in any order. It may read all tasks of that range. It may or may not return tasks that start or end
	// meanwhile.
	Held(ctx context.Context, run holdfast.RunID, after, through holdfast.TaskID) ([]holdfast.Task, error)
	// Apply makes the moves and reports for each whether it was accepted; one that
	// was not has changed nothing, because the task no longer stood where the judge
	// saw it. A move with a report leaves a row among the task's attempts. Cancelling
	// a running task leaves word for its run.
	Apply(ctx context.Context, moves []holdfast.Transition) ([]bool, error)
	// Park makes ready tasks wait, uncharged and at the same attempt, and stores why. The first park of a task at an
	// attempt lasts wait, and each further one twice as long, up to ten minutes or wait, whichever is longer. Tasks
	// that moved on are left alone.
	Park(ctx context.Context, tickets []holdfast.Ticket, wait time.Duration, why string) error
	// PassedOn records that the caller is about to send the tickets to the requeue queue of their lane. The lane's
	// sentinels prove nothing about that queue. UnticketLost takes these tasks as Again, and as ticketed now. A task
	// that was recorded less than ten seconds ago may keep its time. Tasks that moved on are left alone.
	PassedOn(ctx context.Context, tickets []holdfast.Ticket) error
	// Drained records that a lane's sentinel came out, and when: now. The caller leaves out a sentinel that was
	// redelivered: returned tickets may be behind it. One that is not newer than the newest recorded
	// changes nothing, nor does one whose time lies in the future.
	Drained(ctx context.Context, s holdfast.Sentinel) error
}

// Wanted is a type of task that a caller runs; each type comes once.
type Wanted struct {
	Type string
	// MostCrashes is how many crashes a task may have had; one with more is a Suspect.
	MostCrashes int
}

// AnyCrashes is a MostCrashes that no task exceeds.
const AnyCrashes = math.MaxInt32

// AnyOf wants all tasks of the types.
func AnyOf(types ...string) []Wanted {
	wanted := make([]Wanted, len(types))
	for i, t := range types {
		wanted[i] = Wanted{t, AnyCrashes}
	}
	return wanted
}

// Place is where a worker puts the tasks that it claims.
type Place uint8

// The places.
const (
	// IntoExecutors says that a free executor is reserved for each task. The task starts when the answer to the claim
	// arrives.
	IntoExecutors Place = iota
	// IntoBuffer says that the tasks may wait for an executor. If their worker crashes, they are not charged.
	IntoBuffer
)

// Verdict is the answer to one ticket.
type Verdict uint8

// The verdicts.
const (
	Stale     Verdict = iota // the task is final, newer, not due yet, or gone from this attempt: drop the ticket
	Claimed                  // the task is the caller's
	Contended                // it runs under another run: mirror it under that run, do not run it
	Ahead                    // the ticket is newer than the row, or there is no row: the database lost commits; to rescue
	Unhandled                // its type is not among those asked for: park it
	Suspect                  // it has had more crashes than is wanted: claim it when nothing else is in hand
)

// Claim is a verdict with what belongs to it.
type Claim struct {
	Verdict Verdict
	Task    holdfast.Task  // complete if Claimed; only ID, Type, Lane if Unhandled or Suspect
	Owner   holdfast.RunID // if Contended
	Now     time.Time      // the store's clock
}

// Fencing is how a janitor judges the lives of runs and the tasks of dead ones.
type Fencing interface {
	// Now returns the store's clock. It is the cheapest question there is, asked often to
	// know that the store answers.
	Now(ctx context.Context) (time.Time, error)
	// Fence declares dead every live run whose lease ended more than grace ago and returns them. It fences nobody while
	// the server itself has been up for less than settle, or when it gets to the question more than two seconds after
	// asked, a moment from Now: then the server was frozen, and nobody could renew. The caller has made sure that the
	// store was reachable for long enough. If the newest renewal of a live run lies more than two seconds in the
	// future, the clock was set back since then. Such a run gets a whole lease from now.
	Fence(ctx context.Context, asked time.Time, grace, settle time.Duration) ([]holdfast.RunID, error)
	// RunStates answers for the runs that exist.
	RunStates(ctx context.Context, runs []holdfast.RunID) (map[holdfast.RunID]RunStatus, error)
	// Positions says where the tasks of the tickets stand.
	Positions(ctx context.Context, tickets []holdfast.Ticket) ([]Position, error)
	// Abandoned returns tasks, without payload, that are running under runs that
	// are over: of the given run, or of any if run is 0. At most limit.
	Abandoned(ctx context.Context, run holdfast.RunID, limit int) ([]holdfast.Task, error)
	// TasksByID returns the tasks without payload, those that exist, in any order.
	TasksByID(ctx context.Context, ids []holdfast.TaskID) ([]holdfast.Task, error)
}

// RunStatus is what the patrol needs of a run.
type RunStatus struct {
	State   RunState
	Settled int64
}

// Position is where a task stands with respect to a ticket.
type Position struct {
	Found    bool
	State    holdfast.State
	Attempt  int
	Run      holdfast.RunID
	RunState RunState // "" if there is no run
	Ticketed bool     // if ready: a ticket was published, so nothing else will publish one
}

// Dispatch publishes what is due. Any number of processes may call it at once;
// they share the work and none waits for another.
type Dispatch interface {
	// DispatchDue gives at most limit due and unticketed tasks of the lanes to publish, those due for longest first, and
	// marks as ticketed those for which publish returned true. Until it returns no
	// other caller gets them. Next is the wait until the next task is due, capped at
	// an hour; it is a second if tasks that are due now were not published or are in
	// another caller's hands, and 0 if limit was reached. Tasks that were not published are not
	// given again for a few seconds, so that those of a queue that takes nothing do not keep
	// others from being reached.
	DispatchDue(ctx context.Context, lanes Lanes, limit int, publish func(context.Context, []Due) []bool) (Dispatched, error)
	// DispatchReceipts gives receipts of the lanes that are older than their grace to publish and deletes those
	// for which it returned true. The others are not given again for a few seconds.
	DispatchReceipts(ctx context.Context, lanes Lanes, limit int, publish func(context.Context, []Receipt) []bool) (int, error)
	// LaneNames returns every known lane, sorted, without counting anything.
	LaneNames(ctx context.Context) ([]string, error)
}

// Lanes chooses lanes. The zero value chooses all.
type Lanes struct {
	Only   string // if not empty, this one
	Except []string
}

// Includes reports whether the lane is chosen.
func (l Lanes) Includes(lane string) bool {
	return (l.Only == "" || l.Only == lane) && !slices.Contains(l.Except, lane)
}

// Due is a task that needs a ticket.
type Due struct {
	holdfast.Ticket
	Lane string
	// Again means that its last attempt was broken off by a crash or handed back: it had its
	// turn, and does not wait behind the backlog once more.
	Again bool
	Late  time.Duration // since it became due
}

// Dispatched is the answer to DispatchDue.
type Dispatched struct {
	Given  int // tasks handed to publish
	Marked int // of them, published and marked
	Next   time.Duration
}

// Repair restores tickets that are gone and removes rows that are old.
type Repair interface {
	// Unticket makes ready tasks due again at once, so that they get a new ticket:
	// those of the tickets, if they stand at that attempt. Tasks that wait for a later time and
	// have no ticket are left alone. It returns how many it changed.
	Unticket(ctx context.Context, tickets []holdfast.Ticket) (int, error)
	// UnticketLane does so for every ticketed ready task of a lane, in small steps:
	// after an error some are changed, and calling it again does the rest.
	UnticketLane(ctx context.Context, lane string) (int, error)
	// UnticketLost does so for tasks whose tickets are proved lost, also in small steps. A sentinel of the lane was sent
	// after them and has come out, and so has another one that was sent at least slack after that: a worker that had
	// received a ticket has claimed it or returned it by then, and a returned ticket comes out first. The tickets are
	// older than the first sentinel by slack or ten seconds, whichever is less, for new tasks count as ticketed a moment
	// before they are; and by ten times slack if they are Again, because a sentinel says nothing about the requeue
	// queue. Their tickets may still wait there: these tasks get another ticket, and the number that it returns leaves
	// them out. A call holds the newest sentinel that has come out, and a later call makes it the proof. A proof counts
	// until a later one replaces it. Tasks that a receipt may cover are spared. If a call has found no lost ticket for a
	// few seconds, it ends, and the next call of any process goes on from there. Its cost depends on the number of tasks
	// that are ticketed or new, not on the number of all tasks; once a day it looks at all tasks.
	UnticketLost(ctx context.Context, slack time.Duration) (int, error)
	// SentinelsDue picks the lanes that need a sentinel now, at most one every interval and none while an earlier one
	// is still on its way for less than lost, and marks them as sent. It ignores times of a lane's sentinels that lie
	// more than two seconds in the future: the clock was set back since then.
	SentinelsDue(ctx context.Context, interval, lost time.Duration) ([]holdfast.Sentinel, error)
	// CorrectTimes records the time, and reports whether the clock was set back by more than two seconds since an
	// earlier call of any process. If it was, CorrectTimes corrects in small steps the times that the store itself
	// computed while the clock was ahead. Outbox entries and refused tickets are due at once, tickets count as
	// published now, and parks and retries wait no longer than intended. A delay or a time that was given with a task
	// stays as it is.
	CorrectTimes(ctx context.Context) (setBack bool, err error)
	// Turn reports whether it is the caller's turn to do a duty that one process in every interval is enough for:
	// nobody else has taken it within that time. A turn whose time lies more than two seconds in the future does not
	// count: the clock was set back since then.
	Turn(ctx context.Context, duty string, every time.Duration) (bool, error)
	// Prune deletes, in small steps up to limit rows, what is older than the given
	// ages; an age of 0 keeps that kind for ever. A task's age is the time since its last move to
	// a final state. A run is deleted only after Abandoned has found nothing of its own.
	Prune(ctx context.Context, ages PruneAges, limit int) (int, error)
}

// PruneAges says how long what is over is kept.
type PruneAges struct {
	Done, Cancelled, Archived, Runs time.Duration
}

// Desk is what people ask.
type Desk interface {
	// Task returns a task with its payload; ErrNotFound.
	Task(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error)
	// List returns tasks without payload, newest id first.
	List(ctx context.Context, f Filter) ([]holdfast.Task, error)
	// Count counts tasks by state; states with none are present with 0.
	Count(ctx context.Context, f Filter) (map[holdfast.State]int64, error)
	// Attempts returns the kept attempts of a task, oldest first; ErrNotFound if
	// there is no such task.
	Attempts(ctx context.Context, id holdfast.TaskID) ([]holdfast.Attempt, error)
	// Lanes describes every known lane, sorted by name.
	Lanes(ctx context.Context) ([]Lane, error)
}

// Filter chooses tasks. The zero value chooses all.
type Filter struct {
	States []holdfast.State
	Type   string
	Lane   string
	Error  string          // text that the last error contains, ignoring case
	Before holdfast.TaskID // only smaller ids: the last id of the page before
	Limit  int             // at most this many; 0 means 50; List only
}

// Lane describes one lane.
type Lane struct {
	Name      string
	Ready     int64 // waiting, whenever they are due
	Due       int64 // of them, those that could run now
	Running   int64
	OldestDue time.Duration // age of the one that has been due for longest
	DrainedAt time.Time     // up to when its sentinel has proved it drained
}

// Migrations manages the schema.
type Migrations interface {
	// CheckSchema returns an ErrSchema if the schema is behind or ahead, nil if it is right.
	CheckSchema(ctx context.Context) error
	// MigrateUp applies what is missing and returns the versions it applied.
	MigrateUp(ctx context.Context) ([]Migration, error)
	// MigrateDown takes the newest applied version back; ErrNotFound if none is.
	MigrateDown(ctx context.Context) (Migration, error)
	// MigrationStatus lists every known version in order.
	MigrationStatus(ctx context.Context) ([]Migration, error)
	// Incarnation is an id made at the first migration. It names the broker marker that
	// tells a wiped broker from a full one.
	Incarnation(ctx context.Context) (string, error)
}

// Migration is one version of the schema.
type Migration struct {
	Version   int64
	Name      string
	Applied   bool
	AppliedAt time.Time
}
