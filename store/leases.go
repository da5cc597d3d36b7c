package store

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
)

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
	Types       []string // of the tasks it has handlers for; nil if that is not known
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
	Cancelled []message.Ticket
	Draining  bool
	Lanes     []string // every known lane, sorted
	// History names the line of commits that the renewal is part of. When it differs from that of an earlier
	// renewal, commits that were answered before may be gone; see Held. It stays the same over a
	// restart that loses nothing. "" says nothing: no answered commit can be lost, or the store cannot tell.
	History string
}
